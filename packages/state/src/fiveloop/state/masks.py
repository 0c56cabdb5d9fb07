"""Boolean masks as indices of Refs: `ref[mask] = x`, where the mask may be known only at run time.

A mask stands for as many axes as it has, at any place of an index. What is written broadcasts to what NumPy selects
as if that were one element, or is of the shape of all that the mask chooses from.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from fiveloop.core import Value, arrays, errors, ir, prims, trace
from fiveloop.core.dataclass import dataclass
from fiveloop.core.index import masks as index_masks
from fiveloop.core.index import parse as index_parse
from fiveloop.core.index.views import View
from fiveloop.core.ir import indexer
from fiveloop.state.views import At, laid, through


@dataclass(frozen=True, slots=True)
class Masked:
    """A part of a Ref, and the mask that chooses from it."""

    part: Value
    place: index_masks.MaskedPlace

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
        """Of a value with an element for each that a known mask chooses from, those that it chooses."""
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
        if not isinstance(self.part, View):
            return self.part[...]
        base, place, layouts = through(self.part, ..., drops=True)
        return laid(base[index_parse.Normal(place.indexer.dropping(), place.operands)], layouts)


class Read(Protocol):
    """A read of a Ref."""

    @property
    def is_current(self) -> bool: ...


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

    def __isub__(self, x: Any) -> Value:
        return self._changed(operator.sub, x)

    def __imul__(self, x: Any) -> Value:
        return self._changed(operator.mul, x)

    def __itruediv__(self, x: Any) -> Value:
        return self._changed(operator.truediv, x)

    def __ifloordiv__(self, x: Any) -> Value:
        return self._changed(operator.floordiv, x)

    def __imod__(self, x: Any) -> Value:
        return self._changed(operator.mod, x)

    def __ipow__(self, x: Any) -> Value:
        return self._changed(operator.pow, x)

    def __iand__(self, x: Any) -> Value:
        return self._changed(operator.and_, x)

    def __ior__(self, x: Any) -> Value:
        return self._changed(operator.or_, x)

    def __ixor__(self, x: Any) -> Value:
        return self._changed(operator.xor, x)

    def __ilshift__(self, x: Any) -> Value:
        return self._changed(operator.lshift, x)

    def __irshift__(self, x: Any) -> Value:
        return self._changed(operator.rshift, x)

    def _changed(self, op: Callable[[Value, Value], Value], x: Any) -> Value:
        """What the mask chooses, changed; where it does not hold, one by one, so that nothing goes wrong there."""
        return op(self._safe(self._all()), self._safe(self._laid(x)))

    def _safe(self, laid: Value) -> Value:
        place = self.masked.place
        return index_masks.one_outside(place.laid(place.wide()), laid)

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
    """The part of a Ref and the mask that an index names; None without one, or if the normal form is all there is."""
    if not index_masks.has_mask(index):
        return None
    place = index_masks.masked_place(ref.shape, index)
    if place is None:
        return None
    whole = place.normal.indexer == indexer.whole_indexer(ref.shape)
    return Masked(ref if whole else At(ref)[place.normal], place)
