"""`addupdate`: add to a Ref at an index; where an index names an element twice, both shares count."""

from __future__ import annotations

from collections.abc import Sequence

from fiveloop.core import Value, ad, ir, prims, rules, trace
from fiveloop.state import discharge, effects, errors
from fiveloop.state.primitives import common


def addupdate_abstract_eval(avals: ir.Avals, p: common.IndexParams) -> ir.Typing:
    """No result; the Ref is accumulated into."""
    ref, value, *operands = avals
    element = common.element_aval(ref, p.indexer)
    prims.check_index("addupdate", ref, operands, p.indexer)
    common.check_value("addupdate", value, element)
    return [], frozenset([effects.AccumEffect(0)])


def addupdate_jvp(primals: ad.Values, tangents: ad.Tangents, p: common.IndexParams) -> ad.Duals:
    """Add the tangent to the tangent Ref at the same place."""
    _, _, *index = primals
    ref_dot, x_dot = tangents[:2]
    if isinstance(ref_dot, ad.Zero) and not isinstance(x_dot, ad.Zero):
        raise errors.not_differentiated("addupdate")
    trace.bind(common.addupdate_p, *primals, params=p)
    if not isinstance(ref_dot, ad.Zero) and not isinstance(x_dot, ad.Zero):
        trace.bind(common.addupdate_p, ref_dot, x_dot, *index, params=p)
    return [], []


def addupdate_transpose(
    cts: ad.Tangents,
    operands: Sequence[Value | ad.UndefinedPrimal | ad.Accumulator],
    p: common.IndexParams,
) -> ad.Cotangents:
    """The cotangent of what was added is the accumulator's element."""
    ref, x, *index = operands
    x_bar: ad.Tangent | None = None
    if isinstance(x, ad.UndefinedPrimal):
        x_bar = trace.bind1(common.get_p, common.accumulator(ref), *index, params=p)  # type: ignore[arg-type]  # an index is not linear
    return [None, x_bar, *[None] * len(index)]


def addupdate_batch(
    size: int, operands: ad.Values, dims: ad.BatchAxes, p: common.IndexParams
) -> ad.Batched:
    """Add each lane's share; into a Ref that is not batched, the sum of all shares."""
    params, shares = common.batched_shares(size, operands, dims, p, prims.MONOIDS["add"])
    trace.bind(common.addupdate_p, *shares, params=params)
    return [], []


def addupdate_discharge(
    ctx: discharge.DischargeContext, operands: discharge.Operands, p: common.IndexParams
) -> list[Value]:
    """Add to the contents."""
    cell, x, *index = operands
    ctx.accumulate(cell, p.indexer, index, x)  # type: ignore[arg-type]  # the first operand is the Ref, the others are values
    return []


rules.define(
    common.addupdate_p,
    abstract_eval=addupdate_abstract_eval,
    lower=rules.Refusal("it changes a Ref; discharge it first (`discharge_state`)"),
    jvp=addupdate_jvp,
    batch=addupdate_batch,
    transpose=addupdate_transpose,
)
discharge.define_discharge(common.addupdate_p, addupdate_discharge)
