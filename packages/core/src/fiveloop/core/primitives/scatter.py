"""`scatter`: many blocks combined into an array at once; its rows. What it is called with stands in `gather`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fiveloop.core.array import Scalar, Value
from fiveloop.core.backend import hlo
from fiveloop.core.backend.hlo import IRValue
from fiveloop.core.dims import same_shape, size_of
from fiveloop.core.errors import RuleError
from fiveloop.core.ir.avals import Aval
from fiveloop.core.primitives.broadcast import (
    bdim_at,
    broadcast_in_dim,
    full,
    instantiate,
    move_axis,
    reshape,
    zeros_of,
)
from fiveloop.core.primitives.check import array_avals
from fiveloop.core.primitives.duplicates import is_first, product_of_others
from fiveloop.core.primitives.elementwise import add, bitwise_and, equal, mul, not_equal, select
from fiveloop.core.primitives.gather import (
    KINDS,
    GatherParams,
    Operand,
    ScatterParams,
    batched_dims,
    block_sizes,
    blocks_shape,
    check_blocks,
    gather,
    scatter,
    scatter_p,
)
from fiveloop.core.primitives.shape import iota
from fiveloop.core.rule_types import UndefinedPrimal, Zero
from fiveloop.core.rules import define, pure


def _scatter_aval(avals: Sequence[Aval], p: ScatterParams) -> list[Aval]:
    x, indices, updates = array_avals("scatter", avals, 3)
    if p.kind not in KINDS:
        raise ValueError(f"scatter: expected a kind in {KINDS}, got {p.kind!r}")
    if updates.dtype != x.dtype:
        raise TypeError(f"scatter: expected updates with the dtype of {x}, got {updates}")
    sizes = block_sizes(x, updates, p.dims)
    check_blocks("scatter", x, indices, p.dims, sizes)
    if not same_shape(blocks_shape(x, indices, p.dims, sizes), updates.shape):
        raise ValueError(f"scatter: updates {updates} do not fit {x} at {indices} under {p.dims}")
    return [x]


def _scatter_lower(ctx: Any, operands: Sequence[IRValue], p: ScatterParams) -> list[IRValue]:
    x, indices, updates = operands
    if not p.in_bounds and not p.drops:
        indices = _clamped(ctx, indices, p)
    out = hlo.scatter(
        ctx.b,
        x,
        indices,
        updates,
        update_window_dims=p.dims.window_dims,
        inserted_window_dims=p.dims.collapsed,
        input_batching_dims=p.dims.operand_batch,
        scatter_indices_batching_dims=p.dims.indices_batch,
        scatter_dims_to_operand_dims=p.dims.index_map,
        index_vector_dim=len(indices.shape) - 1,
        kind=p.kind,
        unique_indices=p.unique_indices,
        indices_are_sorted=p.indices_are_sorted,
    )
    return [out]


def _clamped(ctx: Any, indices: IRValue, p: ScatterParams) -> IRValue:
    """XLA leaves out blocks that do not fit; these are moved until they do, as reads are."""
    b, (x, _, updates) = ctx.b, ctx.avals_in
    sizes = block_sizes(x, updates, p.dims)
    last = np.asarray([max(0, x.shape[k] - sizes[k]) for k in p.dims.index_map], indices.dtype)
    rank = len(indices.shape)
    row = hlo.constant(b, last)
    high = hlo.broadcast_in_dim(b, row, indices.shape, (rank - 1,))
    return hlo.clamp(b, hlo.constant(b, 0, (), indices.dtype), indices, high)


def _gather_like(x: Aval, updates: Aval, p: ScatterParams) -> GatherParams:
    """The gather that reads the blocks that a scatter writes."""
    sizes = block_sizes(x, updates, p.dims)
    known = p.indices_are_sorted, p.unique_indices, p.in_bounds, p.drops
    return GatherParams(p.dims, sizes, *known)


def _scatter_jvp(
    primals: Sequence[Value], tangents: Sequence[Value | Zero], p: ScatterParams
) -> tuple[list[Value], list[Value | Zero]]:
    x, indices, updates = primals
    out = scatter(x, indices, updates, p)
    x_dot, _, updates_dot = tangents
    if p.kind in ("set", "add"):
        return [out], [scatter(instantiate(x_dot), indices, instantiate(updates_dot), p)]
    if p.kind == "mul":
        return [out], [_mul_tangent(primals, x_dot, updates_dot, p)]
    return [out], [_extremum_tangent(primals, out, x_dot, updates_dot, p)]


def _mul_tangent(
    primals: Sequence[Value], x_dot: Value | Zero, updates_dot: Value | Zero, p: ScatterParams
) -> Value:
    x, indices, updates = primals
    out = scatter(x_dot, indices, updates, p) if isinstance(x_dot, Value) else zeros_of(x.aval)
    if isinstance(updates_dot, Zero):
        return out
    slope = gather(x, indices, _gather_like(x.aval, updates.aval, p))
    if not p.unique_indices:
        slope = mul(slope, product_of_others(updates, _places(x, indices, updates, p)))
    return scatter(out, indices, mul(slope, updates_dot), replace(p, kind="add"))


def _places(x: Value, indices: Value, updates: Value, p: ScatterParams) -> Value:
    """For each element of the updates, the number, from 1 on, of the element that it goes to; 0 if there is none."""
    numbers = add(reshape(iota(np.int32, size_of(x.shape)), x.shape), full(x.shape, 1, np.int32))
    return gather(numbers, indices, _gather_like(x.aval, updates.aval, p))


def _extremum_tangent(
    primals: Sequence[Value],
    out: Value,
    x_dot: Value | Zero,
    updates_dot: Value | Zero,
    p: ScatterParams,
) -> Value:
    """The tangent of whatever won: the old element if it equals the result, else the first such update."""
    x, indices, updates = primals
    kept = select(equal(x, out), instantiate(x_dot), zeros_of(x.aval))
    if isinstance(updates_dot, Zero):
        return kept
    like = _gather_like(x.aval, updates.aval, p)
    wins = bitwise_and(
        equal(updates, gather(out, indices, like)),
        not_equal(gather(x, indices, like), gather(out, indices, like)),
    )
    if not p.unique_indices:
        wins = is_first(wins, _places(x, indices, updates, p))
    won = select(wins, updates_dot, zeros_of(updates.aval))
    return scatter(kept, indices, won, replace(p, kind="add"))


def _is_last(x: Value, indices: Value, updates: Value, p: ScatterParams) -> Value:
    """Which elements of the updates are the last that go to their places."""
    numbers = reshape(iota(np.int32, size_of(updates.shape)), updates.shape)
    board = broadcast_in_dim(Scalar(np.zeros((), np.int32)), x.shape, ())
    board = scatter(board, indices, numbers, replace(p, kind="set"))
    return equal(gather(board, indices, _gather_like(x.aval, updates.aval, p)), numbers)


def _scatter_transpose(
    cts: Sequence[Value | Zero], operands: Sequence[Operand], p: ScatterParams
) -> list[Value | Zero | None]:
    (ct,), (x, indices, updates) = cts, operands
    assert isinstance(ct, Value) and isinstance(indices, Value), (
        "unreachable: not linear in indices"
    )
    match p.kind:
        case "add":
            x_bar: Value | None = ct
            updates_bar = _read_blocks(ct, indices, updates, p)
        case "set":
            x_bar, updates_bar = _set_transpose(ct, indices, x, updates, p)
        case "mul":
            x_bar, updates_bar = _mul_transpose(ct, indices, x, updates, p)
        case _:
            raise RuleError(f"`scatter` with kind {p.kind!r} has no transpose: it is not linear")
    return [
        x_bar if isinstance(x, UndefinedPrimal) else None,
        None,
        updates_bar if isinstance(updates, UndefinedPrimal) else None,
    ]


def _read_blocks(ct: Value, indices: Value, updates: Operand, p: ScatterParams) -> Value | None:
    if isinstance(updates, Value):
        return None
    return gather(ct, indices, _gather_like(ct.aval, updates.aval, p))


def _set_transpose(
    ct: Value,
    indices: Value,
    x: Operand,
    updates: Operand,
    p: ScatterParams,
) -> tuple[Value | None, Value | None]:
    """What was overwritten gets nothing; of several updates of one element only the last gets its share."""
    x_bar = None
    if isinstance(x, UndefinedPrimal):
        x_bar = scatter(ct, indices, zeros_of(updates.aval), p)
    updates_bar = _read_blocks(ct, indices, updates, p)
    if updates_bar is not None and not p.unique_indices:
        last = _is_last(ct, indices, updates_bar, p)
        updates_bar = select(last, updates_bar, zeros_of(updates_bar.aval))
    return x_bar, updates_bar


def _mul_transpose(
    ct: Value,
    indices: Value,
    x: Operand,
    updates: Operand,
    p: ScatterParams,
) -> tuple[Value | None, Value | None]:
    if isinstance(updates, Value):
        return scatter(ct, indices, updates, p), None
    assert isinstance(x, Value), "unreachable: linear in one factor at a time"
    if not p.unique_indices:
        raise RuleError(
            "`scatter` with kind 'mul' has no transpose in its updates unless they are unique"
        )
    like = _gather_like(ct.aval, updates.aval, p)
    return None, mul(gather(ct, indices, like), gather(x, indices, like))


def _scatter_batch(
    size: int, operands: Sequence[Value], dims: Sequence[int | None], p: ScatterParams
) -> tuple[list[Value], list[int | None]]:
    (x, indices, updates), (d, i, u) = operands, dims
    x, updates = bdim_at(x, d, size, 0), bdim_at(updates, u, size, 0)
    indices = move_axis(indices, i, 0) if i is not None else indices
    p = replace(p, dims=batched_dims(p.dims, True, i is not None))
    if i is not None:
        p = replace(p, indices_are_sorted=False)
    return [scatter(x, indices, updates, p)], [0]


define(
    scatter_p,
    abstract_eval=pure(_scatter_aval),
    lower=_scatter_lower,
    jvp=_scatter_jvp,
    transpose=_scatter_transpose,
    batch=_scatter_batch,
)
