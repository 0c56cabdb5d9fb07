"""Indices with one boolean mask: what they choose from, so that a mask that is known only at run time can be written.

NumPy turns a mask into the positions where it holds, whose number is not static while tracing. A write needs no
such number: it goes to all that the mask chooses from, and keeps what stands where the mask does not hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from fiveloop.core import errors, ir, prims
from fiveloop.core.arrays.array import Value, as_value
from fiveloop.core.dataclass import dataclass
from fiveloop.core.index import access as indexing
from fiveloop.core.index.parse import DynamicSpan, Normal, bad_index, expand_ellipsis, normalize

_PLAIN = frozenset({int, slice, type(None), type(...), DynamicSpan})


@dataclass(frozen=True)
class MaskedPlace:
    """All that one mask in an index chooses from, and how NumPy lays out what it chooses.

    `normal` is the index with each axis of the mask whole, and `shape` what it selects, in which the mask's axes
    stand from `axis` on. In what NumPy selects, the one axis of the chosen elements stands at `at`.
    """

    normal: Normal
    mask: Value
    axis: int
    at: int

    @property
    def shape(self) -> ir.Shape:
        """The shape of all that the mask chooses from."""
        return self.normal.indexer.result_shape

    @property
    def _others(self) -> ir.Shape:
        return (*self.shape[: self.axis], *self.shape[self.axis + self.mask.ndim :])

    @cached_property
    def laid_shape(self) -> ir.Shape:
        """The same shape in NumPy's order: the mask's axes stand where the chosen elements would."""
        return (*self._others[: self.at], *self.mask.shape, *self._others[self.at :])

    @cached_property
    def shared_shape(self) -> ir.Shape:
        """The shape of what all chosen elements share: one along the axis of the chosen elements."""
        return (*self._others[: self.at], 1, *self._others[self.at :])

    def fits(self, shape: ir.Shape) -> bool:
        """Whether a value has an element for each that the mask chooses from, or is shared by all chosen."""
        return ir.same_shape(shape, self.laid_shape) or (
            ir.broadcast_shapes(shape, self.shared_shape) == self.shared_shape
        )

    def laid(self, part: Value) -> Value:
        """What has the order of `shape`, in the order of `laid_shape`."""
        return prims.transpose(part, [self._order.index(k) for k in range(part.ndim)])

    def spread(self, x: Any, like: ir.Aval) -> Value:
        """A value as it is written into an array of a type, for each element that the mask chooses from."""
        value = as_value(x, "the value written")
        if not self.fits(value.shape):
            prims.bad_value(
                f"cannot write a value of shape {errors.shape_str(value.shape)} where a mask "
                f"that is known only at run time "
                f"chooses from shape {errors.shape_str(self.laid_shape)}: expected a shape that broadcasts to "
                f"{errors.shape_str(self.shared_shape)}, for what all chosen elements share, or "
                f"{errors.shape_str(self.laid_shape)}, "
                "of which the elements at the mask are written"
            )
        if not ir.same_shape(value.shape, self.laid_shape):
            value = self._aligned(value)
        wide = indexing.cast_for_write(like, self.laid_shape, value)
        return prims.transpose(wide, self._order)

    def _aligned(self, value: Value) -> Value:
        """A value that broadcasts to `shared_shape`, as one that broadcasts to `laid_shape`."""
        if not value.ndim:
            return value
        shape = (*[1] * (len(self.shared_shape) - value.ndim), *value.shape)
        return prims.reshape(
            value, (*shape[: self.at], *[1] * self.mask.ndim, *shape[self.at + 1 :])
        )

    @property
    def _order(self) -> list[int]:
        """Where each axis of `shape` stands in `laid_shape`."""
        count = self.mask.ndim
        others = [k if k < self.at else k + count for k in range(len(self._others))]
        return [*others[: self.axis], *range(self.at, self.at + count), *others[self.axis :]]

    def wide(self) -> Value:
        """The mask for each element that it chooses from, in the order of `shape`."""
        axes = range(self.axis, self.axis + self.mask.ndim)
        return prims.broadcast_in_dim(self.mask, self.shape, tuple(axes))


def has_mask(index: Any) -> bool:
    """Whether some item of an index is an array of bools, or one bool."""
    for item in index if type(index) is tuple else (index,):
        if type(item) in _PLAIN:
            continue
        if isinstance(item, bool) or getattr(item, "dtype", None) == np.bool_:
            return True
    return False


def masked_place(shape: ir.Shape, index: Any) -> MaskedPlace | None:
    """What an index with one mask chooses from; None if the normal form is all there is to it.

    That is so without a mask, and for known masks that go along with other arrays or have no axes.
    """
    if not has_mask(index):
        return None
    items = expand_ellipsis(shape, index)
    masks = [k for k, i in enumerate(items) if _is_mask(i)]
    arrays = [i for i in items if isinstance(i, (Value, np.ndarray)) and i.ndim]
    if len(masks) > 1 or any(not _is_mask(i) for i in arrays):
        _check_known(items)
        return None
    (k,) = masks
    if isinstance(items[k], bool):
        return None
    mask = as_value(items[k], "the mask")
    _check_shape(shape, items, k, mask)
    whole = (*items[:k], *[slice(None)] * mask.ndim, *items[k + 1 :])
    kinds = ["mask" if n == k else _kind(i) for n, i in enumerate(items)]
    chosen = [n for n, kind in enumerate(kinds) if kind in ("mask", "at")]
    together = chosen[-1] - chosen[0] == len(chosen) - 1
    axis = sum(kind == "axis" for kind in kinds[:k])
    return MaskedPlace(Normal(*normalize(shape, whole)), mask, axis, axis if together else 0)


def put_masked(
    x: Value, place: MaskedPlace, v: Any, kind: str = "set", drops: bool = True
) -> Value:
    """`x` with `v` combined in where the mask of an index holds."""
    indexer, operands = place.normal.indexer, place.normal.operands
    indexer = indexer.dropping() if drops else indexer
    old, mask = indexing.take(x, indexer, operands), place.wide()
    new = place.spread(v, x.aval)
    if kind != "set":
        new = prims.MONOIDS[kind].combine_evenly(one_outside(mask, old), one_outside(mask, new))
    new = prims.select(mask, new, old)
    return indexing.put(x, indexer, operands, new)


def one_outside(mask: Value, x: Value) -> Value:
    """A value where a mask holds, and one elsewhere.

    What is computed there is not used; but from a division by zero, say, its derivative would be nan.
    """
    return prims.select(mask, x, prims.full(x.shape, 1, x.dtype))


def _is_mask(item: Any) -> bool:
    return isinstance(item, bool) or getattr(item, "dtype", None) == np.bool_


def _kind(item: Any) -> str:
    """Whether an item is one position, or an axis of the result."""
    return "axis" if item is None or isinstance(item, (slice, DynamicSpan)) else "at"


def _check_known(items: Sequence[Any]) -> None:
    traced = [i for i in items if isinstance(i, Value) and i.dtype == np.bool_]
    if traced:
        bad_index(
            f"expected a mask that is known only at run time to be the only array in an index, got {traced[0]!r} "
            "beside another: NumPy pairs the positions that it names with those of the other, and their number is not "
            "static; combine masks first (`a[:, None] & b`), or index in two steps: `ref.at[i][mask] = x`"
        )


def _check_shape(shape: ir.Shape, items: Sequence[Any], k: int, mask: Value) -> None:
    axis = sum(i is not None for i in items[:k])
    given = shape[axis : axis + mask.ndim]
    if not ir.same_shape(mask.shape, given):
        bad_index(
            f"expected a mask of shape {errors.shape_str(given)} for axis {axis} of an array of "
            f"shape {errors.shape_str(shape)}, got "
            f"{errors.shape_str(mask.shape)}"
        )
