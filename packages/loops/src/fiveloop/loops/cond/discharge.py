"""Discharge: branches read contents and return the values and indices of their writes, which come after the cond.

In a loop, where a branch loops over writes, each branch is a loop of one turn, or of none: XLA copies an array that a
branch gives back, and leaves one in place that a loop carries.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import replace
from functools import reduce

import numpy as np

from fiveloop.core import Jaxpr, Value, arrays, ir, prims, rules, trace, transforms, util
from fiveloop.loops.cond import slices
from fiveloop.loops.primitives import cond, while_loop
from fiveloop.loops.record import BRANCH, Called, Record
from fiveloop.loops.while_loop.discharge import while_discharge
from fiveloop.state import discharge

_DONE = arrays.Scalar(np.asarray(False))


def cond_discharge(
    ctx: discharge.DischargeContext, operands: discharge.Operands, p: cond.CondParams
) -> list[Value]:
    """Choose over contents, then write what the branch taken gives; an element that it leaves is written back.

    branch : [*ins, Refs as their contents] -> [*outs, *new contents, *(elements, *positions) of each slot]
    """
    index, *rest = operands
    assert isinstance(index, Value), "unreachable: an index is a value"
    which = tuple(isinstance(x, discharge.Cell) for x in rest)
    mutated = frozenset(k for b in p.branches for k in ir.mutated_positions(b.effects))
    waiting, extra = slices.waiting_writes(ctx, rest)
    changed = tuple(k in mutated for k in range(len(rest)))
    shared = slices.share_writes(
        p, slices.Inputs(which, changed, waiting, tuple(x.aval for x in extra))
    )
    if shared.whole and ctx.index is not None and any(map(rules.holds_loop, p.branches)):
        return _as_loops(ctx, index, rest, p)
    rest = [*rest, *extra]
    used = _used_inputs(shared.branches)
    contents = _contents(ctx, rest, used, shared, {w.ref for w in waiting})
    rest = [ctx.latest(x) if isinstance(x, Value) else x for x in rest]
    index = ctx.latest(index)
    values = [contents.get(k, x) for k, x in enumerate(rest)]
    taken = [x for x, u in zip(values, used, strict=True) if u and isinstance(x, Value)]
    branches = tuple(
        b.replace(invars=[v for v, u in zip(b.invars, used, strict=True) if u])
        for b in shared.branches
    )
    results = trace.bind(cond.cond_p, index, *taken, params=replace(p, branches=branches))
    num_outs = len(p.branches[0].outvars)
    given = iter(results[num_outs:])
    for k in shared.whole:
        cell = rest[k]
        assert isinstance(cell, discharge.Cell), "unreachable: only a Ref is given back whole"
        ctx.assign(cell, next(given))
    with ctx.holding([*results, index]):
        for s in range(len(shared.slots)):
            _write(ctx, index, rest, shared, s, given)
        return [ctx.latest(x) for x in results[:num_outs]]


def _as_loops(
    ctx: discharge.DischargeContext, index: Value, operands: discharge.Operands, p: cond.CondParams
) -> list[Value]:
    """Each branch as a `while` that makes one turn if it is taken, and returns the results of the branch taken.

    branch : [*ins]                                  -> [*outs]
    body   : [*ins but Refs, still to do, *outs, *Refs] -> [False, *outs]
    """
    is_ref = [isinstance(x, discharge.Cell) or x.aval.accumulates for x in operands]
    outs: list[Value] = [transforms.zeros_of(a.strong()) for a in p.branches[0].out_avals]
    for k, branch in enumerate(p.branches):
        values, refs = util.partition(is_ref, branch.invars)
        to_do = ir.Var(while_loop.PREDICATE)
        binders = [*values, to_do, *[ir.Var(x.aval) for x in outs], *refs]
        body = branch.replace(invars=binders, outvars=[ir.Literal(_DONE), *branch.outvars])
        going = Jaxpr(binders, [], [to_do], branch.name)
        given, cells = util.partition(is_ref, operands)
        with ctx.holding([index]):
            ctx.values(operands)  # this may end a phase, before which the index has been read
            args = [*given, prims.equal(ctx.latest(index), k), *outs, *cells]
            record = Record(Called(f"cond branch {k}"), BRANCH)
            params = while_loop.WhileParams(going, body, len(values), record=record)
            outs = while_discharge(ctx, args, params)[1:]
    return outs


def _used_inputs(branches: Sequence[Jaxpr]) -> list[bool]:
    """The inputs that some branch uses."""
    masks = []
    for branch in branches:
        used = ir.used_by(branch.eqns, branch.outvars)
        masks.append([v in used for v in branch.invars])
    return [any(mask) for mask in zip(*masks, strict=True)]


def _contents(
    ctx: discharge.DischargeContext,
    operands: discharge.Operands,
    used: Sequence[bool],
    shared: slices.SharedWrites,
    around: Set[int],
) -> dict[int, Value]:
    """What the Refs hold that the branches use; those that are replaced first, since that may end a phase.

    Of those with writes that wait around the branches it is what they held before.
    """
    cells = {k: x for k, x in enumerate(operands) if isinstance(x, discharge.Cell) and used[k]}
    for k in shared.whole:
        if k in cells:
            ctx.contents(cells[k])
    return {k: ctx.peek(cell) if k not in around else cell.contents for k, cell in cells.items()}


def _write(
    ctx: discharge.DischargeContext,
    index: Value,
    operands: discharge.Operands,
    shared: slices.SharedWrites,
    s: int,
    results: Iterator[Value],
) -> None:
    """Carry out the writes that share a slot."""
    slot, given, users = shared.slots[s], shared.given[s], shared.users[s]
    cell, value = operands[slot.ref], next(results)
    at = [next(results) for _ in slot.index] if given is None else [operands[k] for k in given]
    positions = [x for x in at if isinstance(x, Value)]
    assert isinstance(cell, discharge.Cell), "unreachable: only a Ref is written to"
    if slot.kind != "set":  # a branch that combines nothing here gives what changes nothing
        ctx.accumulate(cell, slot.indexer, positions, value, slot.kind)
        return
    if len(users) < len(shared.branches):
        old = ctx.read(cell, slot.indexer, [ctx.latest(x) for x in positions])
        taken = reduce(prims.bitwise_or, [prims.equal(ctx.latest(index), k) for k in users])
        value = prims.select(taken, ctx.latest(value), old)
    positions = [ctx.latest(x) for x in positions]
    ctx.write(cell, slot.indexer, positions, value)
