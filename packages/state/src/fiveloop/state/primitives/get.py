"""`get`: read a Ref at an index."""

from __future__ import annotations

from collections.abc import Sequence

from fiveloop.core import Value, ad, ir, prims, rules, trace, transforms
from fiveloop.state import discharge, effects
from fiveloop.state.primitives import common


def get_abstract_eval(avals: ir.Avals, p: common.IndexParams) -> ir.Typing:
    """The element's type; the Ref is read."""
    prims.check_count("get", avals, 1, or_more=True)
    ref, *operands = avals
    element = common.element_aval(ref, p.indexer)
    prims.check_index("get", ref, operands, p.indexer)
    return [element], frozenset([effects.ReadEffect(0)])


def get_jvp(primals: ad.Values, tangents: ad.Tangents, p: common.IndexParams) -> ad.Duals:
    """Read the tangent Ref at the same place."""
    _, *operands = primals
    out = trace.bind1(common.get_p, *primals, params=p)
    ref_dot = tangents[0]
    if isinstance(ref_dot, ad.Zero):
        return [out], [transforms.zero_like(out)]
    return [out], [trace.bind1(common.get_p, ref_dot, *operands, params=p)]


def get_transpose(
    cts: ad.Tangents,
    operands: Sequence[Value | ad.UndefinedPrimal | ad.Accumulator],
    p: common.IndexParams,
) -> ad.Cotangents:
    """Add the cotangent into the accumulator at the same place."""
    ref, *index = operands
    (ct,) = cts
    if not isinstance(ct, ad.Zero):
        trace.bind(common.addupdate_p, common.accumulator(ref), ct, *index, params=p)  # type: ignore[arg-type]  # an index is not linear
    return [None] * len(operands)


def get_batch(
    size: int, operands: ad.Values, dims: ad.BatchAxes, p: common.IndexParams
) -> ad.Batched:
    """Read each lane at its own index, from its own array if the Ref is batched."""
    ref, *index = operands
    batched, moved, dim = common.batched_index(p, index, dims[1:], dims[0], size)
    return trace.bind(common.get_p, ref, *moved, params=batched), [dim]


def get_discharge(
    ctx: discharge.DischargeContext, operands: discharge.Operands, p: common.IndexParams
) -> list[Value]:
    """Read the contents."""
    cell, *index = operands
    return [ctx.read(cell, p.indexer, index)]  # type: ignore[arg-type]  # the first operand is the Ref


rules.define(
    common.get_p,
    abstract_eval=get_abstract_eval,
    lower=rules.Refusal("it reads a Ref; discharge it first (`discharge_state`)"),
    jvp=get_jvp,
    batch=get_batch,
    transpose=get_transpose,
)
discharge.define_discharge(common.get_p, get_discharge)
