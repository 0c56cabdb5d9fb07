"""What indexing does to arrays: `x[i]`, `x[i] = v` (an error that says what to write), and `x.at[i]`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from fiveloop.core.array import OPS, Array, ArrayLike, Value
from fiveloop.core.array_methods import METHODS
from fiveloop.core.errors import at_source
from fiveloop.core.index_eager import put_now, take_now
from fiveloop.core.index_masks import masked_place, put_masked
from fiveloop.core.index_parse import normalize
from fiveloop.core.indexing import put_kind, take
from fiveloop.core.ir.avals import ShapedArray
from fiveloop.core.primitives.check import bad_type
from fiveloop.core.rules import type_rules
from fiveloop.core.trace.tracer import current_source, is_concrete, is_eager


def read_array(x: Value, index: Any) -> Value:
    """`x[index]` of an array or a traced value."""
    if type(x) is Array and is_eager():
        return take_now(x, index)
    indexer, operands = normalize(x.shape, index)
    return take(x, indexer, operands)


def write_array(x: Value, index: Any, v: Any) -> NoReturn:
    """Refuse `x[index] = v`: arrays are immutable."""
    bad_type(
        f"an array of type {x.aval} is immutable: use `x = x.at[index].set(v)`, or a Ref, in place of "
        "`x[index] = v`"
    )


class AtView:
    """What `x.at` is: index it to choose the place of a functional update."""

    __slots__ = ("_x",)

    def __init__(self, x: Value) -> None:
        self._x = x

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            message = (
                f"`x.at` has no attribute {name!r}; choose a place first: `x.at[index].set(v)`"
            )
            raise AttributeError(f"{message}{at_source(current_source())}", name=name, obj=self)

    def __getitem__(self, index: Any) -> Place:
        return Place(self._x, index)


class Place:
    """A place of an array, to be read or combined with new values; the array itself does not change.

    `unique_indices` promises that no element is named twice, `indices_are_sorted` that index arrays
    ascend; both only make the operation cheaper.
    """

    __slots__ = ("_index", "_x")

    def __init__(self, x: Value, index: Any) -> None:
        self._x = x
        self._index = index

    def get(self) -> Value:
        """What stands there now."""
        return read_array(self._x, self._index)

    def set(self, v: ArrayLike, **flags: bool) -> Value:
        """The array with `v` written there; of several writes to one element the last wins."""
        return self._put(v, "set", **flags)

    def add(self, v: ArrayLike, **flags: bool) -> Value:
        """The array with `v` added there; an element named several times gets every share."""
        return self._put(v, "add", **flags)

    def multiply(self, v: ArrayLike, **flags: bool) -> Value:
        """The array with the elements there multiplied by `v`."""
        return self._put(v, "mul", **flags)

    def max(self, v: ArrayLike, **flags: bool) -> Value:
        """The array with the greater of old and `v` there."""
        return self._put(v, "max", **flags)

    def min(self, v: ArrayLike, **flags: bool) -> Value:
        """The array with the lesser of old and `v` there."""
        return self._put(v, "min", **flags)

    def _put(
        self,
        v: Any,
        kind: str,
        *,
        unique_indices: bool = False,
        indices_are_sorted: bool = False,
    ) -> Value:
        place = masked_place(self._x.shape, self._index)
        if place is not None and not is_concrete(place.mask):
            return put_masked(self._x, place, v, kind)
        x, flags = self._x, (unique_indices, indices_are_sorted)
        if type(x) is Array and is_eager():
            return put_now(x, self._index, v, kind, flags)
        indexer, operands = normalize(x.shape, self._index)
        return put_kind(
            x, indexer, operands, v, kind, unique_indices=flags[0], indices_are_sorted=flags[1]
        )


def _getitem(x: Value, index: Any) -> Any:
    if isinstance(x.aval, ShapedArray):
        return read_array(x, index)
    return type_rules(x.aval).getitem(x, index)


def _setitem(x: Value, index: Any, v: Any) -> None:
    if isinstance(x.aval, ShapedArray):
        write_array(x, index, v)
    type_rules(x.aval).setitem(x, index, v)


def _at(x: Value) -> Any:
    at = type_rules(x.aval).at
    return AtView(x) if at is None else at(x)


OPS["getitem"] = _getitem
OPS["setitem"] = _setitem
METHODS["at"] = _at
