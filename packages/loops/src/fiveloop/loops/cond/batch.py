"""Batching: with one index for all lanes, a cond of batched branches; with one index per lane, all branches.

In the second case the branches that a lane has not chosen have no effect on it: its results are selected, no Ref of it
is written there, and no cotangent comes back from there, not even a NaN: each of the lane's own values has a gate, and
where a derivative may flow to arrays that lanes share, the lane `follow`s a lane that has chosen the branch. The module
`lanes` has the other forms, in which a lane runs only its own branch.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fiveloop.core import Jaxpr, Value, ad, ir, prims, trace, transforms, util
from fiveloop.core.closed_call import call_batch
from fiveloop.loops.cond import lanes
from fiveloop.loops.primitives.cond import INDEX, CondParams, cond_p
from fiveloop.state import AbstractRef, predicate
from fiveloop.state.checks.insert import insert_for_lanes


def cond_batch(size: int, operands: ad.Values, dims: ad.BatchAxes, p: CondParams) -> ad.Batched:
    """Choose once for all lanes if they choose alike, else for each."""
    if dims[0] is None:
        return call_batch(cond_p, size, operands, dims, p)
    p = replace(p, branches=tuple(map(insert_for_lanes, p.branches)))
    if p.vmap != "select" and size:
        lanes.check_axes(size, p)
        if p.vmap == "serial" or lanes.groups_pay(dims, p):
            run = _in_groups if p.vmap == "group" else lanes.in_series
            outs = run(size, operands, dims, p)
            return outs, [0] * len(outs)
    return _for_all(size, operands, dims, p)


def _for_all(size: int, operands: ad.Values, dims: ad.BatchAxes, p: CondParams) -> ad.Batched:
    """All branches for all lanes."""
    jaxpr = _all_branches(p, tuple(d is not None for d in dims[1:]))
    return transforms.batch_flat(lambda *xs: transforms.eval_jaxpr(jaxpr, xs), size, operands, dims)


def _in_groups(size: int, operands: ad.Values, dims: ad.BatchAxes, p: CondParams) -> list[Value]:
    """The results of all lanes, in axis 0; those of branches that are not worth it are not put in groups."""
    dear = lanes.dear_branches(dims, p)
    if all(dear) or not any(dear):
        return lanes.in_groups(size, operands, dims, p)
    index, *rest = operands
    cheap = [not d for d in dear]
    apart = replace(p, branches=tuple(util.select_by(dear, p.branches)))
    others = replace(p, branches=tuple(util.select_by(cheap, p.branches)))
    placed = lanes.in_groups(
        size, [_number_among(dear, index), *rest], dims, apart, all_take_one=False
    )
    found = transforms.in_front(
        size, *_for_all(size, [_number_among(cheap, index), *rest], dims, others)
    )
    is_dear = _number_among(dear, index) < sum(dear)
    return [
        prims.select(prims.broadcast_to(is_dear.reshape(-1, *[1] * (x.ndim - 1)), x.shape), x, y)
        for x, y in zip(placed, found, strict=True)
    ]


def _number_among(some: util.Mask | list[bool], index: Value) -> Value:
    """Which one of some branches those at an index are; their number if it is not among them."""
    places = [k for k, is_one in enumerate(some) if is_one]
    found = prims.full(index.shape, len(places), np.int32)
    for number, place in enumerate(places):
        found = prims.select(prims.equal(index, place), np.int32(number), found)
    return found


@ir.once_per(lambda p, batched: (p.branches[0], p, batched))
def _all_branches(p: CondParams, batched: util.Mask) -> Jaxpr:
    """All branches for one lane, one after the other; only the branch at the index counts.

    branches     : [*ins]        -> [*outs]
    all branches : [index, *ins] -> [*outs]
    """
    avals = p.branches[0].in_avals

    def run(index: Value, *args: Value) -> list[Value]:
        outs: list[Value] = []
        for k, branch in enumerate(p.branches):
            taken = prims.equal(index, k)
            found = _on_condition(taken, branch, args, batched)
            pairs = zip(found, outs, strict=True)
            outs = [prims.select(taken, new, old) for new, old in pairs] if k else found
        return outs

    return trace.stage_closed(run, [INDEX, *avals], "cond")


def _on_condition(taken: Value, branch: Jaxpr, args: ad.Values, batched: util.Mask) -> list[Value]:
    """A branch for one lane, to whose arguments no derivative flows if it is not taken."""
    refs = tuple(isinstance(a, AbstractRef) for a in branch.in_avals)
    # A scalar that lanes share is made one a lane by its gate; an array would cost too much.
    gated = tuple(b or not a.shape for a, b in zip(branch.in_avals, batched, strict=True))
    shares = predicate.shares(branch, gated)
    guard = predicate.Guard(refs, tuple(r and g for r, g in zip(refs, gated, strict=True)), shares)
    used = ir.used_by(branch.eqns, branch.outvars)
    plain = [r or v not in used for r, v in zip(refs, branch.invars, strict=True)]
    ins: list[Value] = []
    for x, is_plain, b, g in zip(args, plain, batched, gated, strict=True):
        if is_plain:
            ins.append(x)
        elif shares and (b or not g):
            ins.append(predicate.follow(taken, x))
        else:
            ins.append(predicate.gate(taken, x) if g else x)
    return predicate.eval_predicated(taken, branch, ins, guard)
