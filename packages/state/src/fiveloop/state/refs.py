"""The effects on a Ref, its type, and its classes: `Ref`, the base of every mutable array, and the concrete one."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Self

from fiveloop.core import ArrayLike, Value, arrays, ir, prims, trace, util
from fiveloop.core.dataclass import dataclass
from fiveloop.state import errors


@dataclass(frozen=True)
class ReadEffect(ir.PositionalEffect):
    """The Ref at a position is read; an equation that only reads may be dropped or recomputed."""

    droppable: ClassVar[bool] = True
    recomputable: ClassVar[bool] = True


@dataclass(frozen=True)
class WriteEffect(ir.PositionalEffect):
    """The Ref at a position is overwritten."""

    mutates: ClassVar[bool] = True


@dataclass(frozen=True)
class AccumEffect(ir.PositionalEffect):
    """The Ref at a position is accumulated into; accumulations by the same monoid commute, no others do."""

    monoid: str = "add"
    mutates: ClassVar[bool] = True
    each_lane: ClassVar[bool] = True


class AbstractRef(ir.Aval):
    """The type of a Ref that holds arrays of the type `inner`; equal types are one object.

    Shape, dtype and weak type are those of its contents. If it is not `differentiated`, values written to it and values
    read from it have no derivative.
    """

    __slots__ = ("differentiated", "dtype", "inner", "shape", "weak_type")
    accumulates: ClassVar[bool] = True
    _table: ClassVar[weakref.WeakValueDictionary[tuple[ir.Aval, bool], AbstractRef]] = (
        weakref.WeakValueDictionary()
    )
    _lock: ClassVar[threading.Lock] = util.free_after_fork(threading.Lock())

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


if TYPE_CHECKING:
    from fiveloop.state.views import At


class _RefType(type):
    def __instancecheck__(cls, x: object) -> bool:
        if cls is not Ref:
            return super().__instancecheck__(x)
        return isinstance(x, Value) and isinstance(x.aval, AbstractRef)


ACCESS: dict[str, Callable[..., Any]] = {}
"""The functions behind the methods of Refs, filled in by `api`."""


class Ref(arrays.Fixed, metaclass=_RefType):
    """A mutable array: `ref[i]` reads, `ref[i] = x` writes, `ref[i] += x` accumulates, `ref[...]` reads all.

    `new_ref` makes a Ref. `ref.at[i]` is a Ref to a part of it; `ref.T`, `ref.transpose(axes)` and `ref.reshape(shape)`
    are Refs to all of it in another layout. A write to one of these is a write to `ref`. Inside a traced function a Ref
    is a tracer, and `isinstance(x, Ref)` is still true.
    """

    __slots__ = ()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise errors.not_made()

    def get(self, idx: Any = ...) -> Value:
        """Read the contents at an index: `ref[idx]`."""
        return ACCESS["get"](self, idx)  # type: ignore[no-any-return]

    def set(self, value: ArrayLike, idx: Any = ...) -> None:
        """Write a value at an index: `ref[idx] = value`."""
        ACCESS["set"](self, idx, value)

    def swap(self, value: ArrayLike, idx: Any = ...) -> Value:
        """Write a value at an index, and return the old contents there."""
        return ACCESS["swap"](self, idx, value)  # type: ignore[no-any-return]

    def addupdate(self, value: ArrayLike, idx: Any = ...) -> None:
        """Add a value at an index: `ref[idx] += value`."""
        ACCESS["addupdate"](self, idx, value)

    if TYPE_CHECKING:

        @property
        def at(self) -> At:  # type: ignore[override]  # what an array has here are updates that give new arrays
            """Parts of the Ref: `ref.at[i]`."""

        @property
        def T(self) -> Ref:
            """The Ref with all axes in reverse order."""

        def reshape(self, *shape: Any) -> Ref:
            """The Ref in another shape; one dim may be -1."""

        def transpose(self, *axes: Any) -> Ref:
            """The Ref with its axes in another order; reversed if none is given."""


class EagerRef(Ref):
    """A Ref that exists now. It is updated in place, unless an array has been made from it or it from one.

    Such an array never changes: a Ref that shares its buffer with one is copied at its next write.
    """

    __slots__ = ("__weakref__", "_array", "_aval", "_frozen_at", "_is_shared", "turn")

    def __init__(self, init: Value, differentiable: bool = True) -> None:
        # What a Ref holds is of its type, also if it came as a Python number.
        self._array = arrays.to_array(prims.convert(init, init.dtype))
        self._is_shared = True
        arrays.note_sharer(self)
        self._aval = AbstractRef(init.aval, differentiable)
        self._frozen_at: ir.Source | str | None = None
        self._note = None
        self.turn = arrays.Turn()
        trace.note_made(self)

    @property
    def aval(self) -> ir.Aval:
        return self._aval

    @property
    def array(self) -> Any:
        """What the Ref holds now, to be looked at: whoever keeps it takes `share`."""
        with self.turn:
            return self.contents()

    def contents(self) -> Any:
        """The same for whose turn it is."""
        if self._frozen_at is not None:
            raise errors.frozen(self._aval, self._frozen_at)
        if self._array.buffer.is_deleted():
            raise errors.lost(self._aval)
        return self._array

    def share(self) -> Value:
        """What the Ref holds now, to be kept."""
        with self.turn:
            out: Value = self.contents()
            if not self._is_shared:
                self._is_shared = True
                arrays.note_sharer(self)
        return out

    def shares(self, buffer: object) -> bool:
        """Whether it holds this memory, and an array may do so too."""
        return self._is_shared and self._frozen_at is None and self._array.buffer is buffer

    def part(self) -> None:
        """Hold a copy of its own: what it shares is about to be given away."""
        with self.turn:
            self._array, self._is_shared = arrays.copied(self._array), False

    @property
    def is_shared(self) -> bool:
        """Whether someone else may hold the array: a run that calls Python is one."""
        return self._is_shared or self.turn.run is not None

    def own_array(self) -> Any:
        """The contents of the Ref, in memory of its own, so that they may be updated in place."""
        array = self.contents()
        trace.note_change(lambda: _Change(self, self.share()))
        if self.is_shared:
            _set_array(self, arrays.copied(array))
            _set_is_shared(self, False)
        return self._array

    def write_back(self, new: Value, *, shared: bool = False) -> None:
        """Replace what the Ref holds."""
        if self._frozen_at is not None:
            raise errors.frozen(self._aval, self._frozen_at)
        trace.note_written(self)
        _set_array(self, arrays.to_array(new))
        _set_is_shared(self, shared)
        if self._note is not None:
            _set_note(self, self._note.handed_on(self))
        if shared:
            arrays.note_sharer(self)

    def end(self) -> Value:
        """What the Ref holds; it cannot be used any more."""
        with self.turn:
            self.turn.claim()
            out: Value = self.contents()
            self._frozen_at = trace.current_source() or "an unknown place"
        return out

    def __copy__(self) -> EagerRef:
        return EagerRef(self.share(), self._aval.differentiated)

    def __reduce__(self) -> tuple[Any, ...]:
        return EagerRef, (self.share(), self._aval.differentiated)

    def __repr__(self) -> str:
        if self._frozen_at is not None:
            return f"Ref(frozen at {self._frozen_at})"
        with self.turn:
            if self._array.buffer.is_deleted():
                return "Ref(lost)"
            return f"Ref({self._array.numpy()}, dtype={self.dtype.name})"


_set_array, _set_is_shared = [arrays.setter(EagerRef, name) for name in ("_array", "_is_shared")]
_set_note = arrays.setter(Value, "_note")


@dataclass(frozen=True)
class FrozenNote:
    """On a traced Ref: it has been frozen, at this place."""

    where: object

    def inplace_add(self, value: Value, x: Any) -> Value:
        """Refused: the Ref is at its end."""
        raise errors.frozen(value.aval, self.where)

    def handed_on(self, value: Value) -> arrays.InplaceNote:
        """Refused: the Ref is at its end."""
        raise errors.frozen(value.aval, self.where)


class _Change:
    """A Ref that a program changes, and its contents before."""

    def __init__(self, ref: EagerRef, before: Value) -> None:
        self.ref = ref
        self.before = before

    def restore(self) -> None:
        """Let the Ref hold what it held."""
        self.ref.write_back(self.before, shared=True)

    def has_new_nan(self) -> bool:
        """Whether the Ref holds a nan, and held none."""
        return trace.has_nan(self.ref.array) and not trace.has_nan(self.before)
