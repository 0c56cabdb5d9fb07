"""StableHLO operations on whole arrays: shapes, parts, gathers, scatters, reductions, sorts, contractions."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod

import numpy as np
from numpy.typing import DTypeLike

from ..dataclass import replace
from . import hlo_builder as build
from . import hlo_elementwise as each
from .hlo_builder import Builder, Ints, IRValue, IRValues, constant, generic, int_array, int_list

# shapes


def iota(b: Builder, shape: Ints, dtype: DTypeLike, dimension: int) -> IRValue:
    """An array that counts 0, 1, 2, ... along one dimension."""
    out = np.dtype(dtype)
    text = f"stablehlo.iota dim = {dimension} : {build.tensor_type(shape, out)}"
    return b.emit(text, tuple(shape), out)


def broadcast_in_dim(b: Builder, x: IRValue, shape: Ints, dims: Ints) -> IRValue:
    """`x` repeated to `shape`; axis k of `x` becomes axis `dims[k]`."""
    out = tuple(shape)
    if out == x.shape and tuple(dims) == tuple(range(len(out))):
        return x
    text = f"stablehlo.broadcast_in_dim {x.name}, dims = {int_list(dims)}"
    return b.emit_typed(text, [x], out, x.dtype)


def reshape(b: Builder, x: IRValue, shape: Ints) -> IRValue:
    """The same elements, in row-major order, under another shape."""
    out = tuple(shape)
    if out == x.shape:
        return x
    return b.emit_typed(f"stablehlo.reshape {x.name}", [x], out, x.dtype)


def transpose(b: Builder, x: IRValue, perm: Ints) -> IRValue:
    """Axes reordered: axis k of the result is axis `perm[k]` of `x`."""
    if tuple(perm) == tuple(range(len(x.shape))):
        return x
    if x.transposed is not None:
        return x.transposed
    text = f"stablehlo.transpose {x.name}, dims = {int_list(perm)}"
    out = b.emit_typed(text, [x], [x.shape[p] for p in perm], x.dtype)
    return replace(out, transposed=x) if len(perm) == 2 else out


def reverse(b: Builder, x: IRValue, dims: Ints) -> IRValue:
    """The order of elements turned round along `dims`."""
    if not len(dims):
        return x
    text = f"stablehlo.reverse {x.name}, dims = {int_list(dims)} : {x.type}"
    return b.emit(text, x.shape, x.dtype)


def concatenate(b: Builder, xs: IRValues, dim: int) -> IRValue:
    """Arrays joined end to end along one dimension."""
    if len(xs) == 1:
        return xs[0]
    shape = list(xs[0].shape)
    shape[dim] = sum([x.shape[dim] for x in xs])
    return b.emit_typed(
        f"stablehlo.concatenate {build.names(xs)}, dim = {dim}", xs, shape, xs[0].dtype
    )


def pad(b: Builder, x: IRValue, value: IRValue, low: Ints, high: Ints, interior: Ints) -> IRValue:
    """`x` with a scalar put around and between its elements; negative amounts cut."""
    sizes = zip(x.shape, low, high, interior, strict=True)
    shape = [lo + hi + n + max(n - 1, 0) * inner for n, lo, hi, inner in sizes]
    amounts = f"low = {int_list(low)}, high = {int_list(high)}, interior = {int_list(interior)}"
    text = f"stablehlo.pad {x.name}, {value.name}, {amounts}"
    return b.emit_typed(text, [x, value], shape, x.dtype)


# parts


def slice(b: Builder, x: IRValue, start: Ints, limit: Ints, strides: Ints) -> IRValue:
    """Elements from `start` up to `limit` by `strides`, along every axis."""
    bounds = [*zip(start, limit, strides, strict=True)]
    if bounds == [(0, d, 1) for d in x.shape]:
        return x
    shape = [-((lo - hi) // by) for lo, hi, by in bounds]
    spec = ", ".join([f"{lo}:{hi}:{by}" if by != 1 else f"{lo}:{hi}" for lo, hi, by in bounds])
    return b.emit_typed(f"stablehlo.slice {x.name} [{spec}]", [x], shape, x.dtype)


def dynamic_slice(b: Builder, x: IRValue, starts: IRValues, sizes: Ints) -> IRValue:
    """A block of `sizes` at run-time `starts`, which are clamped so that the block fits."""
    if not x.shape:
        return x
    text = f"stablehlo.dynamic_slice {x.name}, {build.names(starts)}, sizes = {int_list(sizes)}"
    return b.emit_typed(text, [x, *starts], sizes, x.dtype)


def dynamic_update_slice(b: Builder, x: IRValue, update: IRValue, starts: IRValues) -> IRValue:
    """`x` with a block replaced at run-time `starts`, which are clamped so that the block fits."""
    if not x.shape:
        return update
    operands = [x, update, *starts]
    text = f"stablehlo.dynamic_update_slice {build.names(operands)}"
    return b.emit_typed(text, operands, x.shape, x.dtype)


def gather(
    b: Builder,
    operand: IRValue,
    indices: IRValue,
    *,
    offset_dims: Ints,
    collapsed_slice_dims: Ints,
    operand_batching_dims: Ints = (),
    start_indices_batching_dims: Ints = (),
    start_index_map: Ints,
    index_vector_dim: int,
    slice_sizes: Ints,
    indices_are_sorted: bool = False,
) -> IRValue:
    """Blocks of `operand` at many run-time positions; positions are clamped."""
    dropped = {*collapsed_slice_dims, *operand_batching_dims}
    windows = iter([size for i, size in enumerate(slice_sizes) if i not in dropped])
    batch = iter([d for i, d in enumerate(indices.shape) if i != index_vector_dim])
    batch_rank = len(indices.shape) - (index_vector_dim < len(indices.shape))
    rank = len(offset_dims) + batch_rank
    shape = tuple([next(windows) if i in offset_dims else next(batch) for i in range(rank)])
    numbers = _dimension_numbers(
        offset_dims=offset_dims,
        collapsed_slice_dims=collapsed_slice_dims,
        operand_batching_dims=operand_batching_dims,
        start_indices_batching_dims=start_indices_batching_dims,
        start_index_map=start_index_map,
    )
    attrs = (
        f"dimension_numbers = #stablehlo.gather<{numbers}index_vector_dim = {index_vector_dim}>, "
        f"indices_are_sorted = {_bool(indices_are_sorted)}, slice_sizes = {int_array(slice_sizes)}"
    )
    out = [(shape, operand.dtype)]
    return generic(b, "stablehlo.gather", [operand, indices], out, attrs)[0]


def scatter(
    b: Builder,
    operand: IRValue,
    indices: IRValue,
    updates: IRValue,
    *,
    update_window_dims: Ints,
    inserted_window_dims: Ints,
    input_batching_dims: Ints = (),
    scatter_indices_batching_dims: Ints = (),
    scatter_dims_to_operand_dims: Ints,
    index_vector_dim: int,
    kind: str = "set",
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
) -> IRValue:
    """`operand` with blocks combined into it; `kind` is "set" or a name in `COMBINERS`.

    A block that does not fit is left out.
    """
    numbers = _dimension_numbers(
        update_window_dims=update_window_dims,
        inserted_window_dims=inserted_window_dims,
        input_batching_dims=input_batching_dims,
        scatter_indices_batching_dims=scatter_indices_batching_dims,
        scatter_dims_to_operand_dims=scatter_dims_to_operand_dims,
    )
    attrs = (
        f"scatter_dimension_numbers = #stablehlo.scatter<{numbers}"
        f"index_vector_dim = {index_vector_dim}>, "
        f"indices_are_sorted = {_bool(indices_are_sorted)}, "
        f"unique_indices = {_bool(unique_indices)}"
    )
    old, new = b.region_args([((), operand.dtype)] * 2)
    combine = each.COMBINERS.get(kind)
    body, _ = b.region(lambda: [new if combine is None else combine(b, old, new)], [old, new])
    operands = [operand, indices, updates]
    out = [(operand.shape, operand.dtype)]
    return generic(b, "stablehlo.scatter", operands, out, attrs, [body])[0]


def _dimension_numbers(**dims: Ints) -> str:
    """The lists that are not empty, each followed by a comma."""
    return "".join([f"{key} = {int_list(value)}, " for key, value in dims.items() if len(value)])


def _bool(flag: bool) -> str:
    return "true" if flag else "false"


# combining elements


def reduce(b: Builder, x: IRValue, dims: Ints, kind: str) -> IRValue:
    """`x` combined along `dims`; `kind` is add, mul, max, min, and, or."""
    if not len(dims):
        return x
    init = constant(b, each.identity(kind, x.dtype))
    text = (
        f"stablehlo.reduce({x.name} init: {init.name}) applies stablehlo.{each.COMBINERS[kind].__name__} "
        f"across dimensions = {int_list(dims)}"
    )
    return b.emit_typed(text, [x, init], _without(x.shape, dims), x.dtype)


def reduce_generic(
    b: Builder,
    xs: IRValues,
    inits: IRValues,
    dims: Ints,
    body: Callable[[list[IRValue], list[IRValue]], list[IRValue]],
) -> list[IRValue]:
    """Several arrays combined together: `body(left, right)` on scalars, one of each per array."""
    args = b.region_args([((), x.dtype) for x in xs] * 2)
    left, right = args[: len(xs)], args[len(xs) :]
    text, _ = b.region(lambda: body(left, right), args)
    results: list[build.TypeSpec] = [(_without(x.shape, dims), x.dtype) for x in xs]
    attrs = f"dimensions = {int_array(dims)}"
    return generic(b, "stablehlo.reduce", [*xs, *inits], results, attrs, [text])


def reduce_window(
    b: Builder,
    x: IRValue,
    kind: str,
    window: Ints,
    strides: Ints | None = None,
    padding: Sequence[tuple[int, int]] | None = None,
    base_dilations: Ints | None = None,
    window_dilations: Ints | None = None,
) -> IRValue:
    """`x` combined within a window that slides over it, padded with the identity."""
    ones = [1] * len(x.shape)
    strides = strides if strides is not None else ones
    base = base_dilations if base_dilations is not None else ones
    dilations = window_dilations if window_dilations is not None else ones
    pads = padding if padding is not None else [(0, 0)] * len(ones)
    shape = []
    for size, w, by, (lo, hi), gap, dilation in zip(
        x.shape, window, strides, pads, base, dilations, strict=True
    ):
        padded = lo + hi + (max(size - 1, 0) * gap + min(size, 1))
        reach = (w - 1) * dilation + 1
        shape.append(max((padded - reach) // by + 1, 0))
    init = constant(b, each.identity(kind, x.dtype))
    left, right = b.region_args([((), x.dtype)] * 2)
    combine = each.COMBINERS[kind]
    body, _ = b.region(lambda: [combine(b, left, right)], [left, right])
    rows = ", ".join([int_list(pair) for pair in pads])
    attrs = (
        f"window_dimensions = {int_array(window)}, window_strides = {int_array(strides)}, "
        f"base_dilations = {int_array(base)}, window_dilations = {int_array(dilations)}, "
        f"padding = dense<[{rows}]> : tensor<{len(ones)}x2xi64>"
    )
    out: list[build.TypeSpec] = [(shape, x.dtype)]
    return generic(b, "stablehlo.reduce_window", [x, init], out, attrs, [body])[0]


Comparator = Callable[[list[IRValue], list[IRValue]], IRValue]
"""Says whether the elements of the first list come before those of the second."""


def sort(
    b: Builder,
    xs: IRValues,
    dim: int,
    comparator: Comparator | None = None,
    *,
    num_keys: int = 1,
    stable: bool = True,
) -> list[IRValue]:
    """Arrays sorted together along `dim`, ascending by the first `num_keys` of them.

    NaN comes last, and both zeros are equal. A comparator of one's own overrides the keys.
    """
    before = comparator if comparator is not None else _by_keys(b, num_keys)
    # Parameters come in pairs: left and right of the first array, then of the second, ...
    args = b.region_args([((), x.dtype) for x in xs for _ in range(2)])
    text, _ = b.region(lambda: [before(args[0::2], args[1::2])], args)
    attrs = f"dimension = {dim} : i64, is_stable = {'true' if stable else 'false'}"
    results: list[build.TypeSpec] = [(x.shape, x.dtype) for x in xs]
    return generic(b, "stablehlo.sort", xs, results, attrs, [text])


def top_k(b: Builder, x: IRValue, k: int) -> list[IRValue]:
    """The `k` greatest elements along the last axis, in descending order, and their places; NaN is the greatest."""
    shape = (*x.shape[:-1], k)
    results: list[build.TypeSpec] = [(shape, x.dtype), (shape, np.dtype(np.int32))]
    return generic(b, "chlo.top_k", [x], results, f"k = {k} : i64")


def _by_keys(b: Builder, num_keys: int) -> Comparator:
    def before(left: list[IRValue], right: list[IRValue]) -> IRValue:
        pairs = [
            pair
            for x, y in zip(left[:num_keys], right[:num_keys], strict=True)
            for pair in zip(_sort_parts(b, x), _sort_parts(b, y), strict=True)
        ]
        less = each.compare(b, *pairs[-1], "LT", total_order=True)
        for x, y in reversed(pairs[:-1]):
            tie = each.compare(b, x, y, "EQ", total_order=True)
            less = each.or_(
                b, each.compare(b, x, y, "LT", total_order=True), each.and_(b, tie, less)
            )
        return less

    return before


def _sort_parts(b: Builder, x: IRValue) -> list[IRValue]:
    """A key as scalars whose total order is the sorting order: zeros equal, NaNs equal and last."""
    if x.dtype.kind == "c":
        return [*_sort_parts(b, each.real(b, x)), *_sort_parts(b, each.imag(b, x))]
    if x.dtype.kind in "iub":
        return [x]
    zero = constant(b, 0, (), x.dtype)
    nan = constant(b, np.nan, (), x.dtype)
    one_zero = each.select(b, each.compare(b, x, zero, "EQ"), zero, x)
    return [each.select(b, each.compare(b, x, x, "NE"), nan, one_zero)]


def _without(shape: Ints, dims: Ints) -> tuple[int, ...]:
    return tuple([d for i, d in enumerate(shape) if i not in dims])


# contractions: XLA copies an operand with several contracted axes, or several free ones behind a contracted one, into
# the order in which it multiplies matrices. Axes that lie beside each other are one axis to the hardware: merged,
# nothing is copied.

Run = tuple[int, ...]
"""Axes that lie beside each other."""


def dot_general(
    b: Builder,
    x: IRValue,
    y: IRValue,
    lhs_batch: Ints,
    rhs_batch: Ints,
    lhs_contract: Ints,
    rhs_contract: Ints,
    out_dtype: DTypeLike,
    precision: str | tuple[str, str] | None = None,
) -> IRValue:
    """Products summed over contracted axes: batch axes first, then those of `x`, then of `y`."""
    free_x = _free(x, [*lhs_batch, *lhs_contract])
    free_y = _free(y, [*rhs_batch, *rhs_contract])
    shape = (
        *[x.shape[k] for k in lhs_batch],
        *[x.shape[k] for k in free_x],
        *[y.shape[k] for k in free_y],
    )
    pairs = sorted(zip(lhs_contract, rhs_contract, strict=True))
    if not _is_copied(x, y, len(lhs_batch), pairs):
        axes = lhs_batch, rhs_batch, lhs_contract, rhs_contract
        return _product(b, x, y, axes, shape, out_dtype, precision)
    contracted = _runs(pairs)
    wide_x, wide_y = ([run for (run,) in _runs([(k,) for k in free])] for free in (free_x, free_y))
    runs_x = [*[(k,) for k in lhs_batch], *[c[0] for c in contracted], *wide_x]
    runs_y = [*[(k,) for k in rhs_batch], *[c[1] for c in contracted], *wide_y]
    (x, place_x), (y, place_y) = _merged(b, x, runs_x), _merged(b, y, runs_y)
    merged = (
        [place_x[k] for k in lhs_batch],
        [place_y[k] for k in rhs_batch],
        [place_x[c[0][0]] for c in contracted],
        [place_y[c[1][0]] for c in contracted],
    )
    sizes = (
        *[x.shape[k] for k in merged[0]],
        *[x.shape[k] for k in _free(x, [*merged[0], *merged[2]])],
        *[y.shape[k] for k in _free(y, [*merged[1], *merged[3]])],
    )
    return reshape(b, _product(b, x, y, merged, sizes, out_dtype, precision), shape)


def _product(
    b: Builder,
    x: IRValue,
    y: IRValue,
    axes: tuple[Ints, Ints, Ints, Ints],
    shape: Ints,
    out_dtype: DTypeLike,
    precision: str | tuple[str, str] | None,
) -> IRValue:
    lhs_batch, rhs_batch, lhs_contract, rhs_contract = axes
    parts = [f"stablehlo.dot_general {x.name}, {y.name}"]
    if len(lhs_batch):
        parts.append(f"batching_dims = {int_list(lhs_batch)} x {int_list(rhs_batch)}")
    parts.append(f"contracting_dims = {int_list(lhs_contract)} x {int_list(rhs_contract)}")
    if precision is not None:
        pair = (precision, precision) if isinstance(precision, str) else precision
        parts.append(f"precision = [{pair[0]}, {pair[1]}]")
    return b.emit_typed(", ".join(parts), [x, y], shape, np.dtype(out_dtype))


def _free(x: IRValue, used: Iterable[int]) -> list[int]:
    gone = set(used)
    return [k for k in range(len(x.shape)) if k not in gone]


def _is_copied(x: IRValue, y: IRValue, batch: int, pairs: Sequence[tuple[int, int]]) -> bool:
    """Whether operands have axes to merge and do not lie as matrices do: contracted last in `x`, first in `y`."""
    if not all(isinstance(n, int) for n in (*x.shape, *y.shape)):
        return False
    rank_x, num = len(x.shape), len(pairs)
    lies = [(rank_x - num + k, batch + k) for k in range(num)]
    rests = (rank_x - batch - num, len(y.shape) - batch - num)
    return list(pairs) != lies and (num > 1 or max(rests) > 1)


def _runs(axes: Iterable[tuple[int, ...]]) -> list[tuple[Run, ...]]:
    """Runs of axes: of one operand, or of pairs in both operands at once."""
    found: list[tuple[Run, ...]] = []
    for row in axes:
        if found and tuple([run[-1] + 1 for run in found[-1]]) == row:
            found[-1] = tuple([(*run, k) for run, k in zip(found[-1], row, strict=True)])
        else:
            found.append(tuple([(k,) for k in row]))
    return found


def _merged(b: Builder, x: IRValue, runs: Sequence[Run]) -> tuple[IRValue, dict[int, int]]:
    """An operand with each run as one axis; and which axis the first of a run has become."""
    order = sorted(runs)
    sizes = [prod(x.shape[k] for k in run) for run in order]
    return reshape(b, x, sizes), {run[0]: k for k, run in enumerate(order)}


# blocks that may lie outside, in part or whole: read as zero there, and not written. Only the block is masked, never
# the array, so that an update stays in place.

Distances = Mapping[int, IRValue]
"""For some axes, how far a block is from the place where it fits."""


def slice_or_zero(b: Builder, x: IRValue, starts: IRValues, sizes: Ints, axes: Ints) -> IRValue:
    """A block of `sizes` at run-time `starts`, with zeros where it lies outside along `axes`."""
    fitting, away = _fitting(b, x, starts, sizes, axes)
    found = dynamic_slice(b, x, fitting, sizes)
    zero = constant(b, 0, found.shape, x.dtype)
    return each.select(b, _inside(b, sizes, away), _moved(b, found, away), zero)


def update_inside(b: Builder, x: IRValue, update: IRValue, starts: IRValues, axes: Ints) -> IRValue:
    """`x` with a block replaced at run-time `starts`, without what lies outside along `axes`."""
    fitting, away = _fitting(b, x, starts, update.shape, axes)
    back = {k: each.neg(b, d) for k, d in away.items()}
    old = dynamic_slice(b, x, fitting, update.shape)
    new = each.select(b, _inside(b, update.shape, back), _moved(b, update, back), old)
    return dynamic_update_slice(b, x, new, fitting)


def zero_outside(
    b: Builder,
    blocks: IRValue,
    x: IRValue,
    indices: IRValue,
    index_map: Ints,
    sizes: Ints,
    window_dims: Ints,
) -> IRValue:
    """What a gather reads, with zeros in the place of blocks that do not fit."""
    last = [x.shape[k] - sizes[k] for k in index_map]
    rank = len(indices.shape) - 1
    high = constant(b, np.asarray(last, indices.dtype))
    high = broadcast_in_dim(b, high, indices.shape, (rank,))
    low = constant(b, 0, indices.shape, indices.dtype)
    fits = each.and_(b, each.compare(b, indices, low, "GE"), each.compare(b, indices, high, "LE"))
    kept = [k for k in range(len(blocks.shape)) if k not in window_dims]
    mask = broadcast_in_dim(b, reduce(b, fits, (rank,), "and"), blocks.shape, kept)
    return each.select(b, mask, blocks, constant(b, 0, blocks.shape, blocks.dtype))


def _fitting(
    b: Builder, x: IRValue, starts: IRValues, sizes: Ints, axes: Ints
) -> tuple[list[IRValue], Distances]:
    """The starts moved until the block fits, and how far they were away."""
    fitting, away = list(starts), {}
    for k in axes:
        low = constant(b, 0, (), starts[k].dtype)
        high = constant(b, x.shape[k] - sizes[k], (), starts[k].dtype)
        fitting[k] = each.clamp(b, low, starts[k], high)
        away[k] = each.sub(b, starts[k], fitting[k])
    return fitting, away


def _inside(b: Builder, sizes: Ints, away: Distances) -> IRValue:
    """For each position of a block, or for the whole of it, whether it is in the block again so far away."""
    masks = [_inside_along(b, sizes[k], d) for k, d in away.items()]
    if all(not mask.shape for mask in masks):
        wide = masks
    else:
        pairs = zip(away, masks, strict=True)
        wide = [broadcast_in_dim(b, m, tuple(sizes), (k,) if m.shape else ()) for k, m in pairs]
    out = wide[0]
    for mask in wide[1:]:
        out = each.and_(b, out, mask)
    return out


def _inside_along(b: Builder, size: int, away: IRValue) -> IRValue:
    if size == 1:
        return each.compare(b, away, constant(b, 0, (), away.dtype), "EQ")
    position = iota(b, (size,), away.dtype, 0)
    position = each.add(b, position, broadcast_in_dim(b, away, (size,), ()))
    first = each.compare(b, position, constant(b, 0, (size,), away.dtype), "GE")
    return each.and_(
        b, first, each.compare(b, position, constant(b, size, (size,), away.dtype), "LT")
    )


def _moved(b: Builder, x: IRValue, away: Distances) -> IRValue:
    """A block in which each element stands so far before its place; what comes from outside is zero."""
    far = {k: d for k, d in away.items() if x.shape[k] > 1}
    if not far:
        return x
    room = [n if k in far else 0 for k, n in enumerate(x.shape)]
    dtype = next(iter(far.values())).dtype
    starts = []
    for k, n in enumerate(room):
        start = constant(b, n, (), dtype)
        if n:
            start = each.add(b, start, each.clamp(b, each.neg(b, start), far[k], start))
        starts.append(start)
    wide = pad(b, x, constant(b, 0, (), x.dtype), room, room, [0] * len(room))
    return dynamic_slice(b, wide, starts, x.shape)
