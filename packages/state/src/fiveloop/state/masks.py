"""Boolean masks as indices of Refs: `ref[mask] = x`, where the mask may be known only at run time.

A mask covers the first axes of a Ref, or of the part that the rest of the index names. What is written is of one
element, or of the shape of what the mask does not cover, or of the shape of all that the mask chooses from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from fiveloop.core import (
    Aval,
    ShapedArray,
    Value,
    as_value,
    at_source,
    base_of,
    broadcast_in_dim,
    broadcast_shapes,
    cast_for_write,
    current_source,
    is_concrete,
    select,
)
from fiveloop.state.monoids import Monoid
from fiveloop.state.views import At


@dataclass(frozen=True, slots=True)
class Masked:
    """A part of a Ref, and a mask over its first axes."""

    part: Value
    mask: Value

    @property
    def is_known(self) -> bool:
        """Whether the mask's elements are known now."""
        return is_concrete(self.mask)

    def fits(self, x: Any) -> bool:
        """Whether a value has one element for each that the mask chooses from, or for each beyond the mask."""
        shape, part = tuple(np.shape(x)), self.part.shape
        inner = part[self.mask.ndim :]
        return shape == part or broadcast_shapes(shape, inner) == inner

    def unreadable(self) -> TypeError:
        """What the mask chooses has no shape while tracing."""
        return TypeError(
            f"expected a mask whose elements are known to read {self.part.aval} at it, got the traced mask "
            f"{self.mask!r}: the size of the result must be static; read all, and use `where(mask, ref[...], other)`"
            f"{at_source(current_source())}"
        )

    def only(self, x: Any) -> Any:
        """Of a value with an element for each that a known mask chooses from, those that it chooses."""
        return as_value(x)[self.mask] if np.shape(x) == self.part.shape else x

    def everywhere(self, x: Any) -> Value:
        """A value for each element of the part."""
        return cast_for_write(ShapedArray(self.part.shape, self.part.dtype), self.part.shape, x)

    def or_neutral(self, x: Any, monoid: Monoid) -> Value:
        """A value where the mask holds, and what changes nothing elsewhere."""
        value = self.everywhere(x)
        neutral = monoid.neutral(value.aval)
        # Zero, added to minus zero, changes its sign; minus zero does not.
        return select(self.wide(), value, -neutral if monoid.name == "add" else neutral)

    def wide(self) -> Value:
        """The mask for each element of the part."""
        return broadcast_in_dim(self.mask, self.part.shape, range(self.mask.ndim))


class Read(Protocol):
    """When a Ref was read."""

    @property
    def version(self) -> object: ...


class MaskedRead(Value):
    """What `ref[mask]` gives if the mask is traced: it has no shape, but `ref[mask] += x` and its kin work."""

    __slots__ = ("masked", "read")

    def __init__(self, masked: Masked, read: Read) -> None:
        self.masked = masked
        self.read = read
        self._note = None

    @property
    def aval(self) -> Aval:
        raise self.masked.unreadable()

    def __repr__(self) -> str:
        return f"{self.masked.part!r}[{self.masked.mask!r}]"

    def __iadd__(self, x: Any) -> Value:
        return MaskedSum(self.masked, self.read, x)

    def __isub__(self, x: Any) -> Value:
        return self._all() - self.masked.everywhere(x)

    def __imul__(self, x: Any) -> Value:
        return self._all() * self.masked.everywhere(x)

    def __itruediv__(self, x: Any) -> Value:
        return self._all() / self.masked.everywhere(x)

    def _all(self) -> Value:
        if base_of(self.masked.part)._note is not self.read.version:
            raise self.elsewhere()
        return self.masked.part[...]

    def elsewhere(self) -> TypeError:
        """It is written to another place, or the Ref has been written since."""
        return TypeError(
            f"what a traced mask chooses from {self.masked.part.aval} can only be changed and written back at the same "
            f"mask, before any other write; write `ref[mask] += x`, or read all and use "
            f"`where(mask, ref[...] + x, other)`"
            f"{at_source(current_source())}"
        )


class MaskedSum(MaskedRead):
    """What `ref[mask]` would be plus `x`: it can only be written back."""

    __slots__ = ("x",)

    def __init__(self, masked: Masked, read: Read, x: Any) -> None:
        super().__init__(masked, read)
        self.x = x

    def __iadd__(self, x: Any) -> Value:
        return MaskedSum(self.masked, self.read, as_value(self.x) + x)

    def __isub__(self, x: Any) -> Value:
        return MaskedSum(self.masked, self.read, as_value(self.x) - x)

    def _all(self) -> Value:
        return super()._all() + self.masked.everywhere(self.x)


def masked(ref: Value, index: Any) -> Masked | None:
    """The part of a Ref and the mask that an index names, if it begins with a mask and has no other arrays."""
    items = index if type(index) is tuple else (index,)
    if not items or not _is_mask(items[0]) or any(_is_array(i) for i in items[1:]):
        return None
    mask = as_value(items[0], "the mask")
    if mask.ndim > ref.ndim or mask.shape != ref.shape[: mask.ndim]:
        raise IndexError(
            f"expected a mask of shape {ref.shape[: mask.ndim]} for the first axes of {ref.aval}, got {mask.shape}"
            f"{at_source(current_source())}"
        )
    rest = items[1:]
    part = At(ref)[(*[slice(None)] * mask.ndim, *rest)] if rest else ref
    return Masked(part, mask)


def _is_mask(item: Any) -> bool:
    return isinstance(item, (Value, np.ndarray)) and item.dtype == np.bool_ and item.ndim > 0


def _is_array(item: Any) -> bool:
    return item is None or (isinstance(item, (Value, np.ndarray)) and item.ndim > 0)
