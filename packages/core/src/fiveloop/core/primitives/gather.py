"""Primitives that read or write many blocks of an array at once: `gather`, whole, and what `scatter` is called with.

Both clamp their indices so that every block fits; or, if they are told to drop, a block that does not fit is
not written, and is read as zeros. Either way the transpose of a gather is a scatter-add of the same blocks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from fiveloop.core import ad, ir, rules, trace
from fiveloop.core.arrays import Value
from fiveloop.core.backend import hlo
from fiveloop.core.primitives import broadcast, check

KINDS = ("set", *hlo.COMBINERS)


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
    sizes: ir.Shape
    indices_are_sorted: bool = False
    unique_indices: bool = False
    in_bounds: bool = False
    drops: bool = False


@dataclass(frozen=True)
class ScatterParams:
    """The axes, how old and new are combined, and what is known of the indices."""

    dims: WindowDims
    kind: str = "set"
    indices_are_sorted: bool = False
    unique_indices: bool = False
    in_bounds: bool = False
    drops: bool = False


gather_p: ir.Primitive[GatherParams] = ir.Primitive("gather")
scatter_p: ir.Primitive[ScatterParams] = ir.Primitive("scatter")


def gather(x: Value, indices: Value, params: GatherParams) -> Value:
    """The blocks of `x` that begin at `indices`, each clamped so that it fits, or zeros if `params` drops it."""
    return trace.bind1(gather_p, x, indices, params=params)


def scatter(x: Value, indices: Value, updates: Value, params: ScatterParams) -> Value:
    """`x` with blocks combined into it at `indices`, each clamped so that it fits, or left out if `params` drops it.

    Of several blocks that "set" one element the last wins; the other kinds combine them all.
    """
    return trace.bind1(scatter_p, x, indices, updates, params=params)


def block_sizes(x: ir.Aval, updates: ir.Aval, dims: WindowDims) -> tuple[ir.Dim, ...]:
    """The size of one block along each array axis, from the shape of the blocks."""
    sizes: list[ir.Dim] = [1] * x.ndim
    for axis, position in zip(dims.windows(x.ndim), sorted(dims.window_dims), strict=True):
        sizes[axis] = updates.shape[position]
    return tuple(sizes)


def blocks_shape(x: ir.Aval, indices: ir.Aval, dims: WindowDims, sizes: ir.Shape) -> ir.Shape:
    """The shape of all blocks together."""
    windows = iter([sizes[axis] for axis in dims.windows(x.ndim)])
    batch = iter(indices.shape[:-1])
    rank = len(dims.window_dims) + indices.ndim - 1
    return tuple(next(windows) if k in dims.window_dims else next(batch) for k in range(rank))


def check_blocks(
    name: str, x: ir.Aval, indices: ir.Aval, dims: WindowDims, sizes: ir.Shape
) -> None:
    """Refuse indices and blocks that do not fit an array; `name` is that of the operation."""
    if indices.dtype.kind not in "iu":
        raise TypeError(f"{name}: expected integer indices, got {indices}")
    if not indices.ndim or indices.shape[-1] != len(dims.index_map) or len(sizes) != x.ndim:
        raise TypeError(f"{name}: indices {indices} and blocks {sizes} do not fit {x} under {dims}")
    if any(map(ir.is_more, sizes, x.shape)):
        raise ValueError(f"{name}: a block of shape {sizes} does not fit into {x}")


# gather


def _gather_aval(avals: ir.Avals, p: GatherParams) -> list[ir.Aval]:
    x, indices = check.array_avals("gather", avals, 2)
    check_blocks("gather", x, indices, p.dims, p.sizes)
    return [ir.ShapedArray(blocks_shape(x, indices, p.dims, p.sizes), x.dtype, x.weak_type)]


def _gather_lower(ctx: Any, operands: hlo.IRValues, p: GatherParams) -> list[hlo.IRValue]:
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
    return [hlo.zero_outside(ctx.b, out, x, indices, p)] if p.drops else [out]


def _gather_jvp(primals: ad.Values, tangents: ad.Tangents, p: GatherParams) -> ad.Duals:
    x, indices = primals
    return [gather(x, indices, p)], [gather(broadcast.instantiate(tangents[0]), indices, p)]


def _gather_transpose(cts: ad.Tangents, operands: ad.Operands, p: GatherParams) -> ad.Cotangents:
    (ct,), (x, indices) = cts, operands
    assert isinstance(ct, Value) and isinstance(indices, Value), "unreachable: linear in x alone"
    known = p.indices_are_sorted, p.unique_indices, p.in_bounds, p.drops
    params = ScatterParams(p.dims, "add", *known)
    return [scatter(broadcast.zeros_of(x.aval), indices, ct, params), None]


def _gather_batch(
    size: int, operands: ad.Values, dims: ad.BatchAxes, p: GatherParams
) -> ad.Batched:
    (x, indices), (d, i) = operands, dims
    x = broadcast.move_axis(x, d, 0) if d is not None else x
    indices = broadcast.move_axis(indices, i, 0) if i is not None else indices
    sizes = p.sizes if d is None else (size if i is None else 1, *p.sizes)
    p = replace(p, dims=batched_dims(p.dims, d is not None, i is not None), sizes=sizes)
    if i is not None:
        p = replace(p, indices_are_sorted=False, unique_indices=p.unique_indices and d is not None)
    return [gather(x, indices, p)], [0]


def batched_dims(dims: WindowDims, x: bool, indices: bool) -> WindowDims:
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


rules.define(
    gather_p,
    abstract_eval=rules.pure(_gather_aval),
    lower=_gather_lower,
    jvp=_gather_jvp,
    transpose=_gather_transpose,
    batch=_gather_batch,
)
