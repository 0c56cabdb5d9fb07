"""Batching: with one index for all lanes a cond of batched branches; with one of each lane's own, all branches.

In the second case a lane takes nothing from a branch that it has not chosen: its results are selected, it
changes no Ref there, and no cotangent comes back from there, not even one that is not a number. The other ways,
in which a lane runs its own branch alone, are in `lanes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fiveloop.core import Jaxpr, Value
from fiveloop.core.engine import Mask, axes_in_front, batch_flat, equal, in_front
from fiveloop.core.extend import batch_jaxpr, bind, eval_jaxpr, select, stage_closed
from fiveloop.loops.cond.lanes import in_groups, in_series
from fiveloop.loops.cond.primitive import INDEX, CondParams, cond_p
from fiveloop.state import AbstractRef
from fiveloop.state.engine import insert_for_lanes
from fiveloop.state.extend import Guard, eval_predicated, gate


def cond_batch(
    size: int, operands: Sequence[Value], dims: Sequence[int | None], p: CondParams
) -> tuple[list[Value], list[int | None]]:
    """Choose once for all lanes if they choose alike, else for each."""
    if dims[0] is None:
        return _one_choice(size, operands, dims, p)
    p = replace(p, branches=tuple(map(insert_for_lanes, p.branches)))
    if p.vmap != "select" and size:
        run = in_groups if p.vmap == "group" else in_series
        outs = run(size, operands, dims, p)
        return outs, [0] * len(outs)
    # A scalar that lanes share is made one a lane by its gate; an array would cost too much.
    gated = tuple(d is not None or not x.ndim for x, d in zip(operands, dims, strict=True))[1:]
    jaxpr = p.branches[0].remember(("all branches", p, gated), lambda: _all_branches(p, gated))
    return batch_flat(lambda *xs: eval_jaxpr(jaxpr, xs), size, operands, dims)


def _one_choice(
    size: int, operands: Sequence[Value], dims: Sequence[int | None], p: CondParams
) -> tuple[list[Value], list[int | None]]:
    index, *rest = operands
    batched = tuple(d is not None for d in dims[1:])
    axes = axes_in_front(rest, dims[1:])
    found = [batch_jaxpr(b, size, batched, axes=axes)[1] for b in p.branches]
    out_batched = tuple(any(masks) for masks in zip(*found, strict=True))
    # branch : [*ins] -> [*outs], batched in axis 0
    branches = tuple(batch_jaxpr(b, size, batched, out_batched, axes=axes)[0] for b in p.branches)
    moved = in_front(size, rest, dims[1:])
    outs = bind(cond_p, index, *moved, params=replace(p, branches=branches))
    return outs, [0 if b else None for b in out_batched]


def _all_branches(p: CondParams, gated: Mask) -> Jaxpr:
    """All branches for one lane, one after the other, of which the one at the index counts.

    branches     : [*ins]        -> [*outs]
    all branches : [index, *ins] -> [*outs]
    """
    avals = p.branches[0].in_avals
    refs = tuple(isinstance(a, AbstractRef) for a in avals)
    guard = Guard(refs, tuple(r and g for r, g in zip(refs, gated, strict=True)))

    def run(index: Value, *args: Value) -> list[Value]:
        outs: list[Value] = []
        for k, branch in enumerate(p.branches):
            taken = equal(index, k)
            ins = [
                gate(taken, x) if g and not r else x
                for x, g, r in zip(args, gated, refs, strict=True)
            ]
            found = eval_predicated(taken, branch, ins, guard)
            pairs = zip(found, outs, strict=True)
            outs = [select(taken, new, old) for new, old in pairs] if k else found
        return outs

    return stage_closed(run, [INDEX, *avals], "cond")
