"""The Refs that users hold: `Ref`, which every mutable array is an instance of, and the concrete one."""

from __future__ import annotations

from typing import Any

from fiveloop.core import Aval, Source, Value, current_source, to_array
from fiveloop.state.avals import AbstractRef
from fiveloop.state.errors import frozen


class _RefType(type):
    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, Value) and isinstance(x.aval, AbstractRef)


class Ref(Value, metaclass=_RefType):
    """A mutable array: `ref[i]` reads, `ref[i] = x` writes, `ref[i] += x` accumulates, `ref[...]` reads all.

    Made by `new_ref`. Inside a traced function a Ref is a tracer, and `isinstance(x, Ref)` is still true.
    """

    __slots__ = ()


class EagerRef(Value):
    """A Ref that exists now. It shares buffers with the arrays that were read from it: those never change."""

    __slots__ = ("__weakref__", "_array", "_aval", "_frozen_at")

    def __init__(self, init: Value) -> None:
        self._array = to_array(init)
        self._aval = AbstractRef(init.aval)
        self._frozen_at: Source | str | None = None
        self._note = None

    @property
    def aval(self) -> Aval:
        return self._aval

    @property
    def array(self) -> Any:
        """What the Ref holds now."""
        if self._frozen_at is not None:
            raise frozen(self._aval, self._frozen_at)
        return self._array

    def write_back(self, new: Value) -> None:
        """Replace what the Ref holds."""
        if self._frozen_at is not None:
            raise frozen(self._aval, self._frozen_at)
        self._array = to_array(new)

    def end(self) -> Value:
        """What the Ref holds; it cannot be used any more."""
        out: Value = self.array
        self._frozen_at = current_source() or "an unknown place"
        return out

    def __copy__(self) -> EagerRef:
        return EagerRef(self.array)

    def __reduce__(self) -> tuple[Any, ...]:
        return EagerRef, (self.array,)

    def __repr__(self) -> str:
        if self._frozen_at is not None:
            return f"Ref(frozen at {self._frozen_at})"
        return f"Ref({self._array.numpy()}, dtype={self.dtype.name})"
