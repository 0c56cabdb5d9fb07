"""StableHLO operations that read or write parts of arrays."""

from collections.abc import Sequence

from .hlo_builder import Builder, IRValue, generic, int_array, int_list, names, tensor_type, types
from .hlo_elementwise import add, and_, max, min, mul, or_

COMBINERS = {"add": add, "mul": mul, "max": max, "min": min, "and": and_, "or": or_}


def slice(
    b: Builder, x: IRValue, start: Sequence[int], limit: Sequence[int], strides: Sequence[int]
) -> IRValue:
    """Elements from `start` up to `limit` by `strides`, along every axis."""
    bounds = [*zip(start, limit, strides, strict=True)]
    if bounds == [(0, d, 1) for d in x.shape]:
        return x
    shape = tuple([-((lo - hi) // by) for lo, hi, by in bounds])
    spec = ", ".join([f"{lo}:{hi}:{by}" if by != 1 else f"{lo}:{hi}" for lo, hi, by in bounds])
    text = f"stablehlo.slice {x.name} [{spec}] : ({x.type}) -> {tensor_type(shape, x.dtype)}"
    return b.emit(text, shape, x.dtype)


def dynamic_slice(
    b: Builder, x: IRValue, starts: Sequence[IRValue], sizes: Sequence[int]
) -> IRValue:
    """A block of `sizes` at run-time `starts`, which are clamped so that the block fits."""
    if not x.shape:
        return x
    shape = tuple(sizes)
    text = f"stablehlo.dynamic_slice {x.name}, {names(starts)}, sizes = {int_list(sizes)}"
    signature = f"({x.type}, {types(starts)}) -> {tensor_type(shape, x.dtype)}"
    return b.emit(f"{text} : {signature}", shape, x.dtype)


def dynamic_update_slice(
    b: Builder, x: IRValue, update: IRValue, starts: Sequence[IRValue]
) -> IRValue:
    """`x` with a block replaced at run-time `starts`, which are clamped so that the block fits."""
    if not x.shape:
        return update
    text = f"stablehlo.dynamic_update_slice {x.name}, {update.name}, {names(starts)}"
    signature = f"({x.type}, {update.type}, {types(starts)}) -> {x.type}"
    return b.emit(f"{text} : {signature}", x.shape, x.dtype)


def gather(
    b: Builder,
    operand: IRValue,
    indices: IRValue,
    *,
    offset_dims: Sequence[int],
    collapsed_slice_dims: Sequence[int],
    operand_batching_dims: Sequence[int] = (),
    start_indices_batching_dims: Sequence[int] = (),
    start_index_map: Sequence[int],
    index_vector_dim: int,
    slice_sizes: Sequence[int],
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
    update_window_dims: Sequence[int],
    inserted_window_dims: Sequence[int],
    input_batching_dims: Sequence[int] = (),
    scatter_indices_batching_dims: Sequence[int] = (),
    scatter_dims_to_operand_dims: Sequence[int],
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
    combine = COMBINERS.get(kind)
    body, _ = b.region(lambda: [new if combine is None else combine(b, old, new)], [old, new])
    operands = [operand, indices, updates]
    out = [(operand.shape, operand.dtype)]
    return generic(b, "stablehlo.scatter", operands, out, attrs, [body])[0]


def _dimension_numbers(**dims: Sequence[int]) -> str:
    """The lists that are not empty, each followed by a comma."""
    return "".join([f"{key} = {int_list(value)}, " for key, value in dims.items() if len(value)])


def _bool(flag: bool) -> str:
    return "true" if flag else "false"
