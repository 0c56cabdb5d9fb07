"""Abstract values: the types of the IR, interned, so that identity is equality; and the dimensions of their shapes."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, ClassVar, Self, TypeAlias

import ml_dtypes
import numpy as np

from fiveloop.core import util

Dim = int
Shape = tuple[Dim, ...]


class SymbolicDim:
    """The base of dims that are no numbers yet: equal to themselves, added and multiplied, never an int or a bool."""

    __slots__ = ()


def is_dim(x: object) -> bool:
    """Whether something may stand in a shape as it is."""
    return isinstance(x, (int, SymbolicDim))


def is_empty(shape: Iterable[Dim]) -> bool:
    """Whether arrays of a shape are known to have no elements."""
    return any(same_dim(n, 0) for n in shape)


def size_of(shape: Iterable[Dim]) -> Dim:
    """The number of elements of a shape.

    >>> size_of((2, 3)), size_of(())
    (6, 1)
    """
    product: Dim = 1
    for dim in shape:
        product = product * dim
    return product


def same_shape(x: Sequence[Dim], y: Sequence[Dim]) -> bool:
    """Whether two shapes are known to be equal."""
    return x is y or (len(x) == len(y) and all(map(same_dim, x, y)))


def same_dim(x: Dim, y: Dim) -> bool:
    """Whether two dims are known to be equal."""
    return x == y


def is_one(dim: Dim) -> bool:
    """Whether a dim is known to be 1, and so broadcasts."""
    return same_dim(dim, 1)


def is_constant(dim: Dim) -> bool:
    """Whether a dim is a plain number."""
    return isinstance(dim, int)


def is_more(x: Dim, y: Dim) -> bool:
    """Whether a dim is known to be larger than another."""
    return is_constant(x) and is_constant(y) and x > y


def broadcast_shapes(*shapes: Sequence[Dim]) -> Shape | None:
    """The common shape under NumPy's rules, or None if there is none.

    >>> broadcast_shapes((3, 1), (4,))
    (3, 4)
    """
    rank = max(map(len, shapes), default=0)
    padded = [(1,) * (rank - len(s)) + tuple(s) for s in shapes]
    out: list[Dim] = []
    for dims in zip(*padded, strict=True):
        wide = [d for d in dims if not is_one(d)]
        if any(not same_dim(d, wide[0]) for d in wide):
            return None
        out.append(wide[0] if wide else 1)
    return tuple(out)


def strided_size(start: Dim, stop: Dim, stride: int) -> Dim:
    """How many elements `range(start, stop, stride)` has, for a positive stride."""
    if stride == 1 and not (is_constant(start) and is_constant(stop)):
        return stop + -1 * start
    return max(0, -(-(stop - start) // stride))


_SHORT_KINDS = {"f": "f", "i": "i", "u": "u", "c": "c"}


class Aval:
    """The base class of types: a shape and a dtype, the tangent type, the batched type, and the printed form.

    `accumulates` says that a linear value of this type is transposed through an accumulator that collects
    its cotangents in place, rather than through cotangent values.
    """

    __slots__ = ("__weakref__",)
    accumulates: ClassVar[bool] = False

    shape: Shape
    dtype: np.dtype[Any]
    weak_type: bool

    def tangent(self) -> Aval:
        """The type of a tangent of a value of this type."""
        return self.strong()

    def strong(self) -> Aval:
        """The same type without weakness."""
        return self

    def batched(self, size: Dim, dim: int = 0) -> Aval:
        """This type with one more axis of the given size at `dim`."""
        raise TypeError(f"{self} cannot be batched")

    def unbatched(self, dim: int) -> Aval:
        """This type without its axis `dim`."""
        raise TypeError(f"{self} cannot be unbatched")

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def differentiable(self) -> bool:
        """Whether values of this type can have a nonzero tangent."""
        return is_inexact(self.dtype)


Avals: TypeAlias = Sequence[Aval]


class ShapedArray(Aval):
    """The type of an array: shape, dtype, weak type, memory kind and sharding.

    >>> ShapedArray((2, 3), "float32")
    f32[2,3]
    """

    __slots__ = ("dtype", "memory_kind", "shape", "sharding", "weak_type")
    _fields: ClassVar[tuple[str, ...]] = ("shape", "dtype", "weak_type", "memory_kind", "sharding")
    _table: ClassVar[weakref.WeakValueDictionary[Any, ShapedArray]] = weakref.WeakValueDictionary()
    _lock: ClassVar[threading.Lock] = util.free_after_fork(threading.Lock())

    memory_kind: str | None
    sharding: object | None

    def __new__(
        cls,
        shape: Shape,
        dtype: Any,
        weak_type: bool = False,
        memory_kind: str | None = None,
        sharding: object | None = None,
    ) -> Self:
        dtype = np.dtype(dtype)
        if not dtype.isnative:  # the order of bytes is no part of a type
            dtype = dtype.newbyteorder("=")
        key = (tuple(shape), dtype, bool(weak_type), memory_kind, sharding)
        with cls._lock:
            found = cls._table.get(key)
            if found is None:
                found = super().__new__(cls)
                found.shape, found.dtype, found.weak_type, found.memory_kind, found.sharding = key
                cls._table[key] = found
        return found  # type: ignore[return-value]  # the table holds only this class

    def __reduce__(self) -> tuple[Any, ...]:
        return ShapedArray, (*[getattr(self, name) for name in self._fields],)

    def update(self, **changes: Any) -> ShapedArray:
        """The same type with some fields changed."""
        return ShapedArray(**{name: getattr(self, name) for name in self._fields} | changes)

    def strong(self) -> ShapedArray:
        return self.update(weak_type=False) if self.weak_type else self

    def batched(self, size: Dim, dim: int = 0) -> ShapedArray:
        return self.update(shape=(*self.shape[:dim], size, *self.shape[dim:]))

    def unbatched(self, dim: int) -> ShapedArray:
        return _unbatched(self, dim)

    def __repr__(self) -> str:
        dims = ",".join(map(str, self.shape))
        return f"{short_dtype(self.dtype)}{'*' if self.weak_type else ''}[{dims}]"


@lru_cache(maxsize=512)
def _unbatched(aval: ShapedArray, dim: int) -> ShapedArray:
    return aval.update(shape=aval.shape[:dim] + aval.shape[dim + 1 :])


def bytes_of(avals: Iterable[Aval]) -> Dim:
    """The room that values of these types take."""
    total: Dim = 0
    for aval in avals:
        total = total + size_of(aval.shape) * aval.dtype.itemsize
    return total


def is_inexact(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype is floating (the small ml_dtypes floats included) or complex."""
    return dtype.kind in "fc" or (dtype.kind == "V" and _is_small_float(dtype))


def _is_small_float(dtype: np.dtype[Any]) -> bool:
    try:
        ml_dtypes.finfo(dtype)
    except (ValueError, TypeError, KeyError):
        return False
    return True


def short_dtype(dtype: np.dtype[Any]) -> str:
    """The printed name of a dtype: f32, i64, bool, bf16 ...

    >>> short_dtype(np.dtype("float64"))
    'f64'
    """
    if dtype.kind in _SHORT_KINDS and dtype.isbuiltin == 1:
        return f"{_SHORT_KINDS[dtype.kind]}{dtype.itemsize * 8}"
    return {"bfloat16": "bf16"}.get(dtype.name, dtype.name)
