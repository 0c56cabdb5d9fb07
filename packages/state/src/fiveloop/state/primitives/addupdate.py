"""`addupdate`: add to a Ref at an index; where an index names an element twice, both shares count."""

from __future__ import annotations

from collections.abc import Sequence

from fiveloop.core import Value
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
)
from fiveloop.core.rules import Tangent
from fiveloop.state.discharge.table import Cell, DischargeContext, define_discharge
from fiveloop.state.effects import AccumEffect
from fiveloop.state.errors import not_differentiated
from fiveloop.state.monoids import MONOIDS
from fiveloop.state.primitives.common import (
    IndexParams,
    accumulator,
    addupdate_p,
    batched_shares,
    check_index,
    check_value,
    element_aval,
    get_p,
)


def addupdate_abstract_eval(avals: Sequence[Aval], p: IndexParams) -> tuple[list[Aval], Effects]:
    """No result; the Ref is accumulated into."""
    ref, value, *operands = avals
    element = element_aval(ref, p.indexer)
    check_index("addupdate", ref, operands, p.indexer)
    check_value("addupdate", value, element)
    return [], frozenset([AccumEffect(0)])


def addupdate_jvp(
    primals: Sequence[Value], tangents: Sequence[Tangent], p: IndexParams
) -> tuple[list[Value], list[Tangent]]:
    """Add the tangent to the tangent Ref at the same place."""
    _, _, *index = primals
    ref_dot, x_dot = tangents[:2]
    if isinstance(ref_dot, Zero) and not isinstance(x_dot, Zero):
        raise not_differentiated("addupdate")
    bind(addupdate_p, *primals, params=p)
    if not isinstance(ref_dot, Zero) and not isinstance(x_dot, Zero):
        bind(addupdate_p, ref_dot, x_dot, *index, params=p)
    return [], []


def addupdate_transpose(
    cts: Sequence[Tangent],
    operands: Sequence[Value | UndefinedPrimal | Accumulator],
    p: IndexParams,
) -> list[Tangent | None]:
    """The cotangent of what was added is the accumulator's element."""
    ref, x, *index = operands
    x_bar: Tangent | None = None
    if isinstance(x, UndefinedPrimal):
        x_bar = bind1(get_p, accumulator(ref), *index, params=p)  # type: ignore[arg-type]  # an index is not linear
    return [None, x_bar, *[None] * len(index)]


def addupdate_batch(
    size: int, operands: Sequence[Value], dims: Sequence[int | None], p: IndexParams
) -> tuple[list[Value], list[int | None]]:
    """Add each lane's share; into a Ref that is not batched, the sum of all shares."""
    params, shares = batched_shares(size, operands, dims, p, MONOIDS["add"])
    bind(addupdate_p, *shares, params=params)
    return [], []


def addupdate_discharge(
    ctx: DischargeContext, operands: Sequence[Value | Cell], p: IndexParams
) -> list[Value]:
    """Add to the contents."""
    cell, x, *index = operands
    ctx.accumulate(cell, p.indexer, index, x)  # type: ignore[arg-type]  # the first operand is the Ref, the others are values
    return []


define(
    addupdate_p,
    abstract_eval=addupdate_abstract_eval,
    lower=Refusal("it changes a Ref; discharge it first (`discharge_state`)"),
    jvp=addupdate_jvp,
    batch=addupdate_batch,
    transpose=addupdate_transpose,
)
define_discharge(addupdate_p, addupdate_discharge)
