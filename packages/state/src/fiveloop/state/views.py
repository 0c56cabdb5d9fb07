"""Views: parts of a Ref that are Refs, made by `ref.at[index]`."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import numpy as np

from fiveloop.core import Value, ad, arrays, errors, ir, prims, trace
from fiveloop.core.dataclass import dataclass
from fiveloop.core.index import access, compose
from fiveloop.core.index import parse as index_parse
from fiveloop.core.index.layout import Layout, before_layouts, reshaped, transposed
from fiveloop.core.ir import indexer
from fiveloop.core.ir.indexer import Indexer, whole_indexer
from fiveloop.state import refs


@dataclass(frozen=True, slots=True)
class Masked:
    """A part of a Ref, and the mask that chooses from it."""

    part: Value
    place: access.MaskedPlace

    @property
    def is_known(self) -> bool:
        """Whether the mask's elements are known now."""
        return trace.is_concrete(self.place.mask)

    def fits(self, x: Any) -> bool:
        """Whether a value has one element for each that the mask chooses from, or is shared by all chosen."""
        return self.place.fits(tuple(np.shape(x)))

    def unreadable(self) -> TypeError:
        """What the mask chooses has no shape while tracing."""
        return TypeError(
            f"expected a mask whose elements are known to read {self.part.aval} at it, got the traced mask "
            f"{self.place.mask!r}: the size of the result must be static; read all, and use `where(mask, ref[...], "
            f"other)`{errors.at_source(trace.current_source())}"
        )

    def only(self, x: Any) -> Any:
        """The elements that a known mask chooses, of a value with an element for each element of the mask."""
        if tuple(np.shape(x)) != self.place.laid_shape:
            return x
        return arrays.as_value(x)[(*[slice(None)] * self.place.at, self.place.mask)]

    def everywhere(self, x: Any) -> Value:
        """A value for each element of the part."""
        return self.place.spread(x, ir.ShapedArray(self.part.shape, self.part.dtype))

    def or_neutral(self, x: Any, monoid: prims.Monoid) -> Value:
        """A value where the mask holds, and what changes nothing elsewhere."""
        value = self.everywhere(x)
        return prims.select(self.place.wide(), value, monoid.nothing(value.aval))

    def written(self, x: Any) -> Value:
        """What the part holds, with a value where the mask holds."""
        return prims.select(self.place.wide(), self.everywhere(x), self.held())

    def held(self) -> Value:
        """What the part holds, where it is written."""
        if not isinstance(self.part, access.View):
            return self.part[...]
        base, place, layouts = through(self.part, ..., drops=True)
        return laid(base[index_parse.Normal(place.indexer.dropping(), place.operands)], layouts)


class Read(Protocol):
    """A read of a Ref."""

    @property
    def is_current(self) -> bool: ...


def _changing(op: Callable[[Value, Value], Value]) -> Callable[[MaskedRead, Any], Value]:
    """The chosen elements, changed; elsewhere the function gets ones, so that it cannot fail there."""
    return lambda read, x: op(read._safe(read._all()), read._safe(read._laid(x)))


class MaskedRead(Value):
    """What `ref[mask]` gives if the mask is traced: it has no shape, but `ref[mask] += x` and its kin work."""

    __slots__ = ("masked", "read")

    def __init__(self, masked: Masked, read: Read) -> None:
        self.masked = masked
        self.read = read
        self._note = None

    @property
    def aval(self) -> ir.Aval:
        raise self.masked.unreadable()

    def __repr__(self) -> str:
        return f"{self.masked.part!r}[{self.masked.place.mask!r}]"

    def __iadd__(self, x: Any) -> Value:
        return MaskedSum(self.masked, self.read, x)

    __isub__ = _changing(operator.sub)
    __imul__ = _changing(operator.mul)
    __itruediv__ = _changing(operator.truediv)
    __ifloordiv__ = _changing(operator.floordiv)
    __imod__ = _changing(operator.mod)
    __ipow__ = _changing(operator.pow)
    __iand__ = _changing(operator.and_)
    __ior__ = _changing(operator.or_)
    __ixor__ = _changing(operator.xor)
    __ilshift__ = _changing(operator.lshift)
    __irshift__ = _changing(operator.rshift)

    def _safe(self, laid: Value) -> Value:
        place = self.masked.place
        return access.one_outside(place.laid(place.wide()), laid)

    def _all(self) -> Value:
        if not self.read.is_current:
            raise self.elsewhere()
        return self.masked.place.laid(self.masked.held())

    def _laid(self, x: Any) -> Value:
        """A value for each element that the mask chooses from, as NumPy would lay them out."""
        return self.masked.place.laid(self.masked.everywhere(x))

    def elsewhere(self) -> TypeError:
        """It is written to another place, or the Ref has been written since."""
        return TypeError(
            f"what a traced mask chooses from {self.masked.part.aval} can only be changed and written back at the same "
            f"mask, before any other write; write `ref[mask] += x`, or read all and use "
            f"`where(mask, ref[...] + x, other)`"
            f"{errors.at_source(trace.current_source())}"
        )


class MaskedSum(MaskedRead):
    """What `ref[mask]` would be plus `x`: it can only be written back."""

    __slots__ = ("x",)

    def __init__(self, masked: Masked, read: Read, x: Any) -> None:
        super().__init__(masked, read)
        self.x = x

    def __iadd__(self, x: Any) -> Value:
        return MaskedSum(self.masked, self.read, arrays.as_value(self.x) + x)

    def __isub__(self, x: Any) -> Value:
        return MaskedSum(self.masked, self.read, arrays.as_value(self.x) - x)

    def _all(self) -> Value:
        return super()._all() + self._laid(self.x)


def masked(ref: Value, index: Any) -> Masked | None:
    """The part of a Ref and the mask that an index names; None if the normal form is all there is."""
    place = access.masked_place(ref.shape, index)
    if place is None:
        return None
    whole = place.normal.indexer == indexer.whole_indexer(ref.shape)
    return Masked(ref if whole else At(ref)[place.normal], place)


_INSTEAD = {"add": "ref[index] += x", "multiply": "ref[index] *= x"}
"""What is written for the methods of `x.at[index]` of an array."""


class RefView(access.View, refs.Ref):
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
        self._aval = refs.AbstractRef(ir.ShapedArray(shape, outer.dtype), differentiated)

    @property
    def aval(self) -> ir.Aval:
        return self._aval

    def own_array(self) -> None:
        """Refused: a running program takes the whole Ref."""
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
        prims.bad_type(
            f"a Ref of type {self.aval} is no number to add to: write `ref[index] += x`, or, on a part, `part[...] += "
            "x`"
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
        _check_alive(access.base_of(ref))
        inner = index_parse.normalize(ref.shape, index)
        if not isinstance(ref, access.View) or not _is_one_index(ref, inner[0]):
            return RefView(ref, *inner)
        return RefView(ref.outer, *_before(ref, *inner))

    def __setitem__(self, index: Any, x: Any) -> NoReturn:
        prims.bad_type(
            f"`ref.at` names parts of a Ref of type {self._ref.aval}, and is not written: write `ref[index] = x`"
        )


def _check_known(ref: Value, index: Any) -> None:
    """Raise if an index has a mask that is known only at run time: the size of a part is static."""
    place = access.masked_place(ref.shape, index) if access.has_mask(index) else None
    if place is not None and not trace.is_concrete(place.mask):
        prims.bad_type(
            f"`ref.at[mask]`: expected a mask whose elements are known to name a part of {ref.aval}, got the traced "
            f"mask {place.mask!r}: the size of a part must be static; write at the mask, `ref[mask] = x` or "
            "`ref[mask] += x`"
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
    _check_alive(access.base_of(ref))
    if layout.is_plain:
        return ref
    if isinstance(ref, access.View):
        return RefView(ref.outer, ref.indexer, ref.operands, (*ref.layouts, layout))
    return RefView(ref, whole_indexer(ref.shape), (), (layout,))


def through(
    ref: Value, index: Any, *, drops: bool = False
) -> tuple[Value, Any, tuple[Layout, ...]]:
    """A Ref and an index; for a view, the whole Ref, the index into it, and the layouts of the part.

    If it `drops`, elements outside of a part lie outside of the Ref, too.
    """
    if not isinstance(ref, access.View):
        return ref, index, ()
    indexer, operands = index_parse.normalize(ref.shape, index)
    layouts: tuple[Layout, ...] = ()
    while isinstance(ref, access.View):
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
    if not isinstance(ref, access.View):
        return ref, index, x
    indexer, operands = index_parse.normalize(ref.shape, index)
    while isinstance(ref, access.View):
        has_axes = bool(ref.outer.shape) and all(layout.old for layout in ref.layouts)
        if not has_axes and indexer.dynamic_axes:
            x = _where_inside(ref, indexer, operands, x, monoid)
        indexer, operands, left = _before(ref, indexer, operands, drops=has_axes)
        if left:
            x = access.cast_for_write(ir.ShapedArray((), ref.dtype), left[-1].new, x)
        for layout in reversed(left):
            x = layout.undone(x)
        ref = ref.outer
    return ref, index_parse.Normal(indexer, operands), x


def _is_one_index(view: access.View, indexer: Indexer) -> bool:
    """Whether an index into a view is, for reads and writes, a single index into its outer value."""
    if view.layouts:
        return not indexer.dynamic_axes
    return compose.composes_alike(view.outer.shape, view.indexer, indexer)


def _before(
    view: access.View, indexer: Indexer, operands: ad.Values, drops: bool = False
) -> tuple[Indexer, list[Value], tuple[Layout, ...]]:
    """An index into a view as an index into its outer value, and the layouts of the part."""
    if indexer == whole_indexer(view.shape):
        return view.indexer, list(view.operands), view.layouts
    indexer, operands, layouts = before_layouts(view.layouts, indexer, operands, drops=drops)
    shape = view.outer.shape
    return *compose.compose(
        shape, view.indexer, view.operands, indexer, operands, drops=drops
    ), layouts


def _where_inside(
    ref: access.View, indexer: Indexer, operands: ad.Values, x: Any, monoid: prims.Monoid | None
) -> Value:
    """What to write to the only element of a view, where an index that is known at run time may be out of bounds."""
    inside = access.take(prims.full(ref.shape, True, np.bool_), indexer.dropping(), operands)
    x = access.cast_for_write(ir.ShapedArray((), ref.dtype), indexer.result_shape, x)
    if monoid is not None:
        return prims.select(inside, x, monoid.nothing(x.aval))
    # One of those that are inside stays, if there are any.
    held, flat = ref[...].reshape(()), inside.reshape(-1)
    stays = prims.select(flat.any(), x.reshape(-1)[flat.argmax()], held) if flat.size else held
    return prims.select(inside, x, prims.broadcast_in_dim(stays, x.shape, ()))
