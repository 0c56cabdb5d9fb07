"""`swap`: write to a Ref at an index, and give the old element if it is wanted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fiveloop.core import Value
from fiveloop.core.engine import check_count, equal
from fiveloop.core.extend import (
    Accumulator,
    Aval,
    Effects,
    Eqn,
    Refusal,
    ShapedArray,
    UndefinedPrimal,
    Zero,
    bind,
    bind1,
    convert,
    define,
    instantiate,
    iota,
    move_batch,
    new_eqn,
    reshape,
    select,
    size_of,
    zero_like,
    zeros_of,
)
from fiveloop.state.discharge.phases import names_each_once
from fiveloop.state.discharge.table import Cell, DischargeContext, define_discharge
from fiveloop.state.effects import ReadEffect, WriteEffect
from fiveloop.state.errors import not_batched, not_differentiated
from fiveloop.state.primitives.common import (
    IndexParams,
    SwapParams,
    Tangent,
    accumulator,
    addupdate_p,
    batched_index,
    check_index,
    check_value,
    element_aval,
    get_p,
    swap_p,
)
from fiveloop.state.primitives.lifetime import NewRefParams, new_ref_p


def swap_abstract_eval(avals: Sequence[Aval], p: SwapParams) -> tuple[list[Aval], Effects]:
    """The old element's type, if it is wanted; the Ref is written."""
    check_count("swap", avals, 2, or_more=True)
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
    if isinstance(ref_dot, Zero) and not isinstance(x_dot, Zero):
        raise not_differentiated("swap")
    outs = bind(swap_p, *primals, params=p)
    if isinstance(ref_dot, Zero):
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
    places: list[Value] = [i for i in index if isinstance(i, Value)]  # an index is not linear
    if names_each_once(p.indexer):
        outs = bind(swap_p, acc, instantiate(ct), *places, params=replace(p, returns_old=wanted))
    else:
        outs = [_last_writers(acc, places, p)] if wanted else []
        _write(acc, instantiate(Zero(element)), places, p)
        if not isinstance(ct, Zero):
            bind(addupdate_p, acc, ct, *places, params=IndexParams(p.indexer))
    return [None, outs[0] if wanted else None, *[None] * len(index)]


def _last_writers(acc: Value, places: Sequence[Value], p: SwapParams) -> Value:
    """What the accumulator holds, for those that wrote an element last; zero for those that were overwritten."""
    read = IndexParams(p.indexer)
    cts = bind1(get_p, acc, *places, params=read)
    # Each writer leaves its number: whoever finds its own was the last. Float accumulators hold numbers exactly
    # up to a size; beyond that, a board of integers is used.
    count = size_of(cts.shape)
    board = acc if count <= _largest_exact(acc) else _new_board(acc)
    numbers = convert(reshape(iota(np.int32, count), cts.shape), board.dtype)
    _write(board, numbers, places, p)
    found = bind1(get_p, board, *places, params=read)
    return select(equal(found, numbers), cts, zeros_of(cts.aval))


def _largest_exact(ref: Value) -> int:
    """Up to which integer all are exact in the dtype of a Ref: by its size, as bfloat16 has the least for its own."""
    dtype = ref.dtype
    bytes_of_real = dtype.itemsize // (2 if dtype.kind == "c" else 1)
    return {2: 2**8, 4: 2**24, 8: 2**53}.get(bytes_of_real, 0) if ref.aval.differentiable else 0


def _new_board(ref: Value) -> Value:
    """A Ref of integers, of the shape of another."""
    return bind1(new_ref_p, zeros_of(ShapedArray(ref.shape, np.int32)), params=NewRefParams())


def _write(ref: Value, x: Value, places: Sequence[Value], p: SwapParams) -> None:
    bind(swap_p, ref, x, *places, params=replace(p, returns_old=False))


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


def swap_discharge(
    ctx: DischargeContext, operands: Sequence[Value | Cell], p: SwapParams
) -> list[Value]:
    """Read the contents if the old element is wanted, then write them."""
    cell, x, *index = operands
    old = [ctx.read(cell, p.indexer, index)] if p.returns_old else []  # type: ignore[arg-type]
    with ctx.holding(old):
        ctx.write(cell, p.indexer, index, x)  # type: ignore[arg-type]  # the first operand is the Ref, the others are values
    return [ctx.latest(value) for value in old]


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
