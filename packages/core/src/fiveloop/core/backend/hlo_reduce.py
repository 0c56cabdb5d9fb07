"""StableHLO operations that combine elements: reductions, running reductions, sorting."""

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from .hlo_builder import Builder, IRValue, TypeSpec, generic, int_array, int_list
from .hlo_constant import constant
from .hlo_elementwise import and_, compare, imag, or_, real, select
from .hlo_index import COMBINERS

_finfo: Any = ml_dtypes.finfo  # NumPy's own does not know the 8-bit floats

_OP_NAMES = {
    "add": "add",
    "mul": "multiply",
    "max": "maximum",
    "min": "minimum",
    "and": "and",
    "or": "or",
}


def identity(kind: str, dtype: np.dtype) -> np.ndarray:
    """The element that leaves any other unchanged under the reduction `kind`."""
    match kind:
        case "add" | "or":
            value: object = 0
        case "mul":
            value = 1
        case "and":
            value = True if dtype == np.bool_ else np.array(-1).astype(dtype)
        case "max":
            value = _extreme(dtype, low=True)
        case "min":
            value = _extreme(dtype, low=False)
        case _:
            known = ", ".join(_OP_NAMES)
            raise ValueError(f"expected a reduction among {known}, got {kind!r}")
    return np.asarray(value).astype(dtype)


def _extreme(dtype: np.dtype, low: bool) -> object:
    """The least or greatest value; a float without infinities gives its largest finite one."""
    if dtype == np.bool_:
        return not low
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return info.min if low else info.max
    infinity = np.asarray(-np.inf if low else np.inf).astype(dtype)
    if np.isinf(infinity):
        return infinity
    finite = _finfo(dtype)
    return finite.min if low else finite.max


def reduce(b: Builder, x: IRValue, dims: Sequence[int], kind: str) -> IRValue:
    """`x` combined along `dims`; `kind` is add, mul, max, min, and, or."""
    if not len(dims):
        return x
    init = constant(b, identity(kind, x.dtype))
    shape = _without(x.shape, dims)
    out = IRValue("", shape, x.dtype).type
    text = (
        f"stablehlo.reduce({x.name} init: {init.name}) applies stablehlo.{_OP_NAMES[kind]} "
        f"across dimensions = {int_list(dims)} : ({x.type}, {init.type}) -> {out}"
    )
    return b.emit(text, shape, x.dtype)


def reduce_generic(
    b: Builder,
    xs: Sequence[IRValue],
    inits: Sequence[IRValue],
    dims: Sequence[int],
    body: Callable[[list[IRValue], list[IRValue]], list[IRValue]],
) -> list[IRValue]:
    """Several arrays combined together: `body(left, right)` on scalars, one of each per array."""
    args = b.region_args([((), x.dtype) for x in xs] * 2)
    left, right = args[: len(xs)], args[len(xs) :]
    text, _ = b.region(lambda: body(left, right), args)
    results: list[TypeSpec] = [(_without(x.shape, dims), x.dtype) for x in xs]
    attrs = f"dimensions = {int_array(dims)}"
    return generic(b, "stablehlo.reduce", [*xs, *inits], results, attrs, [text])


def reduce_window(
    b: Builder,
    x: IRValue,
    kind: str,
    window: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: Sequence[tuple[int, int]] | None = None,
    base_dilations: Sequence[int] | None = None,
    window_dilations: Sequence[int] | None = None,
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
    init = constant(b, identity(kind, x.dtype))
    left, right = b.region_args([((), x.dtype)] * 2)
    combine = COMBINERS[kind]
    body, _ = b.region(lambda: [combine(b, left, right)], [left, right])
    rows = ", ".join([int_list(pair) for pair in pads])
    attrs = (
        f"window_dimensions = {int_array(window)}, window_strides = {int_array(strides)}, "
        f"base_dilations = {int_array(base)}, window_dilations = {int_array(dilations)}, "
        f"padding = dense<[{rows}]> : tensor<{len(ones)}x2xi64>"
    )
    out: list[TypeSpec] = [(shape, x.dtype)]
    return generic(b, "stablehlo.reduce_window", [x, init], out, attrs, [body])[0]


Comparator = Callable[[list[IRValue], list[IRValue]], IRValue]
"""Says whether the elements of the first list come before those of the second."""


def sort(
    b: Builder,
    xs: Sequence[IRValue],
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
    results: list[TypeSpec] = [(x.shape, x.dtype) for x in xs]
    return generic(b, "stablehlo.sort", xs, results, attrs, [text])


def _by_keys(b: Builder, num_keys: int) -> Comparator:
    def before(left: list[IRValue], right: list[IRValue]) -> IRValue:
        pairs = [
            pair
            for x, y in zip(left[:num_keys], right[:num_keys], strict=True)
            for pair in zip(_sort_parts(b, x), _sort_parts(b, y), strict=True)
        ]
        less = compare(b, *pairs[-1], "LT", total_order=True)
        for x, y in reversed(pairs[:-1]):
            tie = compare(b, x, y, "EQ", total_order=True)
            less = or_(b, compare(b, x, y, "LT", total_order=True), and_(b, tie, less))
        return less

    return before


def _sort_parts(b: Builder, x: IRValue) -> list[IRValue]:
    """A key as scalars whose total order is the order wanted: one zero, one NaN, NaN last."""
    if x.dtype.kind == "c":
        return [*_sort_parts(b, real(b, x)), *_sort_parts(b, imag(b, x))]
    if x.dtype.kind in "iub":
        return [x]
    zero = constant(b, 0, (), x.dtype)
    nan = constant(b, np.nan, (), x.dtype)
    one_zero = select(b, compare(b, x, zero, "EQ"), zero, x)
    return [select(b, compare(b, x, x, "NE"), nan, one_zero)]


def _without(shape: Sequence[int], dims: Sequence[int]) -> tuple[int, ...]:
    return tuple([d for i, d in enumerate(shape) if i not in dims])
