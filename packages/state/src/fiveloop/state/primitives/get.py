"""`get`: read a Ref at an index."""

from __future__ import annotations

from collections.abc import Sequence

from fiveloop.core import Value, ir, prims, rules, trace, transforms
from fiveloop.state import discharge, effects
from fiveloop.state.primitives import common


def get_abstract_eval(
    avals: Sequence[ir.Aval], p: common.IndexParams
) -> tuple[list[ir.Aval], ir.Effects]:
    """The element's type; the Ref is read."""
    prims.check_count("get", avals, 1, or_more=True)
    ref, *operands = avals
    element = common.element_aval(ref, p.indexer)
    common.check_index("get", ref, operands, p.indexer)
    return [element], frozenset([effects.ReadEffect(0)])


def get_jvp(
    primals: Sequence[Value], tangents: Sequence[rules.Tangent], p: common.IndexParams
) -> tuple[list[Value], list[rules.Tangent]]:
    """Read the tangent Ref at the same place."""
    _, *operands = primals
    out = trace.bind1(common.get_p, *primals, params=p)
    ref_dot = tangents[0]
    if isinstance(ref_dot, rules.Zero):
        return [out], [transforms.zero_like(out)]
    return [out], [trace.bind1(common.get_p, ref_dot, *operands, params=p)]


def get_transpose(
    cts: Sequence[rules.Tangent],
    operands: Sequence[Value | rules.UndefinedPrimal | rules.Accumulator],
    p: common.IndexParams,
) -> list[rules.Tangent | None]:
    """Add the cotangent into the accumulator at the same place."""
    ref, *index = operands
    (ct,) = cts
    if not isinstance(ct, rules.Zero):
        trace.bind(common.addupdate_p, common.accumulator(ref), ct, *index, params=p)  # type: ignore[arg-type]  # an index is not linear
    return [None] * len(operands)


def get_batch(
    size: int, operands: Sequence[Value], dims: Sequence[int | None], p: common.IndexParams
) -> tuple[list[Value], list[int | None]]:
    """Read each lane at its own index, from its own array if the Ref is batched."""
    ref, *index = operands
    batched, moved = common.batched_index(p, index, dims[1:], dims[0], size)
    return trace.bind(common.get_p, ref, *moved, params=batched), [0]


def get_discharge(
    ctx: discharge.DischargeContext,
    operands: Sequence[Value | discharge.Cell],
    p: common.IndexParams,
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
