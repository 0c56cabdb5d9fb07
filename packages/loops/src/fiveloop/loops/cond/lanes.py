"""Batching without work in vain: each lane runs the branch that it takes and no other.

In groups, lanes are sorted by branch, and a loop runs over blocks of lanes that take the same one. In series, a
loop runs over lanes; that serves Refs and effects too, which belong to one lane each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from fiveloop.core import Jaxpr, Value, ad, ir, prims, trace, transforms, util
from fiveloop.core.dataclass import dataclass, replace
from fiveloop.core.index import parse
from fiveloop.loops.primitives.cond import INDEX, CondParams, cond_p
from fiveloop.loops.record import Called
from fiveloop.loops.tracing import loop_of, trace_body
from fiveloop.state import AbstractRef, Ref, WriteEffect, api, predicate

_LARGEST_BLOCK = 128
_FEWEST_BLOCKS = 8


def in_groups(size: int, operands: ad.Values, dims: ad.BatchAxes, p: CondParams) -> list[Value]:
    """The results of all lanes, in axis 0; lanes that take the same branch run together, a block at a time."""
    if any(b.effects for b in p.branches) or any(isinstance(x, Ref) for x in operands):
        # A Ref without an effect is one that no branch uses.
        return in_series(size, operands, dims, p)
    _check_axes(size, p)
    index, *rest = transforms.in_front(size, operands, dims)
    batched = tuple(d is not None for d in dims[1:])
    block = max(1, min(_LARGEST_BLOCK, size // _FEWEST_BLOCKS))
    branches = [transforms.batch_jaxpr(b, block, batched, True)[0] for b in p.branches]
    rows = [a.unbatched(0).batched(size + block) for a in branches[0].out_avals]
    choice = CondParams(_writing(branches, [AbstractRef(a) for a in rows], block))
    count = len(branches)
    order, groups = prims.argsort(index), _Groups(index, count, block)
    num_in = sum(batched)

    def body(step: Value, *refs: Value) -> list[Value]:
        branch, start, end = groups.block(step)
        # The lanes that are missing in the last block of a group are its last one again; what they give lies in the
        # rows of the next group, which are written later, or beyond the end.
        wanted = start + prims.iota(np.int32, block)
        lanes, is_there = order[prims.clamp(0, wanted, end - 1)], wanted < end
        given = iter(refs[:num_in])
        ins = [
            predicate.gate(is_there, next(given)[lanes]) if b else x
            for b, x in zip(batched, rest, strict=True)
        ]
        return trace.bind(cond_p, branch, *ins, start, *refs[num_in:], params=choice)

    states = [x for b, x in zip(batched, rest, strict=True) if b]
    steps = -(-size // block) + count - 1
    operands, lane_order, group_ends = rest, order, [*groups.ends, *groups.blocks]
    holds = lambda: (operands, lane_order, group_ends)
    story = _Story(p, "lanes in groups", batched, holds)
    found = _loop(steps, body, [*states, *map(transforms.zeros_of, rows)], story)
    places = prims.argsort(order)
    return [x[:size][places] for x in found[num_in:]]


class _Groups:
    """Where the blocks of each branch's lanes lie, when lanes are sorted by branch."""

    def __init__(self, index: Value, count: int, block: int) -> None:
        self.block_size = block
        sizes = [(index == k).sum(dtype=np.int32) for k in range(count)]
        self.ends = _running(sizes)
        self.blocks = _running([(size + (block - 1)) // block for size in sizes])

    def block(self, step: Value) -> tuple[Value, Value, Value]:
        """The branch of a block, one more than the last when none is left; its first lane, and its group's end."""
        branch = sum(((step >= stop).astype(np.int32) for stop in self.blocks), step * 0)
        first, start, end = step * 0, step * 0, step * 0
        for k, (stop, last) in enumerate(zip(self.blocks, self.ends, strict=True)):
            is_past = (step >= stop).astype(np.int32)
            first = first + is_past * (stop - first)
            start = start + is_past * (last - start)
            is_in = (branch == k).astype(np.int32)
            end = end + is_in * (last - end)
        return branch, start + (step - first) * self.block_size, end


def _running(xs: ad.Values) -> list[Value]:
    out = list(xs[:1])
    for x in xs[1:]:
        out.append(out[-1] + x)
    return out


def _writing(
    branches: Sequence[Jaxpr], rows: Sequence[AbstractRef], block: int
) -> tuple[Jaxpr, ...]:
    """The branches, which write a block of results to rows from `start` on; a last one writes none.

    branch  : [*ins]                -> [*outs]
    writing : [*ins, start, *rows]  -> []
    """
    avals = [*branches[0].in_avals, INDEX, *rows]
    num = len(branches[0].invars)

    def run(branch: Jaxpr, *args: Value) -> list[Value]:
        for ref, x in zip(args[num + 1 :], transforms.eval_jaxpr(branch, args[:num]), strict=True):
            ref[parse.ds(args[num], block)] = x
        return []

    staged = [trace.stage_closed(partial(run, b), avals, b.name) for b in branches]
    return (*staged, trace.stage_closed(lambda *args: [], avals, "none"))


def in_series(size: int, operands: ad.Values, dims: ad.BatchAxes, p: CondParams) -> list[Value]:
    """The results of all lanes, in axis 0; one lane after the other."""
    _check_axes(size, p)
    batched = tuple(d is not None for d in dims)
    _check_writes(p, batched[1:])
    given = transforms.in_front(size, operands, dims)
    axes = transforms.axes_in_front(operands, dims)
    outs = [transforms.zeros_of(a.strong().batched(size)) for a in p.branches[0].out_avals]
    is_state = [b and not isinstance(x, Ref) for b, x in zip(batched, given, strict=True)]
    states = util.select_by(is_state, given)
    written = {k for branch in p.branches for k in ir.mutated_positions(branch.effects)}
    changed = {k for k in written if batched[1 + k]}

    def body(lane: Value, *refs: Value) -> list[Value]:
        rows = iter(refs)
        at = [(*[slice(None)] * axis, lane) for axis in axes]
        mine = [_of_lane(x, b, k, rows) for b, x, k in zip(batched, given, at, strict=True)]
        found = trace.bind(cond_p, *mine, params=p)
        for ref, x in zip(refs[len(states) :], found, strict=True):
            ref[lane] = x
        for place, (x, y, k) in enumerate(zip(given, mine, at, strict=True)):
            if place - 1 in changed:
                x[k] = api.freeze(y)
        return []

    operands = given[1:]
    story = _Story(p, "lanes one after the other", is_state[1:], lambda: operands)
    return _loop(size, body, [*states, *outs], story, lanes=0)[len(states) :]


def _of_lane(x: Value, batched: bool, at: Any, rows: Any) -> Value:
    """A lane's own part of an operand, which is `at` there; of a Ref, a copy that is written back."""
    if not batched:
        return x
    if isinstance(x, Ref):
        own: Value = api.new_ref(x[at])
        return own
    row: Value = next(rows)[at]
    return row


@dataclass(frozen=True, slots=True)
class _Story:
    """What is told of a loop over lanes: how they run, which operands are its states, and what holds the others."""

    p: CondParams
    kind: str
    are_states: Sequence[bool]
    holds: Callable[[], Any]

    @property
    def called(self) -> Called:
        """The `cond` that the user wrote."""
        branches = self.p.branches
        # A `cond` has its branches in the other order than the call.
        given = branches if len(branches) > 2 else branches[::-1]
        names = dict.fromkeys(b.name or "branch" for b in given)
        return Called("cond", " or ".join(names), self.kind)

    def names(self, count: int) -> list[str]:
        """The names of the states: the index if each lane has its own there, operands, and then the results."""
        given = [f"operands[{k}]" for k, is_state in enumerate(self.are_states) if is_state]
        num = len(self.p.branches[0].outvars)
        first = ["branch taken"] * (count - num - len(given))
        return [*first, *given, *[f"result[{k}]" for k in range(num)]]


def _loop(
    steps: int, body: Any, states: ad.Values, story: _Story, lanes: int | None = None
) -> list[Value]:
    avals = [AbstractRef(x.aval) for x in states]
    traced = replace(trace_body(body, avals, body), fun=story.holds, called=story.called)
    loop = loop_of(steps, traced, False, 1, story.names(len(states)))
    return replace(loop, params=replace(loop.params, lanes=lanes)).run(states)


def _check_axes(size: int, p: CondParams) -> None:
    if any(ir.batch_axis(size) in ir.axes_of(b.effects) for b in p.branches):
        raise TypeError(
            "cond: under vmap, a branch that communicates along the mapped axis must run for all lanes at once; use "
            'vmap="select"'
        )


def _check_writes(p: CondParams, batched: util.Mask) -> None:
    for branch in p.branches:
        written = sorted({e.position for e in branch.effects if isinstance(e, WriteEffect)})
        for place in written:
            if not batched[place]:
                aval = branch.in_avals[place]
                raise TypeError(
                    f"cond: under vmap, lanes cannot write to one {aval} from outside, each would overwrite the "
                    "others; give each lane its own (pass the Ref with in_axes=0), or accumulate with `+=`"
                )
