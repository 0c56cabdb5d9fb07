"""`swap`: write to a Ref at an index, and give the old element if it is wanted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fiveloop.core import (
    Accumulator,
    Aval,
    Effects,
    Eqn,
    Refusal,
    UndefinedPrimal,
    Value,
    Zero,
    bind,
    define,
    instantiate,
    move_batch,
    new_eqn,
    zero_like,
)
from fiveloop.state.discharge.table import Cell, DischargeContext, define_discharge
from fiveloop.state.effects import ReadEffect, WriteEffect
from fiveloop.state.errors import not_batched, not_differentiated
from fiveloop.state.primitives.common import (
    SwapParams,
    Tangent,
    accumulator,
    batched_index,
    check_index,
    check_value,
    element_aval,
    swap_p,
)


def swap_abstract_eval(avals: Sequence[Aval], p: SwapParams) -> tuple[list[Aval], Effects]:
    """The old element's type, if it is wanted; the Ref is written."""
    ref, value, *operands = avals
    element = element_aval(ref, p.indexer)
    check_index("swap", ref, operands, p.indexer)
    check_value("swap", value, element)
    if p.returns_old:
        return [element], frozenset([ReadEffect(0), WriteEffect(0)])
    return [], frozenset([WriteEffect(0)])


def swap_jvp(
    primals: Sequence[Value], tangents: Sequence[Tangent], p: SwapParams
) -> tuple[list[Value], list[Tangent]]:
    """Swap the tangent into the tangent Ref at the same place."""
    _, _, *index = primals
    ref_dot, x_dot = tangents[:2]
    outs = bind(swap_p, *primals, params=p)
    if isinstance(ref_dot, Zero):
        if not isinstance(x_dot, Zero):
            raise not_differentiated("swap")
        return outs, [zero_like(out) for out in outs]
    return outs, list(bind(swap_p, ref_dot, instantiate(x_dot), *index, params=p))


def swap_transpose(
    cts: Sequence[Tangent], operands: Sequence[Value | UndefinedPrimal | Accumulator], p: SwapParams
) -> list[Tangent | None]:
    """Swap the cotangent of the old element into the accumulator; out comes that of the new one."""
    ref, x, *index = operands
    acc = accumulator(ref)
    element = element_aval(acc.aval, p.indexer)
    ct = cts[0] if p.returns_old else Zero(element)
    wanted = isinstance(x, UndefinedPrimal)
    outs = bind(swap_p, acc, instantiate(ct), *index, params=replace(p, returns_old=wanted))  # type: ignore[arg-type]
    return [None, outs[0] if wanted else None, *[None] * len(index)]


def swap_batch(
    size: int, operands: Sequence[Value], dims: Sequence[int | None], p: SwapParams
) -> tuple[list[Value], list[int | None]]:
    """Swap each lane's element in its own array; a Ref that is not batched cannot hold a batch of values."""
    ref, x, *index = operands
    ref_dim, x_dim, *index_dims = dims
    if ref_dim is None:
        raise not_batched("swap")
    batched, moved = batched_index(p, index, index_dims, ref_dim, size)
    new = move_batch(x, size, x_dim)
    outs = bind(swap_p, ref, new, *moved, params=batched)
    return outs, [0] * len(outs)


def swap_dce(used: Sequence[bool], eqn: Eqn) -> tuple[list[bool], Eqn | None]:
    """If the old element is not used, only write."""
    if eqn.params.returns_old and not used[0]:
        eqn = new_eqn(swap_p, eqn.invars, replace(eqn.params, returns_old=False), (), eqn.source)
    return [True] * len(eqn.invars), eqn


def swap_discharge(ctx: DischargeContext, operands: Sequence[Value | Cell], p: SwapParams) -> list[Value]:
    """Read the contents if the old element is wanted, then write them."""
    cell, x, *index = operands
    old = [ctx.read(cell, p.indexer, index)] if p.returns_old else []  # type: ignore[arg-type]
    ctx.write(cell, p.indexer, index, x)  # type: ignore[arg-type]  # the first operand is the Ref, the others are values
    return old


define(
    swap_p,
    abstract_eval=swap_abstract_eval,
    lower=Refusal("it changes a Ref; discharge it first (`discharge_state`)"),
    jvp=swap_jvp,
    batch=swap_batch,
    transpose=swap_transpose,
    dce=swap_dce,
)
define_discharge(swap_p, swap_discharge)
