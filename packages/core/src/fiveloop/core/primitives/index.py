"""Primitives that read or write one block of an array: slices, static and dynamic, and index values.

A start known only at run time is clamped so that its block fits. Along axes that `drops` names it is not: what lies
outside is not written, and is read as zero. Either way the transpose of a read is a write of exactly the same elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fiveloop.core import ad, arrays, errors, ir, rules, trace
from fiveloop.core.arrays import Value
from fiveloop.core.backend import hlo
from fiveloop.core.primitives import broadcast, check, costs, elementwise, gather
from fiveloop.core.primitives.shape import concatenate, iota, pad

_NO_TANGENT = rules.Refusal("its result is an integer; integers have no tangents")


@dataclass(frozen=True)
class SliceParams:
    """The static bounds of a slice, one of each per axis; strides are positive."""

    start: tuple[ir.Dim, ...]
    limit: tuple[ir.Dim, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class DynamicSliceParams:
    """The sizes of the block that is read, and the axes along which it may lie outside, in part or whole."""

    sizes: ir.Shape
    drops: tuple[int, ...] = ()


@dataclass(frozen=True)
class UpdateParams:
    """The axes along which the block may lie outside, in part or whole."""

    drops: tuple[int, ...] = ()


@dataclass(frozen=True)
class ResolveParams:
    """An axis's size, the size of the block read there (None: do not clamp), and the result's dtype."""

    size: ir.Dim
    window: ir.Dim | None
    dtype: np.dtype[Any]


slice_p: ir.Primitive[SliceParams] = ir.Primitive("slice")
dynamic_slice_p: ir.Primitive[DynamicSliceParams] = ir.Primitive("dynamic_slice")
dynamic_update_slice_p: ir.Primitive[UpdateParams] = ir.Primitive("dynamic_update_slice")
resolve_index_p: ir.Primitive[ResolveParams] = ir.Primitive("resolve_index")


def static_slice(
    x: Value, start: Sequence[ir.Dim], limit: Sequence[ir.Dim], strides: Sequence[int] | None = None
) -> Value:
    """The elements of `x` from `start` up to `limit` by `strides`, one of each per axis."""
    steps = tuple(strides) if strides is not None else (1,) * x.ndim
    if all(map(ir.same_dim, start, (0,) * x.ndim)) and all(map(ir.same_dim, limit, x.shape)):
        if steps == (1,) * x.ndim:
            return x
    return trace.bind1(slice_p, x, params=SliceParams(tuple(start), tuple(limit), steps))


def dynamic_slice(
    x: Value, starts: Sequence[arrays.ArrayLike], sizes: Sequence[ir.Dim], drops: Sequence[int] = ()
) -> Value:
    """The block of `sizes` that begins at run-time `starts`, clamped so that it fits; zero outside along `drops`.

    Starts are integers without axes, one per axis of `x`; they are brought to one dtype.
    """
    params = DynamicSliceParams(tuple(sizes), tuple(drops))
    return trace.bind1(dynamic_slice_p, x, *common_index_dtype(starts), params=params)


def dynamic_update_slice(
    x: Value, update: Value, starts: Sequence[arrays.ArrayLike], drops: Sequence[int] = ()
) -> Value:
    """`x` with the block that begins at run-time `starts` replaced by `update`.

    A start is clamped so that the block fits; along `drops` the elements that lie outside are left out instead.
    """
    params = UpdateParams(tuple(drops))
    return trace.bind1(
        dynamic_update_slice_p, x, update, *common_index_dtype(starts), params=params
    )


def resolve_index(
    index: arrays.ArrayLike,
    size: ir.Dim,
    window: ir.Dim | None = 1,
    dtype: np.dtype[Any] | None = None,
) -> Value:
    """Where an index into an axis of `size` points: negative counts from the end, then clamped into range.

    `window` is the size of the block read there; None leaves clamping to whoever uses the index. The
    result is int32 unless the index has a wider range. A host number is resolved at once.
    """
    i = arrays.as_value(index, "index")
    params = ResolveParams(size, window, dtype if dtype is not None else index_dtype(i.dtype))
    if isinstance(i, arrays.Scalar):
        return arrays.Scalar(_resolve_host(i.host, params))
    return trace.bind1(resolve_index_p, i, params=params)


def index_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype in which an index of the given dtype is computed: int32 where that holds its range."""
    wide = dtype.itemsize > 4 or dtype == np.uint32
    return np.dtype(np.int64 if wide else np.int32)


def common_index_dtype(starts: Sequence[arrays.ArrayLike]) -> list[Value]:
    """Indices as values of one dtype: int32 if that holds the range of all of them."""
    values = [arrays.as_value(i, "index") for i in starts]
    for i in values:
        if i.dtype.kind not in "iu":
            raise TypeError(f"an index must be an integer, got {i.aval}")
    wide = any(index_dtype(i.dtype) == np.int64 for i in values)
    dtype = np.dtype(np.int64 if wide else np.int32)
    return [as_index_dtype(i, dtype) for i in values]


def as_index_dtype(i: Value, dtype: np.dtype[Any]) -> Value:
    """An index in another integer dtype."""
    if i.dtype == dtype and not i.weak_type:
        return i
    if isinstance(i, arrays.Scalar):
        return arrays.Scalar(i.host.astype(dtype))
    return trace.bind1(resolve_index_p, i, params=ResolveParams(0, None, dtype))


# slice


def _slice_aval(avals: ir.Avals, p: SliceParams) -> list[ir.Aval]:
    (x,) = check.array_avals("slice", avals, 1)
    if not len(p.start) == len(p.limit) == len(p.strides) == x.ndim:
        raise TypeError(f"slice of {x}: expected {x.ndim} bounds, got {p}")
    for axis, (lo, hi, by) in enumerate(zip(p.start, p.limit, p.strides, strict=True)):
        outside = ir.is_more(0, lo) or ir.is_more(lo, hi) or ir.is_more(hi, x.shape[axis])
        if outside or by < 1:
            raise ValueError(f"slice {lo}:{hi}:{by} does not fit axis {axis} of {x}")
    bounds = zip(p.start, p.limit, p.strides, strict=True)
    return [_reshaped(x, tuple(ir.strided_size(lo, hi, by) for lo, hi, by in bounds))]


def _slice_lower(ctx: Any, operands: hlo.IRValues, p: SliceParams) -> list[hlo.IRValue]:
    return [hlo.slice(ctx.b, operands[0], p.start, p.limit, p.strides)]


def _slice_jvp(primals: ad.Values, tangents: ad.Tangents, p: SliceParams) -> ad.Duals:
    (t,) = tangents
    assert not isinstance(t, ad.Zero), "unreachable: the only tangent is not zero"
    return [trace.bind1(slice_p, primals[0], params=p)], [trace.bind1(slice_p, t, params=p)]


def _slice_transpose(cts: ad.Tangents, operands: ad.Operands, p: SliceParams) -> ad.Cotangents:
    (ct,), (x,) = cts, operands
    assert not isinstance(ct, ad.Zero), "unreachable: the only cotangent is not zero"
    if _is_added(x, ct, p.start, p.strides):
        return [None]
    spans = [max(0, (n - 1) * by + 1) for n, by in zip(ct.shape, p.strides, strict=True)]
    shape = x.aval.shape
    high = [d - lo - n for d, lo, n in zip(shape, p.start, spans, strict=True)]
    interior = [by - 1 for by in p.strides]
    return [pad(ct, arrays.Scalar(np.zeros((), ct.dtype)), p.start, high, interior)]


def _slice_batch(size: int, operands: ad.Values, dims: ad.BatchAxes, p: SliceParams) -> ad.Batched:
    (x,), (d,) = operands, dims
    assert d is not None, "unreachable: the only operand is batched"
    p = SliceParams(_insert(p.start, d, 0), _insert(p.limit, d, size), _insert(p.strides, d, 1))
    return [trace.bind1(slice_p, x, params=p)], [d]


rules.define(
    slice_p,
    abstract_eval=rules.pure(_slice_aval),
    cost=costs.moving_cost(_slice_aval),
    lower=_slice_lower,
    jvp=_slice_jvp,
    transpose=_slice_transpose,
    batch=_slice_batch,
    view=True,
)


# dynamic_slice


def _check_starts(name: str, x: ir.Aval, starts: ir.Avals, sizes: ir.Shape) -> None:
    if len(starts) != x.ndim or len(sizes) != x.ndim:
        raise TypeError(
            f"{name} of {x}: expected {x.ndim} starts and sizes, got {len(starts)} and {len(sizes)}"
        )
    for i in starts:
        if i.shape or i.dtype.kind not in "iu" or i.dtype != starts[0].dtype:
            raise TypeError(
                f"{name} of {x}: starts must be integers of one dtype without axes, got {list(starts)}"
            )
    if any(map(ir.is_more, sizes, x.shape)):
        raise ValueError(
            f"{name}: a block of shape {errors.shape_str(sizes)} does not fit into {x}"
        )


def _dynamic_slice_aval(avals: ir.Avals, p: DynamicSliceParams) -> list[ir.Aval]:
    check.check_count("dynamic_slice", avals, 1, or_more=True)
    x, *starts = avals
    _check_starts("dynamic_slice", x, starts, p.sizes)
    return [_reshaped(x, p.sizes)]


def _dynamic_slice_lower(
    ctx: Any, operands: hlo.IRValues, p: DynamicSliceParams
) -> list[hlo.IRValue]:
    x, *starts = operands
    if p.drops:
        return [hlo.slice_or_zero(ctx.b, x, starts, p.sizes, p.drops)]
    return [hlo.dynamic_slice(ctx.b, x, starts, p.sizes)]


def _dynamic_slice_jvp(
    primals: ad.Values, tangents: ad.Tangents, p: DynamicSliceParams
) -> ad.Duals:
    x, *starts = primals
    t = broadcast.instantiate(tangents[0])
    out = trace.bind1(dynamic_slice_p, x, *starts, params=p)
    return [out], [trace.bind1(dynamic_slice_p, t, *starts, params=p)]


def _dynamic_slice_transpose(
    cts: ad.Tangents, operands: ad.Operands, p: DynamicSliceParams
) -> ad.Cotangents:
    (ct,), (x, *starts) = cts, operands
    assert not isinstance(ct, ad.Zero), "unreachable: the only cotangent is not zero"
    at, params = _values(starts), UpdateParams(p.drops)
    fits = zip(at, x.aval.shape, p.sizes, strict=True)
    if not p.drops and _is_added(x, ct, [_fitting(*s) for s in fits]):
        return [None] * len(operands)
    out = trace.bind1(dynamic_update_slice_p, broadcast.zeros_of(x.aval), ct, *at, params=params)
    return [out, *[None] * len(starts)]


def _fitting(start: Value, size: ir.Dim, window: ir.Dim) -> arrays.ArrayLike:
    """Where a block begins that is read from a start."""
    if isinstance(start, arrays.Scalar) and ir.is_constant(size) and ir.is_constant(window):
        return int(np.clip(start.host, 0, size - window))
    return elementwise.clamp(0, start, size - window)


def _is_added(
    x: ad.Operand, ct: Value, starts: Sequence[arrays.ArrayLike], strides: Sequence[int] = ()
) -> bool:
    """Add a cotangent to a block of what collects the operand's, if there is such a thing."""
    into = x.into if isinstance(x, ad.UndefinedPrimal) else None
    if into is None or not all(map(ir.is_constant, (*into.shape, *ct.shape))):
        return False
    add = rules.type_rules(into.aval).accumulate
    assert add is not None, "unreachable: cotangents are collected in it"
    steps = strides or (1,) * ct.ndim
    add(into, ct, list(zip(starts, ct.shape, steps, strict=True)))
    return True


def _dynamic_slice_batch(
    size: int, operands: ad.Values, dims: ad.BatchAxes, p: DynamicSliceParams
) -> ad.Batched:
    x, *starts = operands
    d, *start_dims = dims
    if all(i is None for i in start_dims):
        assert d is not None, "unreachable: some operand is batched"
        starts.insert(d, _zero_start(starts))
        params = DynamicSliceParams(_insert(p.sizes, d, size), _past(p.drops, d))
        return [trace.bind1(dynamic_slice_p, x, *starts, params=params)], [d]
    wide = _wide(p.sizes, p.drops)
    indices = _stack(size, starts, start_dims, {k: p.sizes[k] for k in wide})
    if d is not None:
        x = broadcast.move_axis(x, d, 0)
    dnums = _block_dims(len(p.sizes), wide, batched=d is not None)
    sizes = tuple(1 if k in wide else n for k, n in enumerate(p.sizes))
    sizes = (1, *sizes) if d is not None else sizes
    blocks = gather.GatherParams(dnums, sizes, drops=bool(p.drops))
    return [trace.bind1(gather.gather_p, x, indices, params=blocks)], [0]


rules.define(
    dynamic_slice_p,
    abstract_eval=rules.pure(_dynamic_slice_aval),
    cost=costs.moving_cost(_dynamic_slice_aval),
    lower=_dynamic_slice_lower,
    jvp=_dynamic_slice_jvp,
    transpose=_dynamic_slice_transpose,
    batch=_dynamic_slice_batch,
    view=True,
)


# dynamic_update_slice


def _update_aval(avals: ir.Avals, p: UpdateParams) -> list[ir.Aval]:
    check.check_count("dynamic_update_slice", avals, 2, or_more=True)
    x, update, *starts = avals
    if update.ndim != x.ndim or update.dtype != x.dtype:
        raise TypeError(
            f"dynamic_update_slice: expected an update with the dtype and the number of axes of {x}, "
            f"got {update}"
        )
    _check_starts("dynamic_update_slice", x, starts, update.shape)
    return [x]


def _update_lower(ctx: Any, operands: hlo.IRValues, p: UpdateParams) -> list[hlo.IRValue]:
    x, update, *starts = operands
    if p.drops:
        return [hlo.update_inside(ctx.b, x, update, starts, p.drops)]
    return [hlo.dynamic_update_slice(ctx.b, x, update, starts)]


def _update_jvp(primals: ad.Values, tangents: ad.Tangents, p: UpdateParams) -> ad.Duals:
    _, _, *starts = primals
    x_dot, update_dot = map(broadcast.instantiate, tangents[:2])
    out = trace.bind1(dynamic_update_slice_p, *primals, params=p)
    return [out], [trace.bind1(dynamic_update_slice_p, x_dot, update_dot, *starts, params=p)]


def _update_transpose(cts: ad.Tangents, operands: ad.Operands, p: UpdateParams) -> ad.Cotangents:
    (ct,), (x, update, *starts) = cts, operands
    assert not isinstance(ct, ad.Zero), "unreachable: the only cotangent is not zero"
    at = _values(starts)
    x_bar = update_bar = None
    if isinstance(x, ad.UndefinedPrimal):
        x_bar = trace.bind1(
            dynamic_update_slice_p, ct, broadcast.zeros_of(update.aval), *at, params=p
        )
    if isinstance(update, ad.UndefinedPrimal):
        params = DynamicSliceParams(update.aval.shape, p.drops)
        update_bar = trace.bind1(dynamic_slice_p, ct, *at, params=params)
    return [x_bar, update_bar, *[None] * len(starts)]


def _update_batch(
    size: int, operands: ad.Values, dims: ad.BatchAxes, p: UpdateParams
) -> ad.Batched:
    x, update, *starts = operands
    x_dim, update_dim, *start_dims = dims
    if all(i is None for i in start_dims):
        at = x_dim if x_dim is not None else 0
        x, update = (
            broadcast.bdim_at(x, x_dim, size, at),
            broadcast.bdim_at(update, update_dim, size, at),
        )
        starts.insert(at, _zero_start(starts))
        params = UpdateParams(_past(p.drops, at))
        return [trace.bind1(dynamic_update_slice_p, x, update, *starts, params=params)], [at]
    x, update = broadcast.bdim_at(x, x_dim, size, 0), broadcast.bdim_at(update, update_dim, size, 0)
    wide = _wide(update.shape[1:], p.drops)
    indices = _stack(size, starts, start_dims, {k: update.shape[k + 1] for k in wide})
    dnums = _block_dims(len(starts), wide, batched=True)
    blocks = gather.ScatterParams(dnums, "set", unique_indices=True, drops=bool(p.drops))
    return [trace.bind1(gather.scatter_p, x, indices, update, params=blocks)], [0]


rules.define(
    dynamic_update_slice_p,
    abstract_eval=rules.pure(_update_aval),
    lower=_update_lower,
    jvp=_update_jvp,
    transpose=_update_transpose,
    batch=_update_batch,
)


# resolve_index


def _resolve_aval(avals: ir.Avals, p: ResolveParams) -> list[ir.Aval]:
    (i,) = check.array_avals("resolve_index", avals, 1)
    if i.dtype.kind not in "iu":
        raise TypeError(f"an index must be an integer, got {i}")
    return [ir.ShapedArray(i.shape, p.dtype)]


def _resolve_lower(ctx: Any, operands: hlo.IRValues, p: ResolveParams) -> list[hlo.IRValue]:
    b, i = ctx.b, operands[0]
    signed = i.dtype.kind == "i"
    if i.dtype == np.uint64:  # beyond what int64 holds is beyond the end of any axis
        top = hlo.constant(b, np.iinfo(np.int64).max, (), i.dtype)
        i = hlo.clamp(b, hlo.constant(b, 0, (), i.dtype), i, top)
    out = hlo.convert(b, i, p.dtype)
    if signed and p.size:
        zero = hlo.constant(b, 0, out.shape, p.dtype)
        size = hlo.constant(b, p.size, out.shape, p.dtype)
        out = hlo.select(b, hlo.compare(b, out, zero, "LT"), hlo.add(b, out, size), out)
    if p.window is not None:
        low = hlo.constant(b, 0, (), p.dtype)
        high = hlo.constant(b, max(0, p.size - p.window), (), p.dtype)
        out = hlo.clamp(b, low, out, high)
    return [out]


def _resolve_host(i: np.ndarray[Any, Any], p: ResolveParams) -> np.ndarray[Any, Any]:
    out = (
        np.minimum(i, np.iinfo(np.int64).max).astype(np.int64)
        if i.dtype == np.uint64
        else i.astype(np.int64)
    )
    out = np.where(out < 0, out + p.size, out)
    if p.window is not None:
        out = np.clip(out, 0, max(0, p.size - p.window))
    return np.asarray(out).astype(p.dtype)


def _resolve_batch(
    size: int, operands: ad.Values, dims: ad.BatchAxes, p: ResolveParams
) -> ad.Batched:
    return [trace.bind1(resolve_index_p, operands[0], params=p)], [dims[0]]


rules.define(
    resolve_index_p,
    abstract_eval=rules.pure(_resolve_aval),
    lower=_resolve_lower,
    jvp=_NO_TANGENT,
    batch=_resolve_batch,
)


# helpers


def _reshaped(x: ir.Aval, shape: ir.Shape) -> ir.Aval:
    return ir.ShapedArray(shape, x.dtype, x.weak_type)


def _insert(xs: tuple[int, ...], at: int, x: int) -> tuple[int, ...]:
    return (*xs[:at], x, *xs[at:])


def _values(starts: ad.Operands) -> list[Value]:
    return [i for i in starts if isinstance(i, Value)]


def _zero_start(starts: ad.Values) -> Value:
    dtype = starts[0].dtype if starts else np.dtype(np.int32)
    return arrays.Scalar(np.zeros((), dtype))


def _past(drops: Sequence[int], at: int) -> tuple[int, ...]:
    """The axes when there is one more, in this place."""
    return tuple(k + (k >= at) for k in drops)


def _wide(sizes: ir.Shape, drops: Sequence[int]) -> list[int]:
    """The axes along which a block may lie outside in part, so that each of its positions is an index of its own."""
    return [k for k in drops if sizes[k] != 1]


def _stack(size: int, starts: ad.Values, dims: ad.BatchAxes, wide: dict[int, ir.Dim]) -> Value:
    """The starts side by side: one row of indices per lane, and for each position along the axes that are wide."""
    shape = (size, *wide.values())
    columns = []
    for k, (i, d) in enumerate(zip(starts, dims, strict=True)):
        column = broadcast.broadcast_in_dim(broadcast.bdim_at(i, d, size, 0), shape, (0,))
        if k in wide:
            steps = iota(i.dtype, wide[k])
            column = elementwise.add(
                column, broadcast.broadcast_in_dim(steps, shape, (1 + [*wide].index(k),))
            )
        columns.append(broadcast.reshape(column, (*shape, 1)))
    return concatenate(columns, len(shape))


def _block_dims(rank: int, wide: Sequence[int], *, batched: bool) -> gather.WindowDims:
    """One whole block per lane; with `batched`, each lane from its own array."""
    first = int(batched)
    return gather.WindowDims(
        window_dims=tuple(k + 1 for k in range(rank) if k not in wide),
        collapsed=tuple(k + first for k in wide),
        operand_batch=(0,) * first,
        indices_batch=(0,) * first,
        index_map=tuple(range(first, rank + first)),
    )
