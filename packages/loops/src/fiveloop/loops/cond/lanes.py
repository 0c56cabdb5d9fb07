"""Batching in which each lane runs only the branch that it takes.

In groups, a loop runs over blocks of lanes that take the same branch, where that is estimated to take less time than
all branches for all lanes. Rows are put in their places before the loop, which leaves slices in it, whose derivatives
are slices, too. In series, a loop runs over lanes; that serves Refs and effects too, which belong to one lane each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log2, sqrt
from typing import Any

import numpy as np

from fiveloop.core import Jaxpr, Value, ad, ir, prims, trace, transforms, util
from fiveloop.core.api import custom_rules, implicit
from fiveloop.core.closed_call import ClosedCallParams, closed_call_p
from fiveloop.core.dataclass import dataclass, replace
from fiveloop.loops.options import How
from fiveloop.loops.primitives.cond import INDEX, CondParams, cond_p
from fiveloop.loops.primitives.while_loop import while_p
from fiveloop.loops.record import MACHINERY, Called
from fiveloop.loops.tracing import loop_of, trace_body
from fiveloop.state import AbstractRef, Ref, WriteEffect, api

OPERATION, PLACED, MOVED, TURN = 0.05, 10.0, 0.4, 5_000.0
"""Nanoseconds: of an operation of a lane, of giving a lane its place, of each byte of it, and of a block of lanes.

Measured on two versions of jaxlib with branches of 2 to 42,000 operations a lane, in 512 and 4,000 lanes, of which one
in ten takes the dear one: `benchmarks/planning/rates.py groups`. With these rates each of those runs in the faster way;
a block has the size from 8 to 512 that was fastest on jaxlib 0.10.2.
"""
LARGEST_BLOCK = 128


def groups_pay(dims: ad.BatchAxes, p: CondParams) -> bool:
    """Whether lanes that are evenly spread over the branches are faster in groups than with all branches for all lanes.

    So it is taken to be where branches have Refs, effects, unknown sizes, or loops of an unknown number of steps.
    """
    return _pay(dims, p, p.branches)


def dear_branches(dims: ad.BatchAxes, p: CondParams) -> util.Mask:
    """The branches whose lanes are worth a place in a group; the others are faster for all lanes at once."""
    if serves_effects(p):
        return (True,) * len(p.branches)
    return tuple(_pay(dims, p, [b]) for b in p.branches)


def serves_effects(p: CondParams) -> bool:
    """Whether there are Refs or effects, for which lanes run one after the other."""
    has_refs = any(isinstance(a, AbstractRef) for a in p.branches[0].in_avals)
    return has_refs or any(b.effects for b in p.branches)


def _pay(dims: ad.BatchAxes, p: CondParams, some: Sequence[Jaxpr]) -> bool:
    """Whether what some branches compute in vain, if they run for all lanes, takes longer than giving lanes places."""
    if serves_effects(p) or any(map(_repeats, some)):
        return True
    ins, outs = p.branches[0].in_avals, p.branches[0].out_avals
    work = [transforms.operations_of(b) for b in some]
    rows = [a for a, d in zip(ins, dims[1:], strict=True) if d is not None]
    moved = prims.bytes_of([*rows, *outs])
    if not all(map(ir.is_constant, [*work, moved])):
        return True
    spared = sum(work) * (len(p.branches) - 1) / len(p.branches)
    return bool(spared * OPERATION >= PLACED + moved * MOVED)


_repeats = ir.holding(while_p)
"""Whether a jaxpr has a loop whose number of steps is not known."""


def _block_size(size: int, p: CondParams) -> int:
    """Lanes in a block: a power of two. More are fewer turns, but the last block of each branch is less full."""
    work = max(transforms.operations_of(b) for b in p.branches)
    lane = OPERATION * work if ir.is_constant(work) and work else OPERATION
    best = sqrt(size * TURN / lane / max(1, len(p.branches) - 1))
    return max(1, min(LARGEST_BLOCK, 1 << (size - 1).bit_length(), 1 << round(log2(max(best, 1)))))


def in_groups(
    size: int, operands: ad.Values, dims: ad.BatchAxes, p: CondParams, *, all_take_one: bool = True
) -> list[Value]:
    """The results of all lanes, in axis 0; lanes that take the same branch run together, a block at a time.

    Unless `all_take_one`, a lane whose index is the number of branches takes none, and its results have no meaning.
    """
    if serves_effects(p):
        # A Ref without an effect is one that no branch uses.
        return in_series(size, operands, dims, p)
    index, *rest = transforms.in_front(size, operands, dims)
    batched = tuple(d is not None for d in dims[1:])
    block = _block_size(size, p)
    # Each branch but one may leave a block that is not full. The last one is not used if lanes take none.
    steps = -(-size // block) + len(p.branches) - all_take_one
    branches = [transforms.batch_jaxpr(b, block, batched, True)[0] for b in p.branches]
    blocks = _Blocks.of(index, (steps, block), len(p.branches))
    states = [blocks.split(x) for b, x in zip(batched, rest, strict=True) if b]
    rows = [a.unbatched(0).batched(block).batched(steps) for a in branches[0].out_avals]

    def body(step: Value, *refs: Value) -> list[Value]:
        given = iter(refs)
        ins = [next(given)[step] if b else x for b, x in zip(batched, rest, strict=True)]
        outs = _chosen(branches, blocks.branches[step], ins)
        for ref, x in zip(given, outs, strict=True):
            ref[step] = x
        return []

    operands, branches_taken, used = rest, blocks.branches, blocks.used
    holds = lambda: (operands, branches_taken, used)
    story = _Story(p, "lanes in groups", batched, holds)
    found = _loop(steps, body, [*states, *map(transforms.zeros_of, rows)], story, used=blocks.used)
    return [blocks.joined(x) for x in found[len(states) :]]


def _chosen(branches: Sequence[Jaxpr], index: Value, ins: ad.Values) -> list[Value]:
    """The results of the branch at an index."""
    if len(branches) == 1:
        return transforms.eval_jaxpr(branches[0], ins)
    return trace.bind(cond_p, index, *ins, params=CondParams(tuple(branches)))


@dataclass(frozen=True, slots=True)
class _Blocks:
    """Lanes in blocks of those that take the same branch, of which some places stay free.

    The first blocks are `used`, and `branches` are those of the blocks. `lanes` has the lane of each place, and
    `places` the place of each lane; a free place has the first lane of its block in `filled`, and in `lanes` the
    number of lanes. There are as many `places` as `lanes`, so that one is the other's inverse for lanes that take a
    branch.
    """

    size: int
    shape: tuple[int, int]
    used: Value
    branches: Value
    lanes: Value
    filled: Value
    places: Value

    @staticmethod
    def of(index: Value, shape: tuple[int, int], num_branches: int) -> _Blocks:
        """The blocks of lanes that take the branches at `index`."""
        (size,) = index.shape
        used, branches, lanes, places = _placed(index, shape, num_branches)
        first = prims.broadcast_to(lanes.reshape(shape)[:, :1], shape).reshape(lanes.shape)
        filled = prims.select(prims.equal(lanes, size), first, lanes)
        return _Blocks(size, shape, used.reshape(()), branches, lanes, filled, places)

    def split(self, x: Value) -> Value:
        """The rows of an array, a block of lanes each."""
        room = self.lanes.shape[0] - self.size
        rows = prims.pad(x, False, [0] * x.ndim, [room, *[0] * (x.ndim - 1)])
        return _permuted(rows, self.filled, self.places).reshape(*self.shape, *x.shape[1:])

    def joined(self, x: Value) -> Value:
        """The rows of all lanes in order."""
        rows = x.reshape(*self.lanes.shape, *x.shape[2:])
        return _permuted(rows, self.places, self.lanes)[: self.size]


def _placed(index: Value, shape: tuple[int, int], num_branches: int) -> list[Value]:
    """How many blocks are used, their branches, the lanes of places and the places of lanes; of rows of lanes, in rows.

    One kernel does it, which a scatter would not let be: so a batch is rows, one after the other.
    """

    @custom_rules.custom_vmap
    def placed(index: Value) -> list[Value]:
        run = _placed_rows if index.ndim > 1 else _placed_row
        jaxpr = trace.stage_closed(
            lambda index: run(index, shape, num_branches), [index.aval], "lanes in blocks"
        )
        params = ClosedCallParams(jaxpr, one_kernel=True)
        return trace.bind(closed_call_p, index, params=params)

    placed.def_vmap(lambda size, batched, index: (placed(index), [True] * 4))
    return placed(index)


def _placed_rows(index: Value, shape: tuple[int, int], num_branches: int) -> list[Value]:
    """`_placed_row` of each row of lanes."""
    *axes, size = index.shape
    rows = index.reshape(-1, size)
    steps, block = shape

    def body(k: Value, *refs: Value) -> list[Value]:
        for ref, x in zip(refs, _placed_row(rows[k], shape, num_branches), strict=True):
            ref[k] = x
        return []

    lengths = (1, steps, steps * block, steps * block)
    states = [transforms.zeros_of(INDEX.batched(n).batched(rows.shape[0])) for n in lengths]
    return [x.reshape(*axes, -1) for x in _machinery(rows.shape[0], body, states)]


def _placed_row(index: Value, shape: tuple[int, int], num_branches: int) -> list[Value]:
    """One pass over the lanes.

    A lane goes to the next place of its branch's block, or, if that block is full, to the first of a new one; a lane
    without a branch goes to the last place of all.
    """
    steps, block = shape
    count = steps * block

    def body(lane: Value, used: Value, ends: Value, branches: Value, *of_places: Value) -> Any:
        lanes, places = of_places
        branch = prims.clamp(0, index[lane], num_branches)
        old = ends[...]
        end = old[branch]
        # `ends` has only places, and `block` is a power of two.
        is_full = prims.equal(end & (block - 1), 0) & (branch < num_branches)
        place = prims.clamp(0, prims.select(is_full, used[...] * block, end), count - 1)
        used[...] += is_full.astype(np.int32)
        is_its = prims.equal(prims.iota(np.int32, num_branches + 1), branch)
        ends[...] = prims.select(is_its, prims.minimum(place + 1, count - 1), old)
        branches[prims.clamp(0, place >> (block.bit_length() - 1), steps - 1)] = branch
        lanes[place] = lane
        places[lane] = place
        return []

    def full(length: int, value: int) -> Value:
        return prims.full((length,), value, np.int32)

    (size,) = index.shape
    nowhere = prims.iota(np.int32, num_branches + 1) // num_branches * (count - 1)
    states = [transforms.zeros_of(INDEX), nowhere, full(steps, 0), full(count, size)]
    used, _, *found = _machinery(size, body, [*states, full(count, 0)])
    return [used.reshape(1), *found]


def _machinery(steps: int, body: Any, states: ad.Values) -> list[Value]:
    """A loop that is a part of how lanes run."""
    traced = trace_body(body, [AbstractRef(x.aval) for x in states], body)
    loop = loop_of(steps, traced, How(unroll=1))
    return replace(loop, params=replace(loop.params, record=MACHINERY)).run(states)


def _permuted(x: Value, order: Value, places: Value) -> Value:
    """The rows of an array in an order; `places` is that of its transpose."""
    return implicit.custom_linear_solve(
        lambda y: y[places], x, lambda _, y: y[order], lambda _, ct: ct[places]
    )


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
        """The names of the states: the first one, operands, and then the results."""
        given = [f"operands[{k}]" for k, is_state in enumerate(self.are_states) if is_state]
        num = len(self.p.branches[0].outvars)
        first = ["branch taken"] * (count - num - len(given))
        return [*first, *given, *[f"result[{k}]" for k in range(num)]]


def _loop(
    steps: int,
    body: Any,
    states: ad.Values,
    story: _Story,
    *,
    lanes: int | None = None,
    used: Value | None = None,
) -> list[Value]:
    """A loop over all lanes, or over blocks of them, of which the first are used."""
    count = [] if used is None else [used]
    avals = [AbstractRef(x.aval) for x in states]
    traced = replace(trace_body(body, avals, body), fun=story.holds, called=story.called)
    names = story.names(len(states))
    loop = loop_of(steps, traced, How(unroll=1), names, counted=bool(count))
    return replace(loop, params=replace(loop.params, lanes=lanes)).run(states, *count)


def check_axes(size: int, p: CondParams) -> None:
    """Refuse branches that communicate with lanes which may take another branch."""
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
