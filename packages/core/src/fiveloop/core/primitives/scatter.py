"""`scatter`: many blocks combined into an array at once; its rows. What it is called with stands in `gather`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fiveloop.core import ad, arrays, errors, ir, rules
from fiveloop.core.arrays import Value
from fiveloop.core.backend import hlo
from fiveloop.core.primitives import broadcast, check, elementwise, gather, monoids, shape


def _scatter_aval(avals: ir.Avals, p: gather.ScatterParams) -> list[ir.Aval]:
    x, indices, updates = check.array_avals("scatter", avals, 3)
    if p.kind not in gather.KINDS:
        raise ValueError(f"scatter: expected a kind in {gather.KINDS}, got {p.kind!r}")
    if updates.dtype != x.dtype:
        raise TypeError(f"scatter: expected updates with the dtype of {x}, got {updates}")
    sizes = gather.block_sizes(x, updates, p.dims)
    gather.check_blocks("scatter", x, indices, p.dims, sizes)
    if not ir.same_shape(gather.blocks_shape(x, indices, p.dims, sizes), updates.shape):
        raise ValueError(f"scatter: updates {updates} do not fit {x} at {indices} under {p.dims}")
    return [x]


def _scatter_lower(ctx: Any, operands: hlo.IRValues, p: gather.ScatterParams) -> list[hlo.IRValue]:
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


def _clamped(ctx: Any, indices: hlo.IRValue, p: gather.ScatterParams) -> hlo.IRValue:
    """XLA leaves out blocks that do not fit; these are moved until they do, as reads are."""
    b, (x, _, updates) = ctx.b, ctx.avals_in
    sizes = gather.block_sizes(x, updates, p.dims)
    last = np.asarray([max(0, x.shape[k] - sizes[k]) for k in p.dims.index_map], indices.dtype)
    rank = len(indices.shape)
    row = hlo.constant(b, last)
    high = hlo.broadcast_in_dim(b, row, indices.shape, (rank - 1,))
    return hlo.clamp(b, hlo.constant(b, 0, (), indices.dtype), indices, high)


def _gather_like(x: ir.Aval, updates: ir.Aval, p: gather.ScatterParams) -> gather.GatherParams:
    """The gather that reads the blocks that a scatter writes."""
    sizes = gather.block_sizes(x, updates, p.dims)
    known = p.indices_are_sorted, p.unique_indices, p.in_bounds, p.drops
    return gather.GatherParams(p.dims, sizes, *known)


def _scatter_jvp(primals: ad.Values, tangents: ad.Tangents, p: gather.ScatterParams) -> ad.Duals:
    x, indices, updates = primals
    out = gather.scatter(x, indices, updates, p)
    x_dot, _, updates_dot = tangents
    if p.kind in ("set", "add"):
        return [out], [
            gather.scatter(
                broadcast.instantiate(x_dot), indices, broadcast.instantiate(updates_dot), p
            )
        ]
    if p.kind == "mul":
        return [out], [_mul_tangent(primals, x_dot, updates_dot, p)]
    return [out], [_extremum_tangent(primals, out, x_dot, updates_dot, p)]


def _mul_tangent(
    primals: ad.Values,
    x_dot: Value | ad.Zero,
    updates_dot: Value | ad.Zero,
    p: gather.ScatterParams,
) -> Value:
    x, indices, updates = primals
    out = (
        gather.scatter(x_dot, indices, updates, p)
        if isinstance(x_dot, Value)
        else broadcast.zeros_of(x.aval)
    )
    if isinstance(updates_dot, ad.Zero):
        return out
    old = gather.gather(x, indices, _gather_like(x.aval, updates.aval, p))
    slope = monoids.factor_of_share(old, updates, _places(x, indices, updates, p))
    return gather.scatter(out, indices, elementwise.mul(slope, updates_dot), replace(p, kind="add"))


def _places(x: Value, indices: Value, updates: Value, p: gather.ScatterParams) -> Value | None:
    """For each element of the updates, the number, from 1 on, of the element that it goes to; 0 if there is none.

    None if no two of them go to one.
    """
    if p.unique_indices:
        return None
    numbers = elementwise.add(
        broadcast.reshape(shape.iota(np.int32, ir.size_of(x.shape)), x.shape),
        broadcast.full(x.shape, 1, np.int32),
    )
    return gather.gather(numbers, indices, _gather_like(x.aval, updates.aval, p))


def _extremum_tangent(
    primals: ad.Values,
    out: Value,
    x_dot: Value | ad.Zero,
    updates_dot: Value | ad.Zero,
    p: gather.ScatterParams,
) -> Value:
    """The tangent of whatever won: the old element if it equals the result, else the first such update."""
    x, indices, updates = primals
    kept = elementwise.select(
        monoids.changed_by(x, out), broadcast.zeros_of(x.aval), broadcast.instantiate(x_dot)
    )
    if isinstance(updates_dot, ad.Zero):
        return kept
    like = _gather_like(x.aval, updates.aval, p)
    old, new = gather.gather(x, indices, like), gather.gather(out, indices, like)
    wins = monoids.winning_shares(
        monoids.changed_by(old, new), new, updates, _places(x, indices, updates, p)
    )
    won = elementwise.select(wins, updates_dot, broadcast.zeros_of(updates.aval))
    return gather.scatter(kept, indices, won, replace(p, kind="add"))


def _is_last(x: Value, indices: Value, updates: Value, p: gather.ScatterParams) -> Value:
    """Which elements of the updates are the last that go to their places."""
    numbers = broadcast.reshape(shape.iota(np.int32, ir.size_of(updates.shape)), updates.shape)
    board = broadcast.broadcast_in_dim(arrays.Scalar(np.zeros((), np.int32)), x.shape, ())
    board = gather.scatter(board, indices, numbers, replace(p, kind="set"))
    return elementwise.equal(
        gather.gather(board, indices, _gather_like(x.aval, updates.aval, p)), numbers
    )


def _scatter_transpose(
    cts: ad.Tangents, operands: ad.Operands, p: gather.ScatterParams
) -> ad.Cotangents:
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
            raise errors.RuleError(
                f"`scatter` with kind {p.kind!r} has no transpose: it is not linear"
            )
    return [
        x_bar if isinstance(x, ad.UndefinedPrimal) else None,
        None,
        updates_bar if isinstance(updates, ad.UndefinedPrimal) else None,
    ]


def _read_blocks(
    ct: Value, indices: Value, updates: ad.Operand, p: gather.ScatterParams
) -> Value | None:
    if isinstance(updates, Value):
        return None
    return gather.gather(ct, indices, _gather_like(ct.aval, updates.aval, p))


def _set_transpose(
    ct: Value, indices: Value, x: ad.Operand, updates: ad.Operand, p: gather.ScatterParams
) -> tuple[Value | None, Value | None]:
    """What was overwritten gets nothing; of several updates of one element only the last gets its share."""
    x_bar = None
    if isinstance(x, ad.UndefinedPrimal):
        x_bar = gather.scatter(ct, indices, broadcast.zeros_of(updates.aval), p)
    updates_bar = _read_blocks(ct, indices, updates, p)
    if updates_bar is not None and not p.unique_indices:
        last = _is_last(ct, indices, updates_bar, p)
        updates_bar = elementwise.select(last, updates_bar, broadcast.zeros_of(updates_bar.aval))
    return x_bar, updates_bar


def _mul_transpose(
    ct: Value, indices: Value, x: ad.Operand, updates: ad.Operand, p: gather.ScatterParams
) -> tuple[Value | None, Value | None]:
    if isinstance(updates, Value):
        return gather.scatter(ct, indices, updates, p), None
    assert isinstance(x, Value), "unreachable: linear in one factor at a time"
    if not p.unique_indices:
        raise errors.RuleError(
            "`scatter` with kind 'mul' has no transpose in its updates unless they are unique"
        )
    like = _gather_like(ct.aval, updates.aval, p)
    return None, elementwise.mul(gather.gather(ct, indices, like), gather.gather(x, indices, like))


def _scatter_batch(
    size: int, operands: ad.Values, dims: ad.BatchAxes, p: gather.ScatterParams
) -> ad.Batched:
    (x, indices, updates), (d, i, u) = operands, dims
    x, updates = broadcast.bdim_at(x, d, size, 0), broadcast.bdim_at(updates, u, size, 0)
    indices = broadcast.move_axis(indices, i, 0) if i is not None else indices
    p = replace(p, dims=gather.batched_dims(p.dims, True, i is not None))
    if i is not None:
        p = replace(p, indices_are_sorted=False)
    return [gather.scatter(x, indices, updates, p)], [0]


rules.define(
    gather.scatter_p,
    abstract_eval=rules.pure(_scatter_aval),
    lower=_scatter_lower,
    jvp=_scatter_jvp,
    transpose=_scatter_transpose,
    batch=_scatter_batch,
)
