"""Making arrays: from numbers, lists and NumPy arrays, or from a shape."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
from fiveloop.core import ArrayLike, Value, arrays, ir, prims, trace
from fiveloop.core.extend import fused
from fiveloop.core.operators import operators as op

Nested = Sequence[Any]
_NUMBERS = (bool, int, float, complex)
_DEFAULTS: dict[str, Any] = {"int64": np.int32, "float64": np.float32, "complex128": np.complex64}


def asarray(x: ArrayLike | Nested, dtype: Any = None) -> Value:
    """An array of the given elements: a number, an array of any library, or nested lists of those.

    Python floats become float32, ints int32 (int64 if they must) and complex numbers complex64; NumPy
    arrays keep their dtype. TypeError for anything that holds no numbers, ValueError for ragged lists.

    >>> fnp.asarray([[1, 2], [3, 4]])
    Array([[1, 2],
           [3, 4]], dtype=int32)
    """
    if arrays.is_python_number(x):
        typed = arrays.Typed(
            arrays.python_typed(x).dtype
            if dtype is None
            else prims.canonical_dtype("asarray", dtype)
        )
        return _on_device(arrays.host_scalar(x, typed, "asarray"))
    if isinstance(x, (list, tuple)):
        value = _from_list(x, None if dtype is None else prims.canonical_dtype("asarray", dtype))
    else:
        value = arrays.as_value(x, "asarray: argument `x`")
    value = prims.operand("asarray", "x", value)
    if dtype is not None:
        value = _cast(value, prims.canonical_dtype("asarray", dtype))
    elif value.weak_type:
        value = prims.convert(value, value.dtype)
    return _on_device(value)


def array(x: ArrayLike | Nested, dtype: Any = None) -> Value:
    """An array of the given elements; see `asarray`. Arrays are immutable, so nothing needs copying.

    >>> fnp.array([1.0, 2.5])
    Array([1. , 2.5], dtype=float32)
    """
    return asarray(x, dtype)


def copy(x: ArrayLike) -> Value:
    """The same array: arrays are immutable.

    >>> fnp.copy(np.arange(2))
    Array([0, 1], dtype=int64)
    """
    return asarray(x)


def _cast(x: Value, dtype: np.dtype[Any]) -> Value:
    return prims.not_equal(x, 0) if dtype == np.bool_ != x.dtype else prims.convert(x, dtype)


def _on_device(x: Value) -> Value:
    return trace.array_of_number(x) if isinstance(x, arrays.Scalar) else x


def _from_list(x: Sequence[Any], dtype: np.dtype[Any] | None) -> Value:
    leaves = list(_leaves(x))
    if any(isinstance(leaf, Value) for leaf in leaves):
        return prims.stack([asarray(item, _own_dtype(item, leaves, dtype)) for item in x])
    try:
        host = np.asarray(x)
    except ValueError:
        host = np.asarray(None)
    if host.dtype == object:
        for leaf in leaves:
            arrays.as_value(leaf, "asarray: an element of `x`")
        prims.bad_value(f"asarray: expected nested lists of equal lengths, got {x!r}")
    if all(type(leaf) in _NUMBERS for leaf in leaves):
        if dtype is not None and host.size and host.dtype.kind in "iu":
            for bound in (host.min(), host.max()):
                arrays.host_scalar(bound, arrays.Typed(dtype), "asarray: argument `x`")
        if dtype is None:  # or the cast to it would find fewer digits
            small = _DEFAULTS.get(host.dtype.name, host.dtype)
            fits = host.dtype.kind != "i" or np.array_equal(host.astype(small), host)
            host = host.astype(small if fits else host.dtype)
    return (
        arrays.device_put(host)
        if host.dtype.kind in "biufcV"
        else arrays.as_value(host, "asarray: argument `x`")
    )


def _own_dtype(
    item: Any, leaves: Sequence[Any], dtype: np.dtype[Any] | None
) -> np.dtype[Any] | None:
    """The dtype to make an item of a list in: numbers have all their digits where the others are wide floats."""
    if not all(
        arrays.is_python_number(x) or (isinstance(x, Value) and x.weak_type) for x in _leaves(item)
    ):
        return None
    if dtype is not None:
        return dtype
    joined = arrays.join(tuple(_typed(leaf) for leaf in leaves)).dtype
    return joined if ir.is_inexact(joined) else None


def _typed(leaf: Any) -> arrays.Typed:
    if arrays.is_python_number(leaf):
        return arrays.python_typed(leaf)
    aval = arrays.as_value(leaf, "asarray: an element of `x`").aval
    return arrays.Typed(aval.dtype, aval.weak_type)


def _leaves(x: Any) -> Any:
    if isinstance(x, (list, tuple)):
        for item in x:
            yield from _leaves(item)
    else:
        yield x


def full(shape: Any, fill_value: ArrayLike, dtype: Any = None) -> Value:
    """An array of a shape that holds one value everywhere; `fill_value` broadcasts to it.

    A Python number gives float32, int32 or bool unless `dtype` is given.

    >>> fnp.full((2, 2), 7)
    Array([[7, 7],
           [7, 7]], dtype=int32)
    """
    return _filled("full", shape, fill_value, dtype)


def _filled(fun: str, shape: Any, fill_value: ArrayLike, dtype: Any) -> Value:
    """What `full` and those like it give; errors name the one that was called."""
    out = prims.canonical_shape(fun, shape)
    kind = None if dtype is None else prims.canonical_dtype(fun, dtype)
    if arrays.is_python_number(fill_value):
        typed = arrays.Typed(kind or arrays.python_typed(fill_value).dtype)
        fill_value = arrays.host_scalar(fill_value, typed, f"{fun}: argument `fill_value`")
        if trace.is_eager():
            return arrays.device_put(np.full(out, fill_value.host))
    value = prims.operand(fun, "fill_value", fill_value)
    return prims.broadcast_to(value if kind is None else _cast(value, kind), out)


def zeros(shape: Any, dtype: Any = np.float32) -> Value:
    """An array of zeros, by default float32.

    >>> fnp.zeros(3)
    Array([0., 0., 0.], dtype=float32)
    """
    return _filled("zeros", shape, 0, dtype)


def ones(shape: Any, dtype: Any = np.float32) -> Value:
    """An array of ones, by default float32.

    >>> fnp.ones((1, 2), int)
    Array([[1, 1]], dtype=int64)
    """
    return _filled("ones", shape, 1, dtype)


def empty(shape: Any, dtype: Any = np.float32) -> Value:
    """An array of zeros; arrays are immutable, so it cannot be filled later.

    >>> fnp.empty(2)
    Array([0., 0.], dtype=float32)
    """
    return _filled("empty", shape, 0, dtype)


def full_like(
    x: ArrayLike, fill_value: ArrayLike, dtype: Any = None, *, shape: Any = None
) -> Value:
    """An array of the shape and dtype of `x` that holds one value everywhere.

    >>> fnp.full_like(np.ones(2), 3)
    Array([3., 3.], dtype=float64)
    """
    return _filled_like("full_like", x, fill_value, dtype, shape)


def _filled_like(fun: str, x: ArrayLike, fill_value: ArrayLike, dtype: Any, shape: Any) -> Value:
    like = arrays.as_value(x, f"{fun}: argument `x`")  # of a Ref, what it holds counts
    kind = like.dtype if dtype is None else dtype
    return _filled(fun, like.shape if shape is None else shape, fill_value, kind)


def zeros_like(x: ArrayLike, dtype: Any = None, *, shape: Any = None) -> Value:
    """Zeros of the shape and dtype of `x`; for a Ref, of its contents.

    >>> fnp.zeros_like(np.ones(2, np.int32))
    Array([0, 0], dtype=int32)
    """
    return _filled_like("zeros_like", x, 0, dtype, shape)


def ones_like(x: ArrayLike, dtype: Any = None, *, shape: Any = None) -> Value:
    """Ones of the shape and dtype of `x`.

    >>> fnp.ones_like(np.zeros(2, np.int32))
    Array([1, 1], dtype=int32)
    """
    return _filled_like("ones_like", x, 1, dtype, shape)


def empty_like(x: ArrayLike, dtype: Any = None, *, shape: Any = None) -> Value:
    """An array of zeros with the shape and dtype of `x`.

    >>> fnp.empty_like(np.ones(2))
    Array([0., 0.], dtype=float64)
    """
    return _filled_like("empty_like", x, 0, dtype, shape)


def arange(start: float, stop: float | None = None, step: float = 1, dtype: Any = None) -> Value:
    """Numbers from `start` (0 if only `stop` is given) up to `stop` by `step`.

    int32 if all are integers, else float32, unless `dtype` is given. The arguments are numbers and not
    traced values: they make the shape.

    >>> fnp.arange(3), fnp.arange(0.0, 1.0, 0.25)
    (Array([0, 1, 2], dtype=int32), Array([0.  , 0.25, 0.5 , 0.75], dtype=float32))
    """
    low, high = (0, start) if stop is None else (start, stop)
    bounds = [
        _number("arange", name, x) for name, x in (("start", low), ("stop", high), ("step", step))
    ]
    if bounds[2] == 0:
        prims.bad_value("arange: expected `step` not to be zero")
    integers = all(isinstance(x, int) for x in bounds)
    kind = prims.canonical_dtype(
        "arange", dtype if dtype is not None else np.int32 if integers else np.float32
    )
    if integers and not trace.is_eager() and kind.kind in "iu":
        count = len(range(*[int(x) for x in bounds]))
        return prims.add(
            prims.mul(prims.iota(kind, count), _scalar(bounds[2], kind)), _scalar(bounds[0], kind)
        )
    return arrays.device_put(np.arange(*bounds).astype(kind))


def _number(fun: str, name: str, x: Any) -> int | float:
    if isinstance(x, (int, float)) and not isinstance(x, bool):
        return x
    if isinstance(x, trace.Tracer):
        prims.refuse_traced(fun, name, x)
    try:
        return operator.index(x)
    except TypeError:
        if isinstance(x, (Value, np.ndarray, np.generic)):
            return float(x)
        prims.bad_type(f"{fun}: expected `{name}` to be a number, got {x!r}")


def _scalar(x: float, dtype: np.dtype[Any]) -> arrays.Scalar:
    return arrays.Scalar(np.asarray(x, dtype))


@partial(fused, numbers="operands")
def linspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    *,
    dtype: Any = None,
    axis: int = 0,
) -> Value:
    """`num` evenly spaced values from `start` to `stop`, which may be arrays: a new axis at `axis`.

    >>> fnp.linspace(0, 1, 5)
    Array([0.  , 0.25, 0.5 , 0.75, 1.  ], dtype=float32)
    """
    num = prims.known_int("linspace", "num", num)
    if num < 0:
        prims.bad_value(f"linspace: expected `num` not to be negative, got {num}")
    whole = dtype is not None and not ir.is_inexact(prims.canonical_dtype("linspace", dtype))
    if whole:
        start, stop = asarray(start, np.float64), asarray(stop, np.float64)
    elif dtype is not None:
        start, stop = (asarray(x, dtype) if type(x) in _NUMBERS else x for x in (start, stop))
    low, high = prims.promote("linspace", start, stop, inexact=True)
    kind = arrays.to_inexact(low.dtype)
    last = max(num - 1 if endpoint else num, 1)
    shape = np.broadcast_shapes(low.shape, high.shape)
    steps = (np.arange(num) / (1 if whole else last)).astype(kind)
    t = asarray(steps).reshape((num, *[1] * len(shape)))
    if whole:  # by one exact division: products with a rounded step may lie just below an integer
        scaled = prims.add(prims.mul(low, float(last)), prims.mul(t, prims.sub(high, low)))
        out = op.floor_divide(scaled, float(last))
    else:
        out = prims.add(prims.mul(prims.sub(1, t), low), prims.mul(t, high))
    out = prims.broadcast_to(out, (num, *shape))
    out = prims.move_axis(out, 0, axis)
    return prims.convert(out, kind if dtype is None else dtype)


@partial(fused, numbers="operands")
def logspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    base: float = 10.0,
    dtype: Any = None,
    axis: int = 0,
) -> Value:
    """`num` values from `base ** start` to `base ** stop`, evenly spaced in the exponent.

    >>> fnp.logspace(0, 2, 3)
    Array([  1.,  10., 100.], dtype=float32)
    """
    wanted = None if dtype is None else prims.canonical_dtype("logspace", dtype)
    kind = wanted if wanted is not None and wanted.kind in "fc" else None
    exponents = linspace(start, stop, num, endpoint, dtype=kind, axis=axis)
    out = prims.pow(base, exponents)
    return out if wanted is None else prims.convert(out, wanted)


@fused
def eye(n: int, m: int | None = None, k: int = 0, dtype: Any = np.float32) -> Value:
    """A matrix of `n` rows and `m` columns with ones on the `k`-th diagonal and zeros elsewhere.

    >>> fnp.eye(2)
    Array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    shape = (n, n if m is None else m)
    rows, columns = prims.iota(np.int32, shape, 0), prims.iota(np.int32, shape, 1)
    return prims.convert(prims.equal(prims.add(rows, k), columns), dtype)


def identity(n: int, dtype: Any = np.float32) -> Value:
    """The square matrix with ones on the diagonal.

    >>> fnp.identity(1)
    Array([[1.]], dtype=float32)
    """
    return eye(n, dtype=dtype)


@fused
def tri(n: int, m: int | None = None, k: int = 0, dtype: Any = np.float32) -> Value:
    """A matrix with ones at and below the `k`-th diagonal and zeros above.

    >>> fnp.tri(2)
    Array([[1., 0.],
           [1., 1.]], dtype=float32)
    """
    shape = (n, n if m is None else m)
    rows, columns = prims.iota(np.int32, shape, 0), prims.iota(np.int32, shape, 1)
    return prims.convert(prims.greater_equal(prims.add(rows, k), columns), dtype)


@fused
def tril(x: ArrayLike, k: int = 0) -> Value:
    """The matrices of the last two axes with zeros above the `k`-th diagonal.

    >>> fnp.tril(np.ones((2, 2)))
    Array([[1., 0.],
           [1., 1.]], dtype=float64)
    """
    value = _matrices("tril", x)
    mask = tri(value.shape[-2], value.shape[-1], k, bool)
    return prims.select(
        prims.broadcast_to(mask, value.shape), value, prims.zeros(value.shape, value.dtype)
    )


@fused
def triu(x: ArrayLike, k: int = 0) -> Value:
    """The matrices of the last two axes with zeros below the `k`-th diagonal.

    >>> fnp.triu(np.ones((2, 2)))
    Array([[1., 1.],
           [0., 1.]], dtype=float64)
    """
    value = _matrices("triu", x)
    mask = tri(value.shape[-2], value.shape[-1], k - 1, bool)
    return prims.select(
        prims.broadcast_to(mask, value.shape), prims.zeros(value.shape, value.dtype), value
    )


def _matrices(fun: str, x: ArrayLike) -> Value:
    value = prims.operand(fun, "x", x)
    if value.ndim < 2:
        prims.bad_value(f"{fun}: expected an array with at least two axes, got {value.aval}")
    return value


def meshgrid(
    *xs: ArrayLike, sparse: bool = False, indexing: Literal["xy", "ij"] = "xy"
) -> list[Value]:
    """Coordinate arrays of a grid from one vector per axis; "xy" swaps the first two axes.

    If `sparse`, each has size 1 along the axes of the others.

    >>> fnp.meshgrid(np.array([1, 2]), np.array([3, 4]))[1]
    Array([[3, 3],
           [4, 4]], dtype=int64)
    """
    values = [prims.operand("meshgrid", f"xs[{k}]", x).reshape(-1) for k, x in enumerate(xs)]
    if indexing not in ("xy", "ij"):
        prims.bad_value(f"meshgrid: expected `indexing` to be 'xy' or 'ij', got {indexing!r}")
    place = list(range(len(values)))
    if indexing == "xy" and len(values) > 1:
        place[:2] = [1, 0]
    shape = [values[k].shape[0] for k in place]
    if sparse:
        whole = enumerate(values)
        return [prims.reshape(x, [-1 if j == k else 1 for j in place]) for k, x in whole]
    return [prims.broadcast_in_dim(x, shape, [place[k]]) for k, x in enumerate(values)]


def indices(shape: Sequence[int], dtype: Any = np.int32) -> Value:
    """The index of each element of an array of a shape, one array per axis, stacked.

    >>> fnp.indices((2, 2))[0]
    Array([[0, 0],
           [1, 1]], dtype=int32)
    """
    return prims.stack([prims.iota(dtype, shape, k) for k in range(len(shape))])
