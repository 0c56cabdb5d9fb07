"""The methods of values beyond the operators; importing this fills `METHODS`, except for `at`.

The operators and methods of arrays are fused calls; other values, and calls that fail, use the methods of `Value`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import unwrap
from types import FunctionType
from typing import Any

import numpy as np

from fiveloop.core import arrays, ir, prims, rules
from fiveloop.core.arrays import ArrayLike, Value
from fiveloop.core.ir.indexer import Indexer, Pick, Span
from fiveloop.core.operators import complex_order
from fiveloop.core.operators import operators as op
from fiveloop.core.primitives import special
from fiveloop.core.trace.fused import Numbers, fused
from fiveloop.core.trace.tracer import is_concrete


def along(fun: str, x: ArrayLike, axis: Any) -> tuple[Value, int]:
    """An array and one of its axes; flattened if no axis is given."""
    value = prims.operand(fun, "x", x)
    if axis is None:
        return prims.reshape(value, (-1,)), 0
    return value, prims.canonical_axis(fun, axis, value.ndim)


def copy(x: ArrayLike) -> Value:
    """The array itself, on the device."""
    value = prims.operand("copy", "x", x)
    return arrays.to_array(value) if is_concrete(value) else value


def view(x: ArrayLike, dtype: Any) -> Value:
    """The same bits read as another dtype; the last axis takes the change of width."""
    value, target = prims.operand("view", "x", x), prims.canonical_dtype("view", dtype)
    old, new = value.dtype.itemsize, target.itemsize
    if old == new:
        return special.bitcast_convert(value, target)
    if not value.ndim or value.shape[-1] * old % new:
        prims.bad_value(
            f"view: expected a last axis whose bytes are a multiple of {new}, those of {target.name}, got {value.aval}"
        )
    lead, size = value.shape[:-1], value.shape[-1]
    if old < new:
        value = prims.reshape(value, (*lead, size * old // new, new // old))
        return special.bitcast_convert(value, target)
    return prims.reshape(special.bitcast_convert(value, target), (*lead, size * (old // new)))


def swapaxes(x: ArrayLike, axis1: int, axis2: int) -> Value:
    """Two axes exchanged."""
    value = prims.operand("swapaxes", "x", x)
    i, j = (prims.canonical_axis("swapaxes", a, value.ndim) for a in (axis1, axis2))
    perm = list(range(value.ndim))
    perm[i], perm[j] = j, i
    return prims.transpose(value, perm)


def diagonal(x: ArrayLike, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Value:
    """The elements with equal indices along two axes, `offset` apart; they become the last axis."""
    value = prims.operand("diagonal", "x", x)
    if value.ndim < 2:
        prims.bad_value(f"diagonal: expected at least two axes, got {value.aval}")
    i, j = prims.canonical_axes("diagonal", (axis1, axis2), value.ndim)
    offset = prims.known_int("diagonal", "offset", offset)
    starts = {i: max(0, -offset), j: max(0, offset)}
    count = max(0, min(value.shape[k] - start for k, start in starts.items()))
    entries = [Pick() if k in starts else Span(0, n) for k, n in enumerate(value.shape)]
    indexer = Indexer(tuple(entries), (count,), pick_axis=value.ndim - 2)
    if not count:
        return prims.zeros(indexer.result_shape, value.dtype)
    places = prims.iota(np.int32, (count,))
    positions = [
        prims.add(places, start) if start else places for _, start in sorted(starts.items())
    ]
    return prims.take(value, indexer, positions, unique=True)


def trace(x: ArrayLike, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Value:
    """The sum of a diagonal of two axes."""
    return op.sum(diagonal(x, offset, axis1, axis2), -1)


def repeat(x: ArrayLike, repeats: Any, axis: int | None = None) -> Value:
    """Each element repeated, all as often or each its own number of times, known now; flattened if `axis` is None."""
    value, at = along("repeat", x, axis)
    lead, size = (slice(None),) * at, value.shape[at]
    times = _times(repeats, size)
    if isinstance(times, np.ndarray):
        return value[(*lead, np.repeat(np.arange(size), times))]
    wide = prims.expand_dims(value, at + 1)
    shape = (*value.shape[: at + 1], times, *value.shape[at + 1 :])
    wide = prims.broadcast_in_dim(wide, shape, range(len(shape)))
    return prims.reshape(wide, (*value.shape[:at], size * times, *value.shape[at + 1 :]))


def _times(repeats: Any, size: int) -> int | np.ndarray[Any, Any]:
    """How often elements are repeated: a number for all, or a number for each."""
    if isinstance(repeats, Sequence):
        repeats = np.asarray(repeats)
    if not isinstance(repeats, (int, np.ndarray)):
        value = arrays.as_value(repeats, "repeat: argument `repeats`")
        if not is_concrete(value):
            prims.known_int("repeat", "repeats", value)
        repeats = np.asarray(value)
    given = np.asarray(repeats)
    if given.dtype.kind not in "iu":
        prims.bad_type(f"repeat: expected `repeats` to hold integers, got {repeats!r}")
    if given.ndim > 1 or (given.ndim and given.size not in (1, size)) or (given < 0).any():
        prims.bad_value(
            f"repeat: expected `repeats` to be a number of at least 0, or one for each of {size} elements, got "
            f"{repeats!r}"
        )
    return int(given.item()) if given.size == 1 else given


def take(
    x: ArrayLike, indices: ArrayLike, axis: int | None = None, *, mode: str = "raise"
) -> Value:
    """The elements of `x` at indices along an axis, or of all, flattened. Run-time indices are clamped."""
    value, at = along("take", x, axis)
    if mode not in ("raise", "wrap", "clip"):
        prims.bad_value(f"take: expected `mode` to be 'raise', 'wrap' or 'clip', got {mode!r}")
    if mode != "raise":
        size, places = value.shape[at], prims.operand("take", "indices", indices)
        wraps = mode == "wrap"
        indices = op.remainder(places, size) if wraps else prims.clamp(0, places, size - 1)
    return value[(*(slice(None),) * at, indices)]


def nonzero(x: ArrayLike) -> tuple[Value, ...]:
    """The indices of the elements that are not zero, one array per axis; the elements must be known."""
    value = prims.operand("nonzero", "x", x)
    if not is_concrete(value):
        prims.bad_type(
            f"nonzero: expected elements that are known, got the traced value {value!r}: how many there are "
            "would be the size of the result; use `where(condition, x, y)`"
        )
    found = np.atleast_1d(np.asarray(value)).nonzero()
    return tuple(arrays.to_array(arrays.as_value(i.astype(np.int32))) for i in found)


def sort(x: ArrayLike, axis: Any = -1, *, stable: bool = True, descending: bool = False) -> Value:
    """The elements in order along an axis, or of all, flattened; NaN last (first if `descending`)."""
    value, at = along("sort", x, axis)
    out = prims.sort(value, at, stable=stable)
    return prims.reverse(out, at) if descending else out


def argsort(
    x: ArrayLike, axis: Any = -1, *, stable: bool = True, descending: bool = False
) -> Value:
    """The indices, as int32, that put the elements in order along an axis; ties keep their order."""
    value, at = along("argsort", x, axis)
    if not descending:
        return prims.argsort(value, at, stable=stable)
    # Equals keep their order if those of the reversed array are sorted, and the result is reversed.
    back = prims.reverse(prims.argsort(prims.reverse(value, at), at, stable=stable), at)
    return prims.sub(value.shape[at] - 1, back)


def clip(x: ArrayLike, min: ArrayLike | None = None, max: ArrayLike | None = None) -> Value:
    """Each element limited to the range from `min` to `max`, which broadcast; None is no bound."""
    out = prims.operand("clip", "x", x)
    low, high = _bound(out, "min", min), _bound(out, "max", max)
    if low is not None:
        out = complex_order.maximum(out, low)
    return complex_order.minimum(out, high) if high is not None else out


def _bound(x: Value, name: str, bound: ArrayLike | None) -> ArrayLike | None:
    """A bound of `clip`; None if it is a Python integer beyond all that the dtype of `x` holds."""
    if not isinstance(bound, int) or isinstance(bound, bool) or x.dtype.kind not in "iu":
        return bound
    limits = np.iinfo(x.dtype)
    if bound <= limits.min if name == "min" else bound >= limits.max:
        return None
    return arrays.python_number(bound, arrays.Typed(x.dtype, True), f"clip: argument `{name}`")


def round(x: ArrayLike, decimals: int = 0) -> Value:
    """Each element rounded to `decimals` places, a half to the even digit, in the same dtype."""
    value, decimals = prims.operand("round", "x", x), prims.known_int("round", "decimals", decimals)
    if value.dtype.kind in "biu" and decimals >= 0:
        return value
    if decimals == 0 and value.dtype.kind != "c":
        return prims.round(value)
    if value.dtype.kind == "c":
        return prims.complex(round(prims.real(value), decimals), round(prims.imag(value), decimals))
    scale = 10.0 ** abs(decimals)
    (wide,) = prims.promote("round", value, inexact=True)
    up, down = (prims.mul, prims.div) if decimals > 0 else (prims.div, prims.mul)
    return prims.convert(down(prims.round(up(wide, scale)), scale), value.dtype)


def dot(x: ArrayLike, y: ArrayLike) -> Value:
    """Products summed over the last axis of `x` and the last but one of `y` (its only one, of a vector)."""
    a, b = prims.promote("dot", x, y)
    if not a.ndim or not b.ndim:
        return prims.mul(a, b)
    return contract("dot", a, b, (a.ndim - 1,), (max(b.ndim - 2, 0),))


def contract(fun: str, x: Value, y: Value, of_x: Sequence[int], of_y: Sequence[int]) -> Value:
    """Products of two arrays of one dtype, summed over pairs of their axes, which must have equal sizes."""
    sizes = [x.shape[k] for k in of_x], [y.shape[k] for k in of_y]
    if len(of_x) != len(of_y) or not all(map(ir.same_dim, *sizes)):
        prims.bad_value(
            f"{fun}: expected equal sizes along the axes that are summed, got axes {tuple(of_x)} of {x.aval} and "
            f"{tuple(of_y)} of {y.aval}"
        )
    return prims.dot_general(x, y, ((of_x, of_y), ((), ())))


def var(
    x: ArrayLike,
    axis: Any = None,
    *,
    dtype: Any = None,
    ddof: float = 0,
    keepdims: bool = False,
    where: ArrayLike | None = None,
) -> Value:
    """The variance over axes, or over all: squares of distances from the mean over (count - `ddof`)."""
    (value,) = prims.promote("var", x, inexact=True)
    value = value if dtype is None else prims.convert(value, dtype)
    axes = prims.canonical_axes("var", axis, value.ndim)
    wide = prims.convert(value, arrays.wide_for_sums(value.dtype))
    masked = op.masked("var", wide, where, 0)
    squares = op.squared_size(prims.sub(wide, op.mean(masked, axes, keepdims=True, where=where)))
    total = op.sum(op.masked("var", squares, where, 0), axes, keepdims=keepdims)
    prims.operand("var", "ddof", ddof)
    free: Any = op.count(squares, axes, keepdims, where) - ddof
    if isinstance(free, Value):
        free = prims.maximum(free, 0)
    elif isinstance(free, (int, float)) and free < 0:
        free = 0
    out = prims.div(total, free)
    return out if value.dtype.kind == "c" else prims.convert(out, value.dtype)


def std(
    x: ArrayLike,
    axis: Any = None,
    *,
    dtype: Any = None,
    ddof: float = 0,
    keepdims: bool = False,
    where: ArrayLike | None = None,
) -> Value:
    """The standard deviation over axes, or over all: the root of the variance."""
    return prims.sqrt(var(x, axis, dtype=dtype, ddof=ddof, keepdims=keepdims, where=where))


def cumsum(x: ArrayLike, axis: Any = None, *, dtype: Any = None, reverse: bool = False) -> Value:
    """The sums of all elements up to each position along `axis`; of the flattened array if that is None."""
    value, at = along("cumsum", x, axis)
    return prims.cumsum(value if dtype is None else prims.convert(value, dtype), at, reverse)


def cumprod(x: ArrayLike, axis: Any = None, *, dtype: Any = None, reverse: bool = False) -> Value:
    """The products of all elements up to each position along `axis`; of the flattened array if that is None."""
    value, at = along("cumprod", x, axis)
    return prims.cumprod(value if dtype is None else prims.convert(value, dtype), at, reverse)


arrays.METHODS.update(
    all=op.all,
    any=op.any,
    argmax=op.argmax_method,
    argmin=op.argmin_method,
    argsort=argsort,
    astype=op.astype,
    clip=clip,
    conj=prims.conj,
    copy=copy,
    cumprod=cumprod,
    cumsum=cumsum,
    diagonal=diagonal,
    dot=dot,
    imag=prims.imag,
    matrix_transpose=op.matrix_transpose,
    max=op.max,
    mean=op.mean,
    min=op.min,
    nonzero=nonzero,  # type: ignore[arg-type]  # the one that gives several
    prod=op.prod,
    real=prims.real,
    repeat=repeat,
    flatten=prims.reshape,
    reshape=rules.own_method("reshape", prims.reshape),
    round=round,
    sort=sort,
    squeeze=prims.squeeze,
    std=std,
    sum=op.sum,
    swapaxes=swapaxes,
    take=take,
    trace=trace,
    transpose=rules.own_method("transpose", prims.transpose),
    var=var,
    view=view,
)

STATIC: dict[str, Numbers] = {"power": "static"}
"""An integer exponent says what is computed."""


def _reflected(call: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda x, y: call(y, x)


def _iadd(x: arrays.Array, y: Any) -> Any:
    """`x += y`, which is a step of `ref[i] += y` if `x` was read there."""
    return _add(x, y) if x._note is None else arrays.Value.__iadd__(x, y)


for _operator, _otherwise in list(vars(arrays.Value).items()):
    if isinstance(_otherwise, FunctionType) and unwrap(_otherwise) in arrays.OPERATORS:
        _name, _reflects = arrays.OPERATORS[unwrap(_otherwise)]
        _turned = _reflected if _reflects else lambda call: call
        _call = fused(arrays.OPS[_name], numbers=STATIC.get(_name), otherwise=_turned(_otherwise))
        setattr(arrays.Array, _operator, _turned(_call))

_add = vars(arrays.Array)["__add__"]
arrays.Array.__iadd__ = _iadd  # type: ignore[assignment]  # for arrays alone

PROMOTES: dict[str, Numbers] = {"clip": "operands", "dot": "operands"}
ONE_BY_ONE = ("copy", "nonzero")
"""Methods whose numbers are operands, and those that are no program."""

for _name, _method in vars(arrays.Methods).items():
    if isinstance(_method, property) and _method.fget and _name != "at":
        setattr(arrays.Array, _name, property(fused(_method.fget), doc=_method.__doc__))
    elif isinstance(_method, FunctionType) and _name[0] != "_" and _name not in ONE_BY_ONE:
        _call = fused(unwrap(_method), numbers=PROMOTES.get(_name), otherwise=_method)
        setattr(arrays.Array, _name, _call)
