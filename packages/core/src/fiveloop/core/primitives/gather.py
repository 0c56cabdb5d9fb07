"""Primitives that read or write many blocks of an array at once: `gather` and `scatter`.

Both clamp their indices so that every block fits. So the transpose of a gather is a scatter-add of the
same blocks, out-of-range indices included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from fiveloop.core.array import Scalar, Value
from fiveloop.core.backend import hlo
from fiveloop.core.backend.hlo import IRValue
from fiveloop.core.dims import Dim, Shape, same_shape, size_of
from fiveloop.core.errors import RuleError
from fiveloop.core.ir.avals import Aval, ShapedArray
from fiveloop.core.ir.jaxpr import Primitive
from fiveloop.core.primitives.broadcast import (
    bdim_at,
    broadcast_in_dim,
    instantiate,
    move_axis,
    reshape,
    zeros_of,
)
from fiveloop.core.primitives.elementwise import bitwise_and, equal, mul, not_equal, select
from fiveloop.core.primitives.shape import iota
from fiveloop.core.rule_types import Accumulator, UndefinedPrimal, Zero
from fiveloop.core.rules import define, pure
from fiveloop.core.trace.tracer import bind1

Operand: TypeAlias = Value | UndefinedPrimal | Accumulator
KINDS = ("set", "add", "mul", "max", "min")


@dataclass(frozen=True)
class WindowDims:
    """Which axis of the array, the indices and the blocks is which; `gather` and `scatter` share it.

    The last axis of the indices holds one start for each array axis in `index_map`; their other axes are
    batch axes. Blocks (a gather's result, a scatter's updates) have the batch axes in order, and at
    `window_dims` the axes of one block. Array axes in `collapsed` have a block of one element, which is
    dropped. Array axis `operand_batch[k]` goes along with indices axis `indices_batch[k]`.
    """

    window_dims: tuple[int, ...] = ()
    collapsed: tuple[int, ...] = ()
    operand_batch: tuple[int, ...] = ()
    indices_batch: tuple[int, ...] = ()
    index_map: tuple[int, ...] = ()

    def windows(self, rank: int) -> list[int]:
        """The axes of an array of the given rank that blocks keep, in order."""
        dropped = {*self.collapsed, *self.operand_batch}
        return [axis for axis in range(rank) if axis not in dropped]


@dataclass(frozen=True)
class GatherParams:
    """The axes, the size of one block along each array axis, and what is known of the indices."""

    dims: WindowDims
    sizes: Shape
    indices_are_sorted: bool = False
    unique_indices: bool = False
    in_bounds: bool = False


@dataclass(frozen=True)
class ScatterParams:
    """The axes, how old and new are combined, and what is known of the indices."""

    dims: WindowDims
    kind: str = "set"
    indices_are_sorted: bool = False
    unique_indices: bool = False
    in_bounds: bool = False


gather_p: Primitive[GatherParams] = Primitive("gather")
scatter_p: Primitive[ScatterParams] = Primitive("scatter")


def gather(x: Value, indices: Value, params: GatherParams) -> Value:
    """The blocks of `x` that begin at `indices`, each clamped so that it fits."""
    return bind1(gather_p, x, indices, params=params)


def scatter(x: Value, indices: Value, updates: Value, params: ScatterParams) -> Value:
    """`x` with blocks combined into it at `indices`, each clamped so that it fits.

    Of several blocks that "set" one element the last wins; the other kinds combine them all.
    """
    return bind1(scatter_p, x, indices, updates, params=params)


def _block_sizes(x: Aval, updates: Aval, dims: WindowDims) -> tuple[Dim, ...]:
    """The size of one block along each array axis, from the shape of the blocks."""
    sizes: list[Dim] = [1] * x.ndim
    for axis, position in zip(dims.windows(x.ndim), sorted(dims.window_dims), strict=True):
        sizes[axis] = updates.shape[position]
    return tuple(sizes)


def _blocks_shape(x: Aval, indices: Aval, dims: WindowDims, sizes: Shape) -> Shape:
    windows = iter([sizes[axis] for axis in dims.windows(x.ndim)])
    batch = iter(indices.shape[:-1])
    rank = len(dims.window_dims) + indices.ndim - 1
    return tuple(next(windows) if k in dims.window_dims else next(batch) for k in range(rank))


def _check(name: str, x: Aval, indices: Aval, dims: WindowDims, sizes: Shape) -> None:
    if indices.dtype.kind not in "iu":
        raise TypeError(f"{name}: expected integer indices, got {indices}")
    if not indices.ndim or indices.shape[-1] != len(dims.index_map) or len(sizes) != x.ndim:
        raise TypeError(f"{name}: indices {indices} and blocks {sizes} do not fit {x} under {dims}")
    if any(k > d for k, d in zip(sizes, x.shape, strict=True)):
        raise ValueError(f"{name}: a block of shape {sizes} does not fit into {x}")


# gather


def _gather_aval(avals: Sequence[Aval], p: GatherParams) -> list[Aval]:
    x, indices = avals
    _check("gather", x, indices, p.dims, p.sizes)
    return [ShapedArray(_blocks_shape(x, indices, p.dims, p.sizes), x.dtype, x.weak_type)]


def _gather_lower(ctx: Any, operands: Sequence[IRValue], p: GatherParams) -> list[IRValue]:
    x, indices = operands
    out = hlo.gather(
        ctx.b,
        x,
        indices,
        offset_dims=p.dims.window_dims,
        collapsed_slice_dims=p.dims.collapsed,
        operand_batching_dims=p.dims.operand_batch,
        start_indices_batching_dims=p.dims.indices_batch,
        start_index_map=p.dims.index_map,
        index_vector_dim=len(indices.shape) - 1,
        slice_sizes=p.sizes,
        indices_are_sorted=p.indices_are_sorted,
    )
    return [out]


def _gather_jvp(
    primals: Sequence[Value], tangents: Sequence[Value | Zero], p: GatherParams
) -> tuple[list[Value], list[Value | Zero]]:
    x, indices = primals
    return [gather(x, indices, p)], [gather(instantiate(tangents[0]), indices, p)]


def _gather_transpose(
    cts: Sequence[Value | Zero], operands: Sequence[Operand], p: GatherParams
) -> list[Value | Zero | None]:
    (ct,), (x, indices) = cts, operands
    assert isinstance(ct, Value) and isinstance(indices, Value), "unreachable: linear in x alone"
    params = ScatterParams(p.dims, "add", p.indices_are_sorted, p.unique_indices, p.in_bounds)
    return [scatter(zeros_of(x.aval), indices, ct, params), None]


def _gather_batch(
    size: int, operands: Sequence[Value], dims: Sequence[int | None], p: GatherParams
) -> tuple[list[Value], list[int | None]]:
    (x, indices), (d, i) = operands, dims
    x = move_axis(x, d, 0) if d is not None else x
    indices = move_axis(indices, i, 0) if i is not None else indices
    sizes = p.sizes if d is None else (size if i is None else 1, *p.sizes)
    p = replace(p, dims=_batched(p.dims, d is not None, i is not None), sizes=sizes)
    if i is not None:
        p = replace(p, indices_are_sorted=False, unique_indices=p.unique_indices and d is not None)
    return [gather(x, indices, p)], [0]


def _batched(dims: WindowDims, x: bool, indices: bool) -> WindowDims:
    """The axes when the array, the indices or both have one more axis in front, and so the blocks too."""
    windows = tuple(k + 1 for k in dims.window_dims)
    new = WindowDims(
        window_dims=windows if indices else (0, *windows),
        collapsed=tuple(k + x for k in dims.collapsed),
        operand_batch=tuple(k + x for k in dims.operand_batch),
        indices_batch=tuple(k + indices for k in dims.indices_batch),
        index_map=tuple(k + x for k in dims.index_map),
    )
    if not (x and indices):
        return new
    return replace(
        new, operand_batch=(0, *new.operand_batch), indices_batch=(0, *new.indices_batch)
    )


define(
    gather_p,
    abstract_eval=pure(_gather_aval),
    lower=_gather_lower,
    jvp=_gather_jvp,
    transpose=_gather_transpose,
    batch=_gather_batch,
)


# scatter


def _scatter_aval(avals: Sequence[Aval], p: ScatterParams) -> list[Aval]:
    x, indices, updates = avals
    if p.kind not in KINDS:
        raise ValueError(f"scatter: expected a kind in {KINDS}, got {p.kind!r}")
    if updates.dtype != x.dtype:
        raise TypeError(f"scatter: expected updates with the dtype of {x}, got {updates}")
    sizes = _block_sizes(x, updates, p.dims)
    _check("scatter", x, indices, p.dims, sizes)
    if not same_shape(_blocks_shape(x, indices, p.dims, sizes), updates.shape):
        raise ValueError(f"scatter: updates {updates} do not fit {x} at {indices} under {p.dims}")
    return [x]


def _scatter_lower(ctx: Any, operands: Sequence[IRValue], p: ScatterParams) -> list[IRValue]:
    x, indices, updates = operands
    if not p.in_bounds:
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
    """XLA leaves out blocks that do not fit; fiveloop moves them until they do, as reads are."""
    b, (x, _, updates) = ctx.b, ctx.avals_in
    sizes = _block_sizes(x, updates, p.dims)
    last = np.asarray([max(0, x.shape[k] - sizes[k]) for k in p.dims.index_map], indices.dtype)
    rank = len(indices.shape)
    row = hlo.constant(b, last)
    high = hlo.broadcast_in_dim(b, row, indices.shape, (rank - 1,))
    return hlo.clamp(b, hlo.constant(b, 0, (), indices.dtype), indices, high)


def _gather_like(x: Aval, updates: Aval, p: ScatterParams) -> GatherParams:
    """The gather that reads the blocks that a scatter writes."""
    sizes = _block_sizes(x, updates, p.dims)
    return GatherParams(p.dims, sizes, p.indices_are_sorted, p.unique_indices, p.in_bounds)


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
    if not p.unique_indices:
        raise RuleError(
            "scatter with kind 'mul' has a derivative in its updates only where no element is "
            "multiplied twice: pass unique_indices=True if that holds, or take the product first"
        )
    old = gather(x, indices, _gather_like(x.aval, updates.aval, p))
    return scatter(out, indices, mul(old, updates_dot), replace(p, kind="add"))


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
    first = bitwise_and(wins, _is_winner(x, indices, updates, p, "min", wins))
    won = select(first, updates_dot, zeros_of(updates.aval))
    return scatter(kept, indices, won, replace(p, kind="add"))


def _is_winner(
    x: Value, indices: Value, updates: Value, p: ScatterParams, kind: str, candidates: Value | None
) -> Value:
    """Which element of the updates is the one recorded at its place: the last of all, or the first candidate."""
    count = size_of(updates.shape)
    numbers = reshape(iota(np.int32, count), updates.shape)
    like = _gather_like(x.aval, updates.aval, p)
    none = Scalar(np.asarray(count, np.int32))
    proposed = numbers
    if candidates is not None:
        proposed = select(candidates, numbers, broadcast_in_dim(none, updates.shape, ()))
    board = broadcast_in_dim(none, x.shape, ())
    board = scatter(board, indices, proposed, replace(p, kind=kind))
    return equal(gather(board, indices, like), numbers)


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
        last = _is_winner(ct, indices, updates_bar, p, "set", None)
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
    p = replace(p, dims=_batched(p.dims, True, i is not None))
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
