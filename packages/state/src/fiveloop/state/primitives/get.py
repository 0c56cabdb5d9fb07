"""`get`: read a Ref at an index."""

from __future__ import annotations

from collections.abc import Sequence

from fiveloop.core import Value
from fiveloop.core.engine import check_count
from fiveloop.core.extend import (
    Accumulator,
    Aval,
    Effects,
    Refusal,
    UndefinedPrimal,
    Zero,
    bind,
    bind1,
    define,
    zero_like,
)
from fiveloop.state.discharge.table import Cell, DischargeContext, define_discharge
from fiveloop.state.effects import ReadEffect
from fiveloop.state.primitives.common import (
    IndexParams,
    Tangent,
    accumulator,
    addupdate_p,
    batched_index,
    check_index,
    element_aval,
    get_p,
)


def get_abstract_eval(avals: Sequence[Aval], p: IndexParams) -> tuple[list[Aval], Effects]:
    """The element's type; the Ref is read."""
    check_count("get", avals, 1, or_more=True)
    ref, *operands = avals
    element = element_aval(ref, p.indexer)
    check_index("get", ref, operands, p.indexer)
    return [element], frozenset([ReadEffect(0)])


def get_jvp(
    primals: Sequence[Value], tangents: Sequence[Tangent], p: IndexParams
) -> tuple[list[Value], list[Tangent]]:
    """Read the tangent Ref at the same place."""
    _, *operands = primals
    out = bind1(get_p, *primals, params=p)
    ref_dot = tangents[0]
    if isinstance(ref_dot, Zero):
        return [out], [zero_like(out)]
    return [out], [bind1(get_p, ref_dot, *operands, params=p)]


def get_transpose(
    cts: Sequence[Tangent],
    operands: Sequence[Value | UndefinedPrimal | Accumulator],
    p: IndexParams,
) -> list[Tangent | None]:
    """Add the cotangent into the accumulator at the same place."""
    ref, *index = operands
    (ct,) = cts
    if not isinstance(ct, Zero):
        bind(addupdate_p, accumulator(ref), ct, *index, params=p)  # type: ignore[arg-type]  # an index is not linear
    return [None] * len(operands)


def get_batch(
    size: int, operands: Sequence[Value], dims: Sequence[int | None], p: IndexParams
) -> tuple[list[Value], list[int | None]]:
    """Read each lane at its own index, from its own array if the Ref is batched."""
    ref, *index = operands
    batched, moved = batched_index(p, index, dims[1:], dims[0], size)
    return bind(get_p, ref, *moved, params=batched), [0]


def get_discharge(
    ctx: DischargeContext, operands: Sequence[Value | Cell], p: IndexParams
) -> list[Value]:
    """Read the contents."""
    cell, *index = operands
    return [ctx.read(cell, p.indexer, index)]  # type: ignore[arg-type]  # the first operand is the Ref


define(
    get_p,
    abstract_eval=get_abstract_eval,
    lower=Refusal("it reads a Ref; discharge it first (`discharge_state`)"),
    jvp=get_jvp,
    batch=get_batch,
    transpose=get_transpose,
)
define_discharge(get_p, get_discharge)
