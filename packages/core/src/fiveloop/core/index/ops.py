"""The indexing operators of arrays: `x[i]`, `x.at[i]`, and the error for `x[i] = v`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from fiveloop.core import arrays, errors, prims, rules, trace
from fiveloop.core.arrays import ArrayLike, Value
from fiveloop.core.index import access, bounds, eager, parse


def read_array(x: Value, index: Any) -> Value:
    """`x[index]` of an array or a traced value."""
    if type(x) is arrays.Array and trace.is_eager():
        return eager.take_now(x, index)
    indexer, operands = parse.normalize(x.shape, index)
    return access.take(x, indexer, operands)


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
            raise AttributeError(
                f"{message}{errors.at_source(trace.current_source())}", name=name, obj=self
            )

    def __getitem__(self, index: Any) -> Place:
        return Place(self._x, index)


class Place:
    """A place of an array, to be read or combined with new values; the array itself does not change.

    `mode` says what happens out of bounds. None is the rule of all indexing: an index that is known is checked; one
    that is known only at run time is clamped for a read, and a write leaves out what is outside. "clip" clamps and
    "drop" and "fill" leave out, whatever is known; "promise_in_bounds" says that nothing is out of bounds.
    `unique_indices` promises that no element is named twice, `indices_are_sorted` that index arrays ascend; both only
    make the operation cheaper.
    """

    __slots__ = ("_index", "_x")

    def __init__(self, x: Value, index: Any) -> None:
        self._x = x
        self._index = index

    def get(
        self, *, mode: str | None = None, fill_value: ArrayLike | None = None, **flags: bool
    ) -> Value:
        """What stands there now; with "fill" or "drop", `fill_value` (NaN, or the least integer) out of bounds."""
        for name in flags:
            if name not in ("unique_indices", "indices_are_sorted"):
                prims.bad_type(
                    f"x.at[index].get: expected `mode`, `fill_value`, `unique_indices` or `indices_are_sorted`, got "
                    f"{name!r}"
                )
        x, index = self._x, bounds.by_mode(self._x.shape, self._index, mode)
        if mode not in ("drop", "fill"):
            return read_array(x, index)
        if fill_value is None:
            return bounds.take_or_fill(x, index, bounds.filler_of(x.dtype))
        return bounds.take_or_fill(x, index, access.cast_for_write(x.aval, (), fill_value))

    def set(self, v: ArrayLike, **options: Any) -> Value:
        """The array with `v` written there; of several writes to one element the last wins."""
        return self._put(v, "set", **options)

    def add(self, v: ArrayLike, **options: Any) -> Value:
        """The array with `v` added there; an element named several times gets every share."""
        return self._put(v, "add", **options)

    def subtract(self, v: ArrayLike, **options: Any) -> Value:
        """The array with `v` taken away there; from an element named several times every share."""
        return self._put(
            arrays.OPS["negative"](arrays.as_value(v, "the value written")), "add", **options
        )

    def multiply(self, v: ArrayLike, **options: Any) -> Value:
        """The array with the elements there multiplied by `v`."""
        return self._put(v, "mul", **options)

    mul = multiply

    def divide(self, v: ArrayLike, **options: Any) -> Value:
        """The array with the elements there divided by `v`; one named several times by every share."""
        if self._x.dtype.kind in "biu":
            prims.bad_type(
                f"x.at[index].divide: expected floating point numbers, got {self._x.aval}; convert it first: "
                "`x.astype('float32')`"
            )
        return arrays.OPS["divide"](self._x, self._factors(v, options))  # type: ignore[no-any-return]

    def power(self, v: ArrayLike, **options: Any) -> Value:
        """The array with the elements there raised to the power `v`; one named several times to every share."""
        return arrays.OPS["power"](self._x, self._factors(v, options))  # type: ignore[no-any-return]

    def apply(
        self, fun: Callable[[Value], ArrayLike], *, mode: str | None = None, **flags: bool
    ) -> Value:
        """The array with a function of elements applied there, once also to an element named several times."""
        if not callable(fun):
            prims.bad_type(f"x.at[index].apply: expected a function, got {fun!r}")
        place = access.masked_place(self._x.shape, self._index)
        if place is not None and not trace.is_concrete(place.mask):
            old = place.laid(bounds.take_or_fill(self._x, place.normal, None))
            return access.put_masked(self._x, place, fun(old))
        if mode in bounds.CLAMPED:
            old = self.get(mode=mode)
        else:  # one outside, where what is computed is left out, but has a derivative
            one = prims.full((), 1, self._x.dtype)
            old = bounds.take_or_fill(
                self._x, bounds.by_mode(self._x.shape, self._index, mode), one
            )
        return self._put(fun(old), "set", mode=mode, **flags)

    def max(self, v: ArrayLike, **options: Any) -> Value:
        """The array with the greater of old and `v` there."""
        return self._put(v, "max", **options)

    def min(self, v: ArrayLike, **options: Any) -> Value:
        """The array with the lesser of old and `v` there."""
        return self._put(v, "min", **options)

    def _factors(self, v: ArrayLike, options: dict[str, Any]) -> Value:
        """Ones, and the product of all shares of each element there."""
        ones = prims.full(self._x.shape, 1, self._x.dtype)
        return Place(ones, self._index).multiply(v, **options)

    def _put(
        self,
        v: Any,
        kind: str,
        *,
        mode: str | None = None,
        unique_indices: bool = False,
        indices_are_sorted: bool = False,
    ) -> Value:
        x, flags = self._x, (unique_indices, indices_are_sorted)
        index, drops = bounds.by_mode(x.shape, self._index, mode), mode not in bounds.CLAMPED
        place = access.masked_place(x.shape, index)
        if place is not None and not trace.is_concrete(place.mask):
            return access.put_masked(x, place, v, kind, drops)
        if type(x) is arrays.Array and trace.is_eager():
            return eager.put_now(x, index, v, kind, flags, drops=drops)
        indexer, operands = parse.normalize(x.shape, index)
        indexer = indexer.dropping() if drops else indexer
        return access.put(x, indexer, operands, v, kind, unique=flags[0], ascending=flags[1])


def refuse_write(x: Value, index: Any, v: Any) -> NoReturn:
    """The error for `x[index] = v` of an array."""
    prims.bad_type(
        f"an array of type {x.aval} is immutable: use `x = x.at[index].set(v)`, or a Ref, in place of `x[index] = v`"
    )


arrays.OPS["getitem"] = read_array
arrays.OPS["setitem"] = refuse_write
arrays.METHODS["at"] = rules.own_method("at", AtView)
