"""`take`: read the elements that an index selects; and `resolve_index`, which computes its positions.

The operands of `take`, as those of `put`, are positions: negative indices have been counted from the end. If the index
is a block, a position is clamped so that the block fits; all others are in range. An index that drops reads zeros
outside of the array instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fiveloop.core import ad, arrays, ir, rules, trace
from fiveloop.core.arrays import ArrayLike, Value
from fiveloop.core.backend import hlo
from fiveloop.core.dataclass import dataclass, replace
from fiveloop.core.ir.indexer import Indexer, Lane, Pick, Span
from fiveloop.core.primitives import broadcast, check, costs, elementwise, windows
from fiveloop.core.primitives.shape import pad, reverse


@dataclass(frozen=True)
class TakeParams:
    """The index of a read, and promises about its positions: no element is named twice, positions ascend."""

    indexer: Indexer
    unique: bool = False
    ascending: bool = False


@dataclass(frozen=True)
class PutParams(TakeParams):
    """What is written, what is promised of its positions, and how old and new elements are combined."""

    kind: str = "set"


@dataclass(frozen=True)
class ResolveParams:
    """An axis's size, the size of the block read there (None: do not clamp), and the result's dtype."""

    size: ir.Dim
    window: ir.Dim | None
    dtype: np.dtype[Any]


take_p: ir.Primitive[TakeParams] = ir.Primitive("take")
put_p: ir.Primitive[PutParams] = ir.Primitive("put")
resolve_index_p: ir.Primitive[ResolveParams] = ir.Primitive("resolve_index")


def take(x: Value, indexer: Indexer, positions: ad.Values = (), *, unique: bool = False) -> Value:
    """What an index selects from `x`; `unique` promises that no element is named twice."""
    shape = indexer.result_shape
    if ir.is_empty(shape) and ir.is_constant(ir.size_of(shape)) and not x.shape:
        return broadcast.full(shape, 0, x.dtype)  # a mask that is False
    if indexer.is_all_of(x.shape):
        return broadcast.reshape(x, shape)
    return trace.bind1(take_p, x, *positions, params=TakeParams(indexer, unique))


def static_slice(
    x: Value, start: Sequence[ir.Dim], limit: Sequence[ir.Dim], strides: Sequence[int] | None = None
) -> Value:
    """The elements of `x` from `start` up to `limit` by `strides`, one of each per axis."""
    steps = tuple(strides) if strides is not None else (1,) * x.ndim
    bounds = zip(start, limit, steps, strict=True)
    return take(
        x, Indexer(tuple(Span(lo, ir.strided_size(lo, hi, by), by) for lo, hi, by in bounds))
    )


def take_along(x: Value, positions: Value, axis: int, *, unique: bool = False) -> Value:
    """`x[..., positions[..., i, ...], ...]` along an axis; all other axes of both are the same."""
    found = take(x, *along(x.shape, positions, axis), unique=unique)
    return broadcast.move_axis(found, x.ndim - 1, axis)


def along(shape: ir.Shape, positions: Value, axis: int) -> tuple[Indexer, list[Value]]:
    """The index of one position along an axis for each place in `positions`; the axis is the last of the selection."""
    others = [k for k in range(len(shape)) if k != axis]
    entries = [Pick() if k == axis else Lane(others.index(k)) for k in range(len(shape))]
    lead, count = tuple(shape[k] for k in others), positions.shape[axis]
    last = broadcast.move_axis(positions, axis, positions.ndim - 1)
    return Indexer(tuple(entries), (count,), lead=lead), [last]


def resolve_index(
    index: ArrayLike, size: ir.Dim, window: ir.Dim | None = 1, dtype: np.dtype[Any] | None = None
) -> Value:
    """Where an index into an axis of `size` points: negative counts from the end, then clamped into range.

    `window` is the size of the block read there; None leaves clamping to whoever uses the index. The
    result is int32 unless the index or the axis has a wider range. A host number is resolved at once.
    """
    i = arrays.as_value(index, "index")
    dtype = index_dtype(i.dtype, (size,)) if dtype is None else dtype
    if not isinstance(i, arrays.Scalar):
        return trace.bind1(resolve_index_p, i, params=ResolveParams(size, window, dtype))
    host = np.minimum(i.host, np.iinfo(np.int64).max) if i.dtype == np.uint64 else i.host
    out = host.astype(np.int64)
    out = np.where(out < 0, out + size, out)
    if window is not None:
        out = np.clip(out, 0, max(0, size - window))
    return arrays.Scalar(np.asarray(out).astype(dtype))


def index_dtype(dtype: np.dtype[Any], shape: ir.Shape = ()) -> np.dtype[Any]:
    """The dtype in which an index of the given dtype is computed: int32 where that holds its range, and all sizes."""
    wide = dtype.itemsize > 4 or dtype == np.uint32
    is_long = any(ir.is_more(n, windows.MOST) for n in shape)
    return np.dtype(np.int64 if wide or is_long else np.int32)


def common_index_dtype(starts: Sequence[ArrayLike]) -> list[Value]:
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


# take


def check_index(what: str, x: ir.Aval, operands: ir.Avals, indexer: Indexer) -> None:
    """Raise TypeError if an index does not fit what it indexes, or its operands."""
    if len(indexer.entries) != len(x.shape):
        raise TypeError(
            f"{what}: expected an index of {len(x.shape)} entries for {x}, got {indexer}"
        )
    if indexer.is_outside(x.shape):
        raise ValueError(f"{what}: expected an index that fits into {x}, got {indexer}")
    axes = indexer.dynamic_axes
    if len(axes) != len(operands):
        raise TypeError(
            f"{what}: expected {len(axes)} index operands for {indexer}, got {len(operands)}"
        )
    for axis, aval in zip(axes, operands, strict=True):
        if aval.shape != indexer.operand_shape(axis) or aval.dtype.kind not in "iu":
            raise TypeError(
                f"{what}: expected integers of shape {indexer.operand_shape(axis)} as an index, got {aval}"
            )


def _take_aval(avals: ir.Avals, p: TakeParams) -> list[ir.Aval]:
    check.check_count("take", avals, 1, or_more=True)
    x, *positions = check.array_avals("take", avals)
    check_index("take", x, positions, p.indexer)
    return [x.update(shape=p.indexer.result_shape)]


def _take_cost(avals: ir.Avals, p: TakeParams) -> rules.Cost:
    if p.indexer.is_block:
        return costs.moving_cost(_take_aval)(avals, p)
    out = _take_aval(avals, p)
    return rules.Cost(ir.size_of(out[0].shape), ir.bytes_of([*avals[1:], *out, *out]))


def _take_lower(ctx: Any, operands: hlo.IRValues, p: TakeParams) -> list[hlo.IRValue]:
    x, *positions = operands
    if p.indexer.is_block:
        return [windows.take_block(ctx.b, x, p.indexer, positions)]
    return [windows.gather(ctx.b, x, p.indexer, positions, p.ascending)]


def _take_transpose(cts: ad.Tangents, operands: ad.Operands, p: TakeParams) -> ad.Cotangents:
    (ct,), (x, *index) = cts, operands
    assert isinstance(ct, Value), "unreachable: the only cotangent is not zero"
    positions = values_of(index)
    held = x.held if isinstance(x, ad.UndefinedPrimal) else None
    if held is not None:
        return [ad.Total(_added(held, ct, p, positions)), *[None] * len(index)]
    added = _is_added(x, ct, p.indexer, positions)
    return [None if added else _spread(ct, x.aval, p, positions), *[None] * len(index)]


def _added(held: Value, ct: Value, p: TakeParams, positions: ad.Values) -> Value:
    """What is held, with a cotangent added where it was read."""
    kind = "add"
    if p.indexer.is_block:
        ct, kind = elementwise.add(trace.bind1(take_p, held, *positions, params=p), ct), "set"
    params = PutParams(p.indexer, p.unique, p.ascending, kind)
    return trace.bind1(put_p, held, ct, *positions, params=params)


def values_of(index: ad.Operands) -> list[Value]:
    """The positions among the operands of a transpose: an index is not linear."""
    return [i for i in index if isinstance(i, Value)]


def _is_added(x: ad.Operand, ct: Value, indexer: Indexer, positions: ad.Values) -> bool:
    """Add a cotangent to a block of what collects the operand's, if there is such a thing."""
    into = x.into if isinstance(x, ad.UndefinedPrimal) else None
    if into is None or not all(map(ir.is_constant, (*into.shape, *ct.shape))):
        return False
    if not indexer.is_block or indexer.drops:
        return False
    add = rules.type_rules(into.aval).accumulate
    assert add is not None, "unreachable: cotangents are collected in it"
    given = iter(positions)
    spans: list[tuple[ArrayLike, ir.Dim, int]] = []
    for size, span in zip(into.shape, indexer.spans, strict=True):
        low = span.low if span.start is not None else _fitting(next(given), size, span.extent)
        spans.append((low, span.size, abs(span.stride)))
    add(into, as_block(ct, indexer), spans)
    return True


def _fitting(start: Value, size: ir.Dim, window: ir.Dim) -> ArrayLike:
    """Where a block begins that is read from a start."""
    if isinstance(start, arrays.Scalar) and ir.is_constant(size) and ir.is_constant(window):
        return int(np.clip(start.host, 0, size - window))
    return elementwise.clamp(0, start, size - window)


def as_block(v: Value, indexer: Indexer) -> Value:
    """What a block index selects, with all axes of the array, in the array's order."""
    v = broadcast.reshape(v, tuple(span.size for span in indexer.spans))
    return reverse(v, tuple(k for k, span in enumerate(indexer.spans) if span.stride < 0))


def _spread(ct: Value, aval: ir.Aval, p: TakeParams, positions: ad.Values) -> Value:
    """Zeros with a cotangent where it was read."""
    if p.indexer.is_block and not p.indexer.dynamic_axes:
        spans = p.indexer.spans
        low = [span.low for span in spans]
        ends = zip(aval.shape, spans, strict=True)
        high = [size - span.low - span.extent for size, span in ends]
        between = [abs(span.stride) - 1 for span in spans]
        zero = arrays.Scalar(np.zeros((), ct.dtype))
        return pad(as_block(ct, p.indexer), zero, low, high, between)
    kind = "set" if p.indexer.is_block else "add"
    params = PutParams(p.indexer, p.unique, p.ascending, kind)
    return trace.bind1(put_p, broadcast.zeros_of(aval), ct, *positions, params=params)


def batched_index(
    indexer: Indexer,
    operands: ad.Values,
    operand_dims: ad.BatchAxes,
    x_dim: int | None,
    size: ir.Dim,
) -> tuple[Indexer, list[Value], int]:
    """The index for all lanes at once, and where what it selects has the batch axis.

    The array, some operands or both have a batch axis. If no operand does, all lanes read at one place. Otherwise each
    operand of the new index has the batch axis in front, repeated where it was not batched, and so has what is
    selected. With `x_dim` None the lanes share one array, so that a write of several lanes is an accumulation.
    """
    if all(d is None for d in operand_dims):
        assert x_dim is not None, "unreachable: the array or an operand is batched"
        batched, place = indexer.with_axis(x_dim, size)
        return batched, list(operands), place
    moved = [broadcast.bdim_at(i, d, size, 0) for i, d in zip(operands, operand_dims, strict=True)]
    return indexer.with_lanes(x_dim, size), moved, 0


def clamped(x: ir.Shape, indexer: Indexer, positions: ad.Values) -> list[Value]:
    """The positions of a block in range, where they are to be some of many."""
    if not indexer.is_block or indexer.drops:
        return list(positions)
    axes = indexer.dynamic_axes
    sizes = [x[k] - indexer.spans[k].extent for k in axes]
    return [elementwise.clamp(0, i, n) for i, n in zip(positions, sizes, strict=True)]


def _take_batch(size: int, operands: ad.Values, dims: ad.BatchAxes, p: TakeParams) -> ad.Batched:
    (x, *positions), (x_dim, *index_dims) = operands, dims
    if any(d is not None for d in index_dims):
        shape = x.shape if x_dim is None else (*x.shape[:x_dim], *x.shape[x_dim + 1 :])
        positions = clamped(shape, p.indexer, positions)
        p = replace(p, unique=p.unique and x_dim is not None, ascending=False)
    indexer, moved, place = batched_index(p.indexer, positions, index_dims, x_dim, size)
    return [trace.bind1(take_p, x, *moved, params=replace(p, indexer=indexer))], [place]


def place_of(eqn: ir.Eqn, names: ir.Names, index: ir.Atoms) -> str:
    """The first operand of an equation at an index, as it is written: `a[i, 2:5]`."""
    x = eqn.invars[0]
    inside = eqn.params.indexer.pretty([names.atom(a) for a in index], x.aval.shape)
    return f"{names.atom(x)}[{inside}]"


def promises(eqn: ir.Eqn) -> str:
    """What is promised of the positions of an equation."""
    return ir.format_params(eqn.params, skip=("indexer", "kind"))


rules.define(
    take_p,
    abstract_eval=rules.pure(_take_aval),
    cost=_take_cost,
    lower=_take_lower,
    jvp=broadcast.linear_jvp(take_p, 1),
    transpose=_take_transpose,
    batch=_take_batch,
    view=lambda p: p.indexer.is_block,
    reads_elements=lambda p: not p.indexer.is_block or bool(p.indexer.dynamic_axes),
)
ir.define_printer(
    take_p,
    lambda e, names: (
        f"{names.binder(e.outvars[0])} = {place_of(e, names, e.invars[1:])}{promises(e)}"
    ),
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


rules.define(
    resolve_index_p,
    abstract_eval=rules.pure(_resolve_aval),
    lower=_resolve_lower,
    jvp=rules.Refusal("its result is an integer; integers have no tangents"),
    batch=broadcast.same_dims_batch(resolve_index_p),
)
