"""Forward mode: one loop over the carried values followed by the tangents that may be nonzero."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fiveloop.core import ad, trace, transforms, util
from fiveloop.loops.common import body_with_dots, dots_behind
from fiveloop.loops.primitives.while_loop import WhileParams, parts, while_p


def while_jvp(primals: ad.Values, tangents: ad.Tangents, p: WhileParams) -> ad.Duals:
    """Loop once, over values and tangents; the condition is that of the values."""
    nonzero = _taken(p, _nonzero_in_body(p, transforms.nonzero_mask(tangents)))
    masks = parts(p, nonzero)
    dots = [transforms.instantiate(t) for t, nz in zip(tangents, nonzero, strict=True) if nz]
    counts, sizes = [sum(mask) for mask in masks], [p.num_consts, p.num_carry]
    # p.body : [*consts, *carry, *refs]                                         -> [*carry]
    # body   : [*consts, *const_dots, *carry, *carry_dots, *refs, *ref_dots]    -> [*carry, *carry_dots]
    params = replace(
        p,
        cond=body_with_dots(p.cond, 0, sizes, nonzero),
        body=body_with_dots(p.body, 0, sizes, nonzero, masks[1]),
        num_consts=p.num_consts + counts[0],
        kept=_kept_with_dots(p, counts),
        record=p.record.pushed(),
    )
    operands = dots_behind(sizes, nonzero, primals, dots)
    outs, rest = util.split_list(trace.bind(while_p, *operands, params=params), [p.num_carry])
    dots, cache = util.split_list(rest, [counts[1]])
    outs_dot = transforms.with_zeros(masks[1], dots, [x.aval for x in outs])
    # What is saved is for those who begin there; what they compute has a derivative without it.
    return [*outs, *cache], [*outs_dot, *map(transforms.zero_like, cache)]


def _kept_with_dots(p: WhileParams, counts: Sequence[int]) -> util.Mask:
    """Which values and Refs are saved on the way: no tangents."""
    if not p.kept:
        return ()
    carry, refs = util.split_list(p.kept, [p.num_carry])
    return (*carry, *[False] * counts[1], *refs, *[False] * counts[2])


def _nonzero_in_body(p: WhileParams, nonzero: util.Mask) -> util.Mask:
    """Which operands have a tangent in some step; only carried values gain one."""
    consts, carry, refs = parts(p, nonzero)

    def step(mask: util.Mask) -> util.Mask:
        return transforms.jvp_jaxpr(p.body, (*consts, *mask, *refs))[1]

    return (*consts, *util.fixpoint(step, carry, "the tangents of a while"), *refs)


def _taken(p: WhileParams, nonzero: util.Mask) -> util.Mask:
    """The tangents that some step uses; the tangent of a Ref that is only compared with is left out."""
    carry = parts(p, nonzero)[1]
    num = len(nonzero)
    # jaxpr_jvp : [*ins, *nonzero in_dots]
    pairs = [
        transforms.jvp_jaxpr(p.body, nonzero, carry)[0],
        transforms.jvp_jaxpr(p.cond, nonzero)[0],
    ]
    used = [transforms.dce(j, (True,) * len(j.outvars), keep_ins=False)[1][num:] for j in pairs]
    dots = map(any, zip(*used, strict=True))
    carried = range(p.num_consts, p.first_ref)
    return tuple(nz and (next(dots) or k in carried) for k, nz in enumerate(nonzero))
