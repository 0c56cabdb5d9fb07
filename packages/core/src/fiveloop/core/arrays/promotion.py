"""The promotion table: the common dtype of operands of different dtypes.

Dtypes are nodes of a lattice, and so are the three kinds of Python number, which are weak: `i*`,
`f*` and `c*` lie below every dtype of their kind and so yield to it. Operands are brought to the
least node above all of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple, TypeGuard

import ml_dtypes
import numpy as np

from fiveloop.core import errors, ir
from fiveloop.core.arrays import array

DType = np.dtype[Any]

ABOVE: dict[str, tuple[str, ...]] = {
    "bool": ("i*",),
    "i*": ("uint8", "int8"),
    "uint8": ("uint16", "int16"),
    "uint16": ("uint32", "int32"),
    "uint32": ("uint64", "int64"),
    "uint64": ("f*",),
    "int8": ("int16",),
    "int16": ("int32",),
    "int32": ("int64",),
    "int64": ("f*",),
    "f*": ("bfloat16", "float16", "c*"),
    "bfloat16": ("float32",),
    "float16": ("float32",),
    "float32": ("float64", "complex64"),
    "float64": ("complex128",),
    "c*": ("complex64",),
    "complex64": ("complex128",),
    "complex128": (),
}
"""Each node of the lattice with those right above it."""

DEFAULT_DTYPES = {"i": np.dtype(np.int32), "f": np.dtype(np.float32), "c": np.dtype(np.complex64)}
"""What a Python number becomes where nothing says otherwise, by kind."""

_BOOL = np.dtype(np.bool_)
_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
_BY_NAME = {n: np.dtype(n) for n in ABOVE if n[-1] != "*" and n != "bfloat16"} | {
    "bfloat16": _BFLOAT16
}


class Typed(NamedTuple):
    """A dtype, and whether it is weak: whether it yields to the dtypes of other operands."""

    dtype: DType
    weak_type: bool = False


def dtype_kind(dtype: DType) -> str:
    """The kind of a dtype: b, i, u, f (the small floats of ml_dtypes included) or c."""
    return "f" if dtype.kind == "V" and ir.is_inexact(dtype) else dtype.kind


def is_python_number(x: Any) -> TypeGuard[bool | int | float | complex]:
    """Whether something is a Python number, which is weak. NumPy's float64 and complex128 are, by inheritance."""
    return isinstance(x, (bool, int, float, complex))


def python_typed(x: bool | int | float | complex) -> Typed:
    """The type of a Python number by itself: weak, save for bool. NumPy's have all their digits until they meet others.

    >>> (
    ...     python_typed(np.float64(0.5)),
    ...     join((python_typed(np.float64(0.5)), Typed(np.dtype(np.float16)))).dtype,
    ... )
    (Typed(dtype=dtype('float64'), weak_type=True), dtype('float16'))
    """
    if isinstance(x, np.generic):
        return Typed(x.dtype, True)
    if isinstance(x, bool):
        return Typed(_BOOL)
    if not isinstance(x, int):
        return Typed(DEFAULT_DTYPES["c" if isinstance(x, complex) else "f"], True)
    for dtype in (np.int32, np.int64, np.uint64):
        if np.iinfo(dtype).min <= x <= np.iinfo(dtype).max:
            return Typed(np.dtype(dtype), True)
    raise OverflowError(
        f"the integer {x} does not fit int64 or uint64{errors.at_source(ir.user_source())}"
    )


@cache
def join(types: tuple[Typed, ...]) -> Typed:
    """The type that operands of these types are brought to; weak only if all of them are."""
    if len(set(types)) == 1:
        return types[0]
    strong = list({t.dtype for t in types if not t.weak_type})
    if len(strong) == 1 and all(_yields(t.dtype, strong[0]) for t in types if t.weak_type):
        return Typed(strong[0])
    above = [_upward(_node(t)) for t in types]
    common = frozenset.intersection(*above)
    node = next(n for n in common if common <= _upward(n))
    if node[-1] != "*":
        return Typed(_BY_NAME[node])
    if node == "i*":
        weak = [t.dtype for t in types if t.weak_type and t.dtype.kind in "iu"]
        wide = max([DEFAULT_DTYPES["i"], *weak], key=lambda d: d.itemsize)
    else:
        digits = [t.dtype for t in types if not strong and ir.is_inexact(t.dtype)]
        wide = result_dtype([DEFAULT_DTYPES[node[0]], *digits])
    return Typed(wide, not strong)


@lru_cache(maxsize=4096)
def partner(aval: ir.Aval, kind: Any) -> Typed | None:
    """The type of a Python number of a kind beside an array that keeps its own type, if it does."""
    if kind not in (bool, int, float, complex) or aval.weak_type:
        return None
    if not isinstance(aval, ir.ShapedArray) or dtype_kind(aval.dtype) == "b":
        return None
    kept = Typed(aval.dtype)
    return kept if join((kept, python_typed(kind(0)))) == kept else None


def result_dtype(dtypes: Iterable[Any]) -> DType:
    """The dtype that arrays of these dtypes are brought to.

    >>> result_dtype(["int64", "float32"])
    dtype('float32')
    """
    return join(tuple(Typed(np.dtype(d)) for d in dtypes)).dtype


def to_inexact(dtype: DType) -> DType:
    """The dtype of floating point results on operands of this dtype: float32 for integers."""
    return dtype if ir.is_inexact(dtype) else DEFAULT_DTYPES["f"]


def real_dtype(dtype: DType) -> DType:
    """The dtype of the real part of numbers of this dtype."""
    return np.finfo(dtype).dtype if dtype.kind == "c" else dtype


def float_limits(dtype: DType) -> np.finfo[Any]:
    """The limits of floats of a dtype, of NumPy's or of ml_dtypes's."""
    return ml_dtypes.finfo(dtype)


def complex_dtype(dtype: DType) -> DType:
    """The complex dtype whose real part holds numbers of this dtype."""
    return result_dtype([dtype, np.complex64])


def wide_for_sums(dtype: DType) -> DType:
    """The dtype in which sums and products are formed: float32 for the half floats."""
    return DEFAULT_DTYPES["f"] if dtype in (np.float16, _BFLOAT16) else dtype


def host_scalar(x: Any, typed: Typed, what: str) -> array.Scalar:
    """A number on the host in the given dtype; TypeError if it is complex and may not be.

    OverflowError for an integer that does not fit; so for a float that is written. In arithmetic it is an infinity.
    """
    host = np.asarray(x)
    if host.dtype.kind == "c" and dtype_kind(typed.dtype) not in "bc":
        raise TypeError(
            f"{what}: the complex number {x} does not become {typed.dtype.name}; take its real part, `x.real`, first"
            f"{errors.at_source(ir.user_source())}"
        )
    if host.dtype.kind in "iuO" and dtype_kind(typed.dtype) != "b":
        low, high = _limits(typed.dtype)
        if not low <= int(host) <= high:
            raise _too_large(f"integer {int(host)}", typed.dtype, what)
    with np.errstate(over="ignore", invalid="ignore"):
        found = host.astype(typed.dtype)
    if what in _INSTEAD and np.isfinite(host) and not np.isfinite(found):
        raise _too_large(f"number {x}", typed.dtype, what)
    return array.Scalar(found, typed.weak_type)


@lru_cache(maxsize=1024, typed=True)
def _small_number(x: int | float, negative: bool, typed: Typed) -> array.Scalar:
    return host_scalar(x, typed, "a number")


def python_number(x: Any, typed: Typed, what: str) -> array.Scalar:
    """A Python number in the given dtype; common numbers are remembered."""
    if type(x) is float or (type(x) is int and -128 <= x < 128 and typed.dtype.kind not in "ub"):
        return _small_number(x, math.copysign(1.0, x) < 0, typed)
    return host_scalar(x, typed, what)


_INSTEAD = {"the value written": "write one that fits, or make the array, or Ref, of a wider dtype"}
"""What to do about a number that does not fit, where that is not to convert an operand."""


def _limits(dtype: DType) -> tuple[int, int]:
    if dtype_kind(dtype) in "iu":
        return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    high = int(float(float_limits(real_dtype(dtype)).max))
    return -high, high


def _too_large(told: str, dtype: DType, what: str) -> OverflowError:
    low, high = _limits(dtype)
    held = f"{low} to {high}" if high < 10**20 else f"{low:.3g} to {high:.3g}"
    return OverflowError(
        f"{what}: the {told} does not fit {dtype.name}, which holds {held}; "
        f"{_INSTEAD.get(what, 'convert the other operand to a wider dtype first')}{errors.at_source(ir.user_source())}"
    )


def check_narrowing(given: Typed, dtype: DType, what: str) -> None:
    """Refuse to bring a traced Python integer that needed 64 bits to fewer: it would not fit.

    Nobody else makes weak integers of 64 bits.
    """
    if not given.weak_type or given.dtype.itemsize < 8 or dtype_kind(given.dtype) not in "iu":
        return
    if dtype_kind(dtype) in "iu" and dtype.itemsize < 8:
        raise OverflowError(
            f"{what}: expected an integer that fits {dtype.name}, got one made of a Python integer that needs 64 bits, "
            f"and is traced; convert the other operand to a wider dtype first, or pass it as a NumPy integer, "
            f"`np.{dtype.name}(x)`{errors.at_source(ir.user_source())}"
        )


def _node(t: Typed) -> str:
    if t.weak_type:
        return {"b": "bool", "u": "i*"}.get(t.dtype.kind, f"{dtype_kind(t.dtype)}*")
    if t.dtype.name not in ABOVE:
        raise TypeError(f"{t.dtype.name} is not promoted to other dtypes; convert it explicitly")
    return t.dtype.name


def _yields(weak: DType, strong: DType) -> bool:
    """Whether a weak number becomes a strong dtype, whatever its width, by its kind."""
    ranks = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}
    return ranks[dtype_kind(weak)] <= ranks[dtype_kind(strong)]


@cache
def _upward(node: str) -> frozenset[str]:
    """A node and all those above it."""
    found: set[str] = {node}
    pending: Sequence[str] = [node]
    while pending:
        pending = [m for n in pending for m in ABOVE[n] if m not in found]
        found.update(pending)
    return frozenset(found)
