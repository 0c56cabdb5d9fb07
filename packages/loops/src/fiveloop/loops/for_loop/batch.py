"""Batching: one loop over batched Refs; a state is batched from the start if a batched value reaches it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from fiveloop.core import Jaxpr, Value, ad, ir, prims, trace, transforms, util
from fiveloop.core.ir.indexer import At
from fiveloop.loops.analysis import accesses
from fiveloop.loops.primitives import cond, for_loop
from fiveloop.loops.primitives.for_loop import INDEX, ForParams, for_p


def for_batch(size: int, operands: ad.Values, dims: ad.BatchAxes, p: ForParams) -> ad.Batched:
    """Loop once for the whole batch.

    A state is each lane's own. If it is the same in all lanes it needs no batch axis: what accumulates into it does so
    once. Only where an equation of the body that holds a jaxpr accumulates into it is it given one, for in there a Ref
    without one is a Ref that the lanes share.
    """
    p = for_loop.stateful(p)
    if p.counted and dims[0] is not None:
        p, operands, dims = _as_many_as_most(p, operands, dims)
    states = for_loop.is_state(p, operands)
    binders = p.body.invars[1:]
    seeds = [v for v, d in zip(binders, dims, strict=True) if d is not None]
    seeds += _accumulated_within(p.body, util.select_by(states, binders))
    fixed = [v for v, state in zip(binders, states, strict=True) if not state]
    reached = transforms.batched_vars(p.body, size, seeds, fixed)
    batched = tuple(v in reached for v in binders)
    slots = _slots(p.body, reached)
    axes = _axes(operands, dims, [v in slots for v in binders])
    body, _ = transforms.batch_jaxpr(
        p.body, size, (False, *batched), own=(False, *states), axes=(0, *axes)
    )
    moved = transforms.in_front(size, operands, dims, batched, axes)
    outs = _bind_batched(p, body, moved, _flag_of_each_lane(p, batched, states))
    out_dims = [a if b else None for a, b in zip(axes, batched, strict=True)]
    return outs, util.select_by(states, out_dims)


def _slots(body: Jaxpr, reached: Collection[ir.Var]) -> set[ir.Atom]:
    """The Refs of which each access takes one place on the first axis, the same in all lanes."""
    found, others = set[ir.Atom](), set[ir.Atom]()
    for eqn in filter(accesses.is_access, body.eqns):
        index = accesses.index_rules[eqn.primitive](eqn)
        by_place = any(isinstance(e, At) for e in eqn.params.indexer.entries[:1])
        same = not any(a in reached for a in index)
        (found if by_place and same else others).add(eqn.invars[0])
    return found - others


def _axes(operands: ad.Values, dims: ad.BatchAxes, slots: Sequence[bool]) -> tuple[int, ...]:
    """Where the batch axis of each operand is in the loop: in front, but that of a Ref where it is.

    Of an array of slots it is the second, so that a step reads or writes one block, unless the array is given with its
    batch axis in front. Without one, the array gets it second if another is given so, or if each slot is one number,
    for a column of numbers takes a cache line for each.
    """
    beside = any(d for d, slot in zip(dims, slots, strict=True) if slot)

    def axis(x: Value, d: int | None, slot: bool) -> int:
        if x.aval.accumulates:
            return d or 0
        if not slot:
            return 0
        return min(d, 1) if d is not None else int(beside or x.ndim == 1)

    return tuple(map(axis, operands, dims, slots))


def _as_many_as_most(
    p: ForParams, operands: Sequence[Value], dims: Sequence[int | None]
) -> tuple[ForParams, Sequence[Value], Sequence[int | None]]:
    """The loop that takes the steps of the lane that has most, of which each lane takes its own.

    body : [i, most, count, *consts, *refs] -> []
    """
    most = prims.reduce_max(operands[0]) if operands[0].size else transforms.zeros_of(INDEX)
    p = replace(p, body=_of_own_count(p), num_consts=p.num_consts + 1)
    return p, [most, *operands], [None, *dims]


@ir.once_per(lambda p: (p.body, p.counted, p.nsteps))
def _of_own_count(p: ForParams) -> Jaxpr:
    """The step as a branch that is taken if it is one of a lane's own."""
    skip = trace.stage_closed(lambda *args: [], p.body.in_avals, "ended")

    def run(i: Value, most: Value, count: Value, *args: Value) -> list[Value]:
        mine = i < count if p.counted == "lowest" else i >= p.nsteps - count
        ended = prims.convert(prims.bitwise_not(mine), INDEX.dtype)
        params = cond.CondParams((p.body, skip))
        return trace.bind(cond.cond_p, ended, i, count, *args, params=params)

    i, *avals = p.body.in_avals
    hints = ["", "steps of all lanes", *p.body.hints[1:]]
    return trace.stage_closed(run, [i, INDEX, *avals], p.body.name, hints)


def _flag_of_each_lane(p: ForParams, batched: Sequence[bool], states: Sequence[bool]) -> int | None:
    """The number of the operand that ends the loop early, if each lane has its own."""
    flag = for_loop.end_flag(p.body)
    if flag is None:
        return None
    k = p.body.invars.index(flag) - 1
    return k if batched[k] and states[k] else None


def _bind_batched(p: ForParams, body: Jaxpr, operands: ad.Values, flags: int | None) -> list[Value]:
    """The loop of all lanes; one whose lanes end early ends with the last of them."""
    p = replace(p, lanes=None if p.lanes is None else p.lanes + 1)
    if flags is None:
        return trace.bind(for_p, *operands, params=replace(p, body=body))
    ending = body.remember(("ending", flags), lambda: for_loop.until_all_are_set(body, 1 + flags))
    have_ended = prims.reduce_and(operands[flags])
    return trace.bind(for_p, *operands, have_ended, params=replace(p, body=ending))[:-1]


def _accumulated_within(body: Jaxpr, refs: ir.Vars) -> list[ir.Var]:
    """The Refs into which an equation that holds a jaxpr accumulates."""
    found = {
        eqn.invars[e.position]
        for eqn in body.eqns
        if ir.jaxprs_in(eqn.params)
        for e in eqn.effects
        if isinstance(e, ir.PositionalEffect) and e.each_lane
    }
    return [v for v in refs if v in found]
