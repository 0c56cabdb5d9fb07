"""Batching in which each lane runs only the branch that it takes.

In groups, lanes are sorted by branch, and a loop runs over blocks of lanes that take the same one, where that is
estimated to take less time than all branches for all lanes. Sorting before the loop leaves slices of the rows in it,
whose derivatives are slices, too. In series, a loop runs over lanes; that serves
Refs and effects too, which belong to one lane each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log2, sqrt
from typing import Any

import numpy as np

from fiveloop.core import Jaxpr, Value, ad, custom_linear_solve, ir, prims, trace, transforms, util
from fiveloop.core.dataclass import dataclass, replace
from fiveloop.core.index import parse
from fiveloop.loops.primitives.cond import INDEX, CondParams, cond_p
from fiveloop.loops.primitives.while_loop import while_p
from fiveloop.loops.record import Called
from fiveloop.loops.tracing import loop_of, trace_body
from fiveloop.state import AbstractRef, Ref, WriteEffect, api, predicate

OPERATION, SORTED, MOVED, TURN = 0.02, 220.0, 0.4, 2_000.0
"""Nanoseconds: of an operation of a lane, of putting a lane in order, of each byte of it, and of a block of lanes.

Measured on two versions of jaxlib with branches of 2 to 42,000 operations a lane, in 512 and 4,000 lanes, of which one
in ten takes the dear one: `benchmarks/planning/rates.py groups`. An operation is set so low that no loop of these takes
longer in groups; a block by the sizes from 8 to 512 that were fastest on jaxlib 0.10.2.
"""
LARGEST_BLOCK = 128


def groups_pay(dims: ad.BatchAxes, p: CondParams) -> bool:
    """Whether lanes that are evenly spread over the branches are faster in groups than with all branches for all lanes.

    So it is taken to be where branches have Refs, effects, unknown sizes, or loops of an unknown number of steps.
    """
    ins, outs = p.branches[0].in_avals, p.branches[0].out_avals
    has_refs = any(isinstance(a, AbstractRef) for a in ins)
    if has_refs or any(b.effects or _repeats(b) for b in p.branches):
        return True
    work = [transforms.operations_of(b) for b in p.branches]
    rows = [a for a, d in zip(ins, dims[1:], strict=True) if d is not None]
    moved = prims.bytes_of([*rows, *outs])
    if not all(map(ir.is_constant, [*work, moved])):
        return True
    spared = sum(work) * (len(work) - 1) / len(work)
    return bool(spared * OPERATION >= SORTED + moved * MOVED)


def _repeats(jaxpr: Jaxpr) -> bool:
    """Whether a jaxpr has a loop whose number of steps is not known."""
    return any(
        e.primitive is while_p or any(map(_repeats, ir.jaxprs_in(e.params))) for e in jaxpr.eqns
    )


def _block_size(size: int, p: CondParams) -> int:
    """Lanes in a block: more of them are fewer turns of the loop, but the last block of each branch is less full."""
    work = max(transforms.operations_of(b) for b in p.branches)
    lane = OPERATION * work if ir.is_constant(work) and work else OPERATION
    best = sqrt(size * TURN / lane / max(1, len(p.branches) - 1))
    return int(max(1, min(LARGEST_BLOCK, size, 2 ** round(log2(best)))))


def in_groups(size: int, operands: ad.Values, dims: ad.BatchAxes, p: CondParams) -> list[Value]:
    """The results of all lanes, in axis 0; lanes that take the same branch run together, a block at a time."""
    if any(b.effects for b in p.branches) or any(isinstance(x, Ref) for x in operands):
        # A Ref without an effect is one that no branch uses.
        return in_series(size, operands, dims, p)
    index, *rest = transforms.in_front(size, operands, dims)
    batched = tuple(d is not None for d in dims[1:])
    block = _block_size(size, p)
    branches = [transforms.batch_jaxpr(b, block, batched, True)[0] for b in p.branches]
    choice = CondParams((*branches, _nothing(branches[0])))
    taken, order = prims.sort_together([index, prims.iota(np.int32, size)], 0)
    places = prims.argsort(order)
    # Behind the last lane is room for the rest of its block; there, no branch is left to be taken.
    taken = prims.pad(taken, len(branches), [0], [block])
    states = [
        _with_room(_permuted(x, order, places), block)
        for b, x in zip(batched, rest, strict=True)
        if b
    ]
    rows = [a.unbatched(0).batched(size + block) for a in branches[0].out_avals]

    def body(step: Value, next_lane: Value, *refs: Value) -> list[Value]:
        start = prims.clamp(0, next_lane[...], size)
        here = taken[parse.ds(start, block)]
        is_there = here == here[0]
        given = iter(refs)
        ins = [
            _filled(is_there, next(given)[parse.ds(start, block)]) if b else x
            for b, x in zip(batched, rest, strict=True)
        ]
        # What lanes give that are not there lies in the rows of the next group, which are written later, or behind the
        # last one.
        outs = trace.bind(cond_p, here[0], *ins, params=choice)
        for ref, x in zip(given, outs, strict=True):
            ref[parse.ds(start, block)] = x
        next_lane[...] = start + is_there.sum(dtype=np.int32)
        return []

    steps = -(-size // block) + len(branches) - 1
    operands, branches_taken = rest, taken
    holds = lambda: (operands, branches_taken)
    story = _Story(p, "lanes in groups", batched, holds, "next lane")
    first = transforms.zeros_of(INDEX)
    found = _loop(steps, body, [first, *states, *map(transforms.zeros_of, rows)], story)
    return [_permuted(x[:size], places, order) for x in found[1 + len(states) :]]


def _permuted(x: Value, order: Value, places: Value) -> Value:
    """The rows of an array in an order, of which `places` is the inverse; its transpose is the inverse."""
    return custom_linear_solve(
        lambda y: y[places], x, lambda _, y: y[order], lambda _, ct: ct[places]
    )


def _filled(is_there: Value, block: Value) -> Value:
    """A block of lanes in which those of other groups are replaced by its first one."""
    first = prims.broadcast_in_dim(block[0], block.shape, range(1, block.ndim))
    return predicate.gate(is_there, block, first)


def _with_room(x: Value, block: int) -> Value:
    """An array with room for a block behind its last row."""
    return prims.pad(x, False, [0] * x.ndim, [block, *[0] * (x.ndim - 1)])


def _nothing(branch: Jaxpr) -> Jaxpr:
    """A branch that gives zeros."""
    zeros = lambda *args: [transforms.zeros_of(a) for a in branch.out_avals]
    return trace.stage_closed(zeros, branch.in_avals, "none")


def in_series(size: int, operands: ad.Values, dims: ad.BatchAxes, p: CondParams) -> list[Value]:
    """The results of all lanes, in axis 0; one lane after the other."""
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
    """What is told of a loop over lanes: how they run, which operands are its states, and what holds the others.

    `first` is what the state before these is called, if there is one.
    """

    p: CondParams
    kind: str
    are_states: Sequence[bool]
    holds: Callable[[], Any]
    first: str = "branch taken"

    @property
    def called(self) -> Called:
        """The `cond` that the user wrote."""
        branches = self.p.branches
        # A `cond` has its branches in the other order than the call.
        given = branches if len(branches) > 2 else branches[::-1]
        names = dict.fromkeys(b.name or "branch" for b in given)
        return Called("cond", " or ".join(names), self.kind)

    def names(self, count: int) -> list[str]:
        """The names of the states: the first one, operands, and then the results."""
        given = [f"operands[{k}]" for k, is_state in enumerate(self.are_states) if is_state]
        num = len(self.p.branches[0].outvars)
        first = [self.first] * (count - num - len(given))
        return [*first, *given, *[f"result[{k}]" for k in range(num)]]


def _loop(
    steps: int, body: Any, states: ad.Values, story: _Story, lanes: int | None = None
) -> list[Value]:
    avals = [AbstractRef(x.aval) for x in states]
    traced = replace(trace_body(body, avals, body), fun=story.holds, called=story.called)
    loop = loop_of(steps, traced, False, 1, story.names(len(states)))
    return replace(loop, params=replace(loop.params, lanes=lanes)).run(states)


def check_axes(size: int, p: CondParams) -> None:
    """Refuse branches that communicate with lanes that may take another one."""
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
