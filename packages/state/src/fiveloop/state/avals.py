"""The type of a Ref: a mutable array of an inner type."""

from __future__ import annotations

import threading
import weakref
from typing import Any, ClassVar, Self

from fiveloop.core import ir


class AbstractRef(ir.Aval):
    """The type of a Ref that holds arrays of the type `inner`; interned on it.

    Shape, dtype and weak type are those of what it holds. If it is not `differentiated`, what is written there has
    no derivative, and so has what is read.
    """

    __slots__ = ("differentiated", "dtype", "inner", "shape", "weak_type")
    accumulates: ClassVar[bool] = True
    _table: ClassVar[weakref.WeakValueDictionary[tuple[ir.Aval, bool], AbstractRef]] = (
        weakref.WeakValueDictionary()
    )
    _lock: ClassVar[threading.Lock] = threading.Lock()

    inner: ir.Aval
    differentiated: bool

    def __new__(cls, inner: ir.Aval, differentiated: bool = True) -> Self:
        inner = inner.strong()
        with cls._lock:
            found = cls._table.get((inner, differentiated))
            if found is None:
                found = super().__new__(cls)
                found.inner, found.differentiated = inner, differentiated
                found.shape, found.dtype, found.weak_type = inner.shape, inner.dtype, False
                cls._table[inner, differentiated] = found
        return found  # type: ignore[return-value]  # the table holds only this class

    def __reduce__(self) -> tuple[Any, ...]:
        return AbstractRef, (self.inner, self.differentiated)

    @property
    def differentiable(self) -> bool:
        return self.differentiated and self.inner.differentiable

    def tangent(self) -> ir.Aval:
        return AbstractRef(self.inner.tangent())

    def batched(self, size: int, dim: int = 0) -> ir.Aval:
        return AbstractRef(self.inner.batched(size, dim), self.differentiated)

    def unbatched(self, dim: int) -> ir.Aval:
        return AbstractRef(self.inner.unbatched(dim), self.differentiated)

    def __repr__(self) -> str:
        return f"Ref{{{self.inner}{'' if self.differentiated else ', not differentiated'}}}"
