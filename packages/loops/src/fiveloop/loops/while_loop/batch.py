"""Batching: one loop for all lanes, until the last lane has ended; a lane that has ended does not change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fiveloop.core import Jaxpr, Value, ad, ir, prims, trace, transforms, util
from fiveloop.loops.primitives.while_loop import WhileParams, parts, while_p
from fiveloop.state import AbstractRef, predicate
from fiveloop.state.checks.insert import insert_for_lanes


def while_batch(size: int, operands: ad.Values, dims: ad.BatchAxes, p: WhileParams) -> ad.Batched:
    """Loop for as long as the condition holds, or as it holds in some lane."""
    axes = transforms.axes_in_front(operands, dims)
    batched = _batched_in_body(size, p, tuple(d is not None for d in dims), axes)
    cond, (lanes_differ,) = transforms.batch_jaxpr(p.cond, size, batched, axes=axes)
    if lanes_differ:
        return _until_all_are_done(size, operands, dims, p)
    carry = parts(p, batched)[1]
    # body : [*consts, *carry, *refs], batched in axis 0 -> [*carry]
    body, _ = transforms.batch_jaxpr(p.body, size, batched, carry, axes=axes)
    moved = transforms.in_front(size, operands, dims, batched)
    outs = trace.bind(while_p, *moved, params=replace(p, cond=cond, body=body))
    return outs, [*[0 if b else None for b in carry], *_cache_dims(p, batched, axes)]


def _cache_dims(p: WhileParams, batched: util.Mask, axes: Sequence[int]) -> list[int | None]:
    """The batch axes of what is saved on the way: behind the slots."""
    if not any(p.kept):
        return []
    given = zip(p.kept, batched[p.num_consts :], axes[p.num_consts :], strict=True)
    return [None, None, *[1 + axis if b else None for keep, b, axis in given if keep]]


def _batched_in_body(
    size: int, p: WhileParams, batched: util.Mask, axes: tuple[int, ...]
) -> util.Mask:
    """Which operands are batched in some step; only carried values become so."""
    consts, carry, refs = parts(p, batched)

    def step(mask: util.Mask) -> util.Mask:
        return transforms.batch_jaxpr(p.body, size, (*consts, *mask, *refs), axes=axes)[1]

    return (*consts, *util.fixpoint(step, carry, "the batched values of a while"), *refs)


def _until_all_are_done(
    size: int, operands: ad.Values, dims: ad.BatchAxes, p: WhileParams
) -> ad.Batched:
    """Carry along which lanes go on.

    step : [going on, *consts, *carry, *refs] -> [going on, *carry]
    body : [*consts, going on, *carry, *refs] -> [going on, *carry]
    """
    p = replace(p, cond=insert_for_lanes(p.cond), body=insert_for_lanes(p.body))
    dims_known = tuple(d is not None for d in dims)
    consts, carry, refs = parts(p, dims_known)
    axes = (0, *transforms.axes_in_front(operands, dims))

    def grow(mask: util.Mask) -> util.Mask:
        step, batched = _masked_step(p, False), (True, *consts, *mask, *refs)
        return transforms.batch_jaxpr(step, size, batched, axes=axes)[1][1:]

    carry = list(util.fixpoint(grow, carry, "the batched values of a while"))
    batched = (True, *consts, *carry, *refs)
    step = _masked_step(p, predicate.shares(p.body, batched[1:]))
    stepped, _ = transforms.batch_jaxpr(step, size, batched, (True, *carry), axes=axes)
    going, *binders = stepped.invars
    first, rest = util.split_list(binders, [p.num_consts])
    body = stepped.replace(invars=[*first, going, *rest])
    cond = trace.stage_closed(
        lambda *args: [prims.reduce_or(args[p.num_consts])],
        [v.aval for v in body.invars],
        p.cond.name,
    )
    asks = lambda *xs: transforms.eval_jaxpr(p.cond, xs)
    (pred,), (dim,) = transforms.batch_flat(asks, size, operands, dims)
    pred = transforms.move_batch(pred, size, dim)  # which lanes make a first step
    moved = transforms.in_front(size, operands, dims, batched[1:])
    args = [*moved[: p.num_consts], pred, *moved[p.num_consts :]]
    kept = (False, *p.kept) if any(p.kept) else ()
    outs = trace.bind(while_p, *args, params=replace(p, cond=cond, body=body, kept=kept))
    dims = [0 if b else None for b in carry]
    return outs[1:], [*dims, *_cache_dims(p, batched[1:], axes[1:])]


@ir.once_per(lambda p, shares: (p.body, p, shares))
def _masked_step(p: WhileParams, shares: bool) -> Jaxpr:
    """A step of one lane, and whether it goes on after that, if it went on until now.

    `shares` says whether a derivative may flow from it to what the lanes share.
    """
    avals = p.body.in_avals
    refs = tuple(isinstance(a, AbstractRef) for a in avals)
    guard = predicate.Guard(refs, (True,) * len(refs), shares, late=True)
    same = [v is out for v, out in zip(parts(p, p.body.invars)[1], p.body.outvars, strict=True)]

    def run(going: Value, *args: Value) -> list[Value]:
        consts, carry, refs = parts(p, args)
        found = predicate.eval_predicated(going, p.body, args, guard)
        after = [
            old if s else prims.select(going, new, old)
            for new, old, s in zip(found, carry, same, strict=True)
        ]
        (holds,) = predicate.eval_predicated(going, p.cond, [*consts, *after, *refs], guard)
        return [prims.bitwise_and(going, holds), *after]

    hints = ["going on", *p.body.hints]
    return trace.stage_closed(run, [predicate.PREDICATE, *avals], p.body.name, hints)
