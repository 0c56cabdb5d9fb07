"""Views: parts of a Ref that are Refs, made by `ref.at[index]`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from fiveloop.core import Value, is_concrete
from fiveloop.core.engine import (
    Indexer,
    Layout,
    Normal,
    View,
    at_source,
    base_of,
    before_layouts,
    cast_for_write,
    compose,
    current_source,
    has_mask,
    masked_place,
    normalize,
    reshaped,
    transposed,
)
from fiveloop.core.extend import Aval, ShapedArray
from fiveloop.state.avals import AbstractRef
from fiveloop.state.refs import EagerRef, FrozenNote, Ref

_INSTEAD = {
    "add": "ref[index] += x",
    "multiply": "ref[index] *= x",
}
"""What is written for the methods of `x.at[index]` of an array."""


class RefView(View, Ref):
    """A part of a Ref. It is a Ref: what is written to it is written to the Ref that it is a part of."""

    __slots__ = ("_aval",)

    def __init__(
        self,
        base: Value,
        indexer: Indexer,
        operands: Sequence[Value],
        layouts: Sequence[Layout] = (),
    ) -> None:
        super().__init__(base, indexer, operands, layouts)
        shape = layouts[-1].new if layouts else indexer.result_shape
        # In a tree of types the base is a type itself, that of a cotangent too.
        kind = getattr(base, "aval", base)
        differentiated = getattr(kind, "differentiated", True)
        self._aval = AbstractRef(ShapedArray(shape, base.dtype), differentiated)

    @property
    def aval(self) -> Aval:
        return self._aval

    def own_array(self) -> None:
        """Refused: a program that runs takes the Ref that this is a part of."""
        self.check_operand()

    if not TYPE_CHECKING:  # a type checker is to see what exists

        def __getattr__(self, name: str) -> Any:
            if name not in _INSTEAD:
                return super().__getattr__(name)
            raise AttributeError(
                f"a part of a Ref, `ref.at[index]`, has no attribute {name!r}: write `{_INSTEAD[name]}`"
                f"{at_source(current_source())}",
                name=name,
                obj=self,
            )

    def __iadd__(self, x: Any) -> NoReturn:
        raise TypeError(
            f"a Ref of type {self.aval} is no number to add to: write `ref[index] += x`, or, on a part, `part[...] += "
            f"x`{at_source(current_source())}"
        )

    def __repr__(self) -> str:
        names = [str(i) if not i.ndim else str(i.aval) for i in self.operands]
        return f"{self.base!r}{self.pretty(names)}"


class At:
    """What `ref.at` is: index it to name a part of the Ref."""

    __slots__ = ("_ref",)

    def __init__(self, ref: Value) -> None:
        self._ref = ref

    def __getitem__(self, index: Any) -> Ref:
        _check_known(self._ref, index)
        base, place, layouts = through(self._ref, index)
        _check_alive(base)
        return RefView(base, *normalize(base.shape, place), layouts)

    def __setitem__(self, index: Any, x: Any) -> NoReturn:
        raise TypeError(
            f"`ref.at` names parts of a Ref of type {self._ref.aval}, and is not written: write `ref[index] = x`"
            f"{at_source(current_source())}"
        )


def _check_known(ref: Value, index: Any) -> None:
    """Raise if an index has a mask that is known only at run time: the size of a part is static."""
    place = masked_place(ref.shape, index) if has_mask(index) else None
    if place is not None and not is_concrete(place.mask):
        raise TypeError(
            f"`ref.at[mask]`: expected a mask whose elements are known to name a part of {ref.aval}, got the traced "
            f"mask {place.mask!r}: the size of a part must be static; write at the mask, `ref[mask] = x` or "
            f"`ref[mask] += x`{at_source(current_source())}"
        )


def _check_alive(base: Value) -> None:
    """Raise if a Ref has been frozen."""
    if isinstance(base, EagerRef):
        _ = base.array
    elif isinstance(base._note, FrozenNote):
        base._note.handed_on(base)


def reshape(ref: Value, shape: Any) -> Value:
    """The Ref in another shape: `ref.reshape(shape)`."""
    return _laid(ref, reshaped(ref.shape, shape))


def transpose(ref: Value, axes: Any = None) -> Value:
    """The Ref with its axes in another order: `ref.transpose(axes)` and `ref.T`."""
    return _laid(ref, transposed(ref.shape, axes))


def _laid(ref: Value, layout: Layout) -> Value:
    """A view of all of a Ref in another layout; the Ref itself if that changes nothing."""
    base, place, layouts = through(ref, ...)
    _check_alive(base)
    if layout.is_plain:
        return ref
    return RefView(base, *normalize(base.shape, place), (*layouts, layout))


def through(
    ref: Value, index: Any, *, drops: bool = False
) -> tuple[Value, Any, tuple[Layout, ...]]:
    """A Ref and an index; of a view, the Ref that it is a part of, where in that, and the layouts of what is there.

    With `drops`, for a write, what lies outside of a part lies outside of the Ref, too.
    """
    base = base_of(ref)
    if not isinstance(ref, View):
        return base, index, ()
    if index is ...:
        return base, Normal(ref.indexer, list(ref.operands)), ref.layouts
    inner = normalize(ref.shape, index)
    indexer, operands, layouts = before_layouts(ref.layouts, *inner, drops=drops)
    composed = compose(base.shape, ref.indexer, ref.operands, indexer, operands, drops=drops)
    return base, Normal(*composed), layouts


def laid(x: Value, layouts: Sequence[Layout]) -> Value:
    """What is read, in the layouts of a view."""
    for layout in layouts:
        x = layout.of(x)
    return x


def written(ref: Value, index: Any, x: Any) -> tuple[Value, Any, Any, tuple[Layout, ...]]:
    """As `through`, with a value that is to be written there, without the layouts."""
    base, place, layouts = through(ref, index, drops=True)
    if layouts:
        x = cast_for_write(ShapedArray((), base.dtype), layouts[-1].new, x)
    for layout in reversed(layouts):
        x = layout.undone(x)
    return base, place, x, layouts
