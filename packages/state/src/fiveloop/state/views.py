"""Views: parts of a Ref that are Refs, made by `ref.at[index]`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from fiveloop.core import Value, ad, errors, ir, prims, trace
from fiveloop.core.index import access as indexing
from fiveloop.core.index import compose, views
from fiveloop.core.index import masks as index_masks
from fiveloop.core.index import parse as index_parse
from fiveloop.core.index.layout import Layout, before_layouts, reshaped, transposed
from fiveloop.core.ir.indexer import Indexer, whole_indexer
from fiveloop.state import avals, refs

_INSTEAD = {"add": "ref[index] += x", "multiply": "ref[index] *= x"}
"""What is written for the methods of `x.at[index]` of an array."""


class RefView(views.View, refs.Ref):
    """A part of a Ref. It is a Ref: what is written to it is written to the Ref that it is a part of."""

    __slots__ = ("_aval",)

    def __init__(
        self, outer: Value, indexer: Indexer, operands: ad.Values, layouts: Sequence[Layout] = ()
    ) -> None:
        super().__init__(outer, indexer, operands, layouts)
        shape = layouts[-1].new if layouts else indexer.result_shape
        # In a tree of types the base is a type itself, that of a cotangent too.
        kind = getattr(outer, "aval", outer)
        differentiated = getattr(kind, "differentiated", True)
        self._aval = avals.AbstractRef(ir.ShapedArray(shape, outer.dtype), differentiated)

    @property
    def aval(self) -> ir.Aval:
        return self._aval

    def own_array(self) -> None:
        """Refused: a program that runs takes the Ref that this is a part of."""
        self.check_operand()

    @property
    def turn(self) -> None:
        """Refused, as `own_array`."""
        self.check_operand()

    if not TYPE_CHECKING:  # a type checker is to see what exists

        def __getattr__(self, name: str) -> Any:
            if name not in _INSTEAD:
                return super().__getattr__(name)
            raise AttributeError(
                f"a part of a Ref, `ref.at[index]`, has no attribute {name!r}: write `{_INSTEAD[name]}`"
                f"{errors.at_source(trace.current_source())}",
                name=name,
                obj=self,
            )

    def __iadd__(self, x: Any) -> NoReturn:
        raise TypeError(
            f"a Ref of type {self.aval} is no number to add to: write `ref[index] += x`, or, on a part, `part[...] += "
            f"x`{errors.at_source(trace.current_source())}"
        )

    def __repr__(self) -> str:
        names = [str(i) if not i.ndim else str(i.aval) for i in self.all_operands]
        return f"{self.base!r}{self.pretty(names)}"


class At:
    """What `ref.at` is: index it to name a part of the Ref."""

    __slots__ = ("_ref",)

    def __init__(self, ref: Value) -> None:
        self._ref = ref

    def __getitem__(self, index: Any) -> refs.Ref:
        _check_known(self._ref, index)
        ref = self._ref
        _check_alive(views.base_of(ref))
        inner = index_parse.normalize(ref.shape, index)
        if not isinstance(ref, views.View) or not _is_one_index(ref, inner[0]):
            return RefView(ref, *inner)
        return RefView(ref.outer, *_before(ref, *inner))

    def __setitem__(self, index: Any, x: Any) -> NoReturn:
        raise TypeError(
            f"`ref.at` names parts of a Ref of type {self._ref.aval}, and is not written: write `ref[index] = x`"
            f"{errors.at_source(trace.current_source())}"
        )


def _check_known(ref: Value, index: Any) -> None:
    """Raise if an index has a mask that is known only at run time: the size of a part is static."""
    place = index_masks.masked_place(ref.shape, index) if index_masks.has_mask(index) else None
    if place is not None and not trace.is_concrete(place.mask):
        raise TypeError(
            f"`ref.at[mask]`: expected a mask whose elements are known to name a part of {ref.aval}, got the traced "
            f"mask {place.mask!r}: the size of a part must be static; write at the mask, `ref[mask] = x` or "
            f"`ref[mask] += x`{errors.at_source(trace.current_source())}"
        )


def _check_alive(base: Value) -> None:
    """Raise if a Ref has been frozen."""
    if isinstance(base, refs.EagerRef):
        _ = base.array
    elif isinstance(base._note, refs.FrozenNote):
        base._note.handed_on(base)


def reshape(ref: Value, shape: Any) -> Value:
    """The Ref in another shape: `ref.reshape(shape)`."""
    return _laid(ref, reshaped(ref.shape, shape))


def transpose(ref: Value, axes: Any = None) -> Value:
    """The Ref with its axes in another order: `ref.transpose(axes)` and `ref.T`."""
    return _laid(ref, transposed(ref.shape, axes))


def _laid(ref: Value, layout: Layout) -> Value:
    """A view of all of a Ref in another layout; the Ref itself if that changes nothing."""
    _check_alive(views.base_of(ref))
    if layout.is_plain:
        return ref
    if isinstance(ref, views.View):
        return RefView(ref.outer, ref.indexer, ref.operands, (*ref.layouts, layout))
    return RefView(ref, whole_indexer(ref.shape), (), (layout,))


def through(
    ref: Value, index: Any, *, drops: bool = False
) -> tuple[Value, Any, tuple[Layout, ...]]:
    """A Ref and an index; of a view, the Ref that it is a part of, where in that, and the layouts of what is there.

    If it `drops`, what lies outside of a part lies outside of the Ref, too.
    """
    if not isinstance(ref, views.View):
        return ref, index, ()
    indexer, operands = index_parse.normalize(ref.shape, index)
    layouts: tuple[Layout, ...] = ()
    while isinstance(ref, views.View):
        indexer, operands, left = _before(ref, indexer, operands, drops)
        ref, layouts = ref.outer, (*left, *layouts)
    return ref, index_parse.Normal(indexer, operands), layouts


def laid(x: Value, layouts: Sequence[Layout]) -> Value:
    """What is read, in the layouts of a view."""
    for layout in layouts:
        x = layout.of(x)
    return x


def written(
    ref: Value, index: Any, x: Any, monoid: prims.Monoid | None = None
) -> tuple[Value, Any, Any]:
    """As `through`, for a value that is to be written there, or combined by a monoid; the value in no layout."""
    if not isinstance(ref, views.View):
        return ref, index, x
    indexer, operands = index_parse.normalize(ref.shape, index)
    while isinstance(ref, views.View):
        has_axes = bool(ref.outer.shape) and all(layout.old for layout in ref.layouts)
        if not has_axes and indexer.dynamic_axes:
            x = _where_inside(ref, indexer, operands, x, monoid)
        indexer, operands, left = _before(ref, indexer, operands, drops=has_axes)
        if left:
            x = indexing.cast_for_write(ir.ShapedArray((), ref.dtype), left[-1].new, x)
        for layout in reversed(left):
            x = layout.undone(x)
        ref = ref.outer
    return ref, index_parse.Normal(indexer, operands), x


def _is_one_index(view: views.View, indexer: Indexer) -> bool:
    """Whether an index into a view is, for reads and writes, one index into what that is a part of."""
    if view.layouts:
        return not indexer.dynamic_axes
    return compose.composes_alike(view.outer.shape, view.indexer, indexer)


def _before(
    view: views.View, indexer: Indexer, operands: ad.Values, drops: bool = False
) -> tuple[Indexer, list[Value], tuple[Layout, ...]]:
    """An index into a view as one into what that is a part of, and the layouts of what is there."""
    if indexer == whole_indexer(view.shape):
        return view.indexer, list(view.operands), view.layouts
    indexer, operands, layouts = before_layouts(view.layouts, indexer, operands, drops=drops)
    shape = view.outer.shape
    return *compose.compose(
        shape, view.indexer, view.operands, indexer, operands, drops=drops
    ), layouts


def _where_inside(
    ref: views.View, indexer: Indexer, operands: ad.Values, x: Any, monoid: prims.Monoid | None
) -> Value:
    """What to write to the only element of a view, where an index that is known at run time may be out of bounds."""
    inside = indexing.take(prims.full(ref.shape, True, np.bool_), indexer.dropping(), operands)
    x = indexing.cast_for_write(ir.ShapedArray((), ref.dtype), indexer.result_shape, x)
    if monoid is not None:
        return prims.select(inside, x, monoid.nothing(x.aval))
    # One of those that are inside stays, if there are any.
    held, flat = ref[...].reshape(()), inside.reshape(-1)
    stays = prims.select(flat.any(), x.reshape(-1)[flat.argmax()], held) if flat.size else held
    return prims.select(inside, x, prims.broadcast_in_dim(stays, x.shape, ()))
