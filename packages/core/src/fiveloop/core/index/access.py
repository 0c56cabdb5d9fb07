"""Reading and writing `x[index]`, for arrays, tracers, Refs and fiveloop.numpy.

`normalize` brings an index to its normal form, an `Indexer` and operands; `take` and `put` carry it out on
values. An index that is known is checked. One that is known only at run time counts from the end if it is
negative; then a read clamps it into range, and a write (`Indexer.dropping`) leaves out what lies outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from fiveloop.core import ad, arrays, errors, ir, prims
from fiveloop.core.arrays import Value, as_value
from fiveloop.core.dataclass import dataclass
from fiveloop.core.index import layout as index_layout
from fiveloop.core.index.parse import DynamicSpan, Normal, bad_index, expand_ellipsis, normalize
from fiveloop.core.ir.indexer import Indexer, Span, whole_indexer


class View(Value):
    """A part of `outer`, a value that can change: where in it, the operands of that index, and the layouts it is given.

    `outer` may be a view itself; `base` is what all of them are parts of. What is done to a view is done to the base
    at an index, so that nothing is copied. Programs take the base and the operands, and make the view again.
    """

    __slots__ = ("base", "indexer", "layouts", "operands", "outer")

    def __init__(
        self,
        outer: Value,
        indexer: Indexer,
        operands: ad.Values,
        layouts: Sequence[index_layout.Layout] = (),
    ) -> None:
        self.outer = outer
        self.base = base_of(outer)
        self.indexer = indexer
        self.operands = tuple(operands)
        self.layouts = tuple(layouts)
        self._note = None

    def check_operand(self) -> None:
        """Refused: rules know whole values alone."""
        prims.bad_type(
            f"a primitive was applied to a part of a Ref, of type {self.aval}; expected the whole Ref, of type "
            f"{self.base.aval}: apply it to that one and an index, or to what the part holds, `part[...]`"
        )

    @property
    def all_operands(self) -> tuple[Value, ...]:
        """The operands of the indices of all views from the base on."""
        outer = self.outer.all_operands if isinstance(self.outer, View) else ()
        return outer + self.operands

    def pretty(self, names: Sequence[str]) -> str:
        """How it is made of its base, with the given names of all operands."""
        first = len(names) - len(self.operands)
        outer = self.outer.pretty(names[:first]) if isinstance(self.outer, View) else ""
        shape = self.outer.shape
        is_whole = self.indexer == whole_indexer(shape)
        part = "" if is_whole else f".at[{self.indexer.pretty(names[first:], shape)}]"
        return outer + part + "".join(map(str, self.layouts))


def base_of(x: Value) -> Value:
    """What a view is a part of; any other value is its own base."""
    return x.base if isinstance(x, View) else x


def take(x: Value, indexer: Indexer, operands: ad.Values, *, resolved: bool = False) -> Value:
    """What `indexer` reads from `x`, of shape `indexer.result_shape`.

    `resolved` says that the operands come from `resolve`, so that they are in range.
    """
    return prims.take(x, indexer, operands if resolved else _positions(x, indexer, operands))


def _positions(x: Value, indexer: Indexer, operands: ad.Values) -> list[Value]:
    """The positions of operands; those of a block are clamped where it is read or written."""
    return resolve(x.shape, indexer, operands, clamp=not indexer.is_block)


def put(
    x: Value,
    indexer: Indexer,
    operands: ad.Values,
    v: Any,
    kind: str = "set",
    *,
    resolved: bool = False,
    unique: bool = False,
    ascending: bool = False,
) -> Value:
    """`x` with `v` combined into it by "set", "add", "mul", "max", "min", "and" or "or".

    `v` broadcasts to `indexer.result_shape`. Where several picks name one element, the last one is set; the other kinds
    combine all. `unique` promises that no element is named twice, `ascending` that index arrays ascend.
    """
    check_kind(x.aval, kind)
    v = cast_for_write(x.aval, indexer.result_shape, v)
    positions = operands if resolved else _positions(x, indexer, operands)
    return prims.put(x, v, indexer, positions, kind, unique=unique, ascending=ascending)


def check_kind(aval: ir.Aval, kind: str) -> None:
    """Refuse a kind of write that there is not, or not for arrays of this type."""
    if kind not in prims.KINDS:
        prims.bad_value(f"put: expected a kind in {prims.KINDS}, got {kind!r}")
    logical = kind in ("and", "or")
    if kind != "set" and not logical and aval.dtype == np.bool_:
        prims.bad_type(f"put: expected numbers to combine by {kind!r}, got an array of bools")
    if logical and aval.dtype.kind not in "biu":
        prims.bad_type(f"put: expected bools or integers to combine by {kind!r}, got {aval}")


def cast_for_write(aval: ir.Aval, shape: ir.Shape, v: Any) -> Value:
    """A value as it is written into an array of the given type at a place of the given shape.

    Its shape broadcasts, and its dtype may be any that promotion brings to the array's: a narrower one, an
    integer among floats, a Python number of its kind. Anything else would lose something, and is an error.
    """
    what, typed = "the value written", arrays.Typed(aval.dtype, aval.weak_type)
    value = arrays.as_value(v, what)
    check_write(aval, shape, value.aval)
    if isinstance(value, arrays.Scalar):
        value = arrays.host_scalar(value.exact, typed, what)
    else:
        given = arrays.Typed(value.dtype, value.weak_type)
        arrays.check_narrowing(given, aval.dtype, what)
        value = value if given == typed else prims.convert(value, *typed)
    if ir.same_shape(value.shape, shape):
        return value
    return prims.broadcast_in_dim(value, shape, range(len(shape) - value.ndim, len(shape)))


def check_write(aval: ir.Aval, shape: ir.Shape, given: ir.Aval) -> None:
    """Refuse to write a value of a type that loses something, or has too large a shape."""
    if given.accumulates:
        prims.bad_type(
            f"the value written must be an array, got {given}; read a Ref first: `ref[...]`"
        )
    if not _fits(arrays.Typed(given.dtype, given.weak_type), arrays.Typed(aval.dtype)):
        part = "v.real" if given.dtype.kind == "c" and aval.dtype.kind != "c" else "v"
        prims.bad_type(
            f"cannot write a value of dtype {ir.short_dtype(given.dtype)} into an array of dtype "
            f"{ir.short_dtype(aval.dtype)} without loss; convert it first: `{part}.astype({aval.dtype.name!r})`"
        )
    wide = ir.broadcast_shapes(given.shape, shape)
    if not ir.same_shape(given.shape, shape) and wide != tuple(shape):
        prims.bad_value(
            f"cannot write a value of shape {errors.shape_str(given.shape)} where the index selects shape "
            f"{errors.shape_str(shape)}: it does not broadcast to it"
        )


def resolve(
    shape: ir.Shape, indexer: Indexer, operands: ad.Values, *, clamp: bool = True
) -> list[Value]:
    """The operands as positions in range, all of one dtype: negatives counted from the end, then clamped.

    Two resolved indices name the same element exactly if they are equal. Without `clamp`, and for an index that
    drops, only negatives are counted, which is enough where the operation that follows clamps or drops.
    """
    clamp = clamp and not indexer.drops
    if len(operands) != len(indexer.dynamic_axes):
        prims.bad_type(
            f"expected {len(indexer.dynamic_axes)} operands for the index [{indexer}], got {len(operands)}"
        )
    wide = any(prims.index_dtype(i.dtype, shape) == np.int64 for i in operands)
    dtype = np.dtype(np.int64 if wide else np.int32)
    out: list[Value] = []
    for axis, operand in zip(indexer.dynamic_axes, operands, strict=True):
        entry = indexer.entries[axis]
        window = entry.extent if isinstance(entry, Span) else 1
        out.append(prims.resolve_index(operand, shape[axis], window if clamp else None, dtype))
    return out


@lru_cache(maxsize=4096)
def _fits(given: arrays.Typed, wanted: arrays.Typed) -> bool:
    """Whether a dtype holds what another does, as promotion sees it: the two together are the wider one."""
    if given.dtype == wanted.dtype:
        return True
    try:
        return arrays.join((given, arrays.Typed(wanted.dtype))).dtype == wanted.dtype
    except TypeError:
        return False  # a dtype that is promoted to no other


_PLAIN = frozenset({int, slice, type(None), type(...), DynamicSpan})


@dataclass(frozen=True)
class MaskedPlace:
    """The elements that a mask in an index chooses from, and NumPy's layout of the chosen elements.

    `normal` is the index with each axis of the mask whole, and `shape` the shape of its selection, in which the mask's
    axes stand from `axis` on. In NumPy's selection, the axis of the chosen elements stands at `at`.
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
        wide = cast_for_write(like, self.laid_shape, value)
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
    """The elements that an index with a mask chooses from; None if the normal form says everything.

    The normal form does without a mask, and for known masks that stand beside other arrays or have no axes.
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


def put_masked(x: Value, at: MaskedPlace, v: Any, kind: str = "set", drops: bool = True) -> Value:
    """`x` with `v` combined in where the mask of an index holds."""
    indexer, operands = at.normal.indexer, at.normal.operands
    indexer = indexer.dropping() if drops else indexer
    old, mask = take(x, indexer, operands), at.wide()
    new = at.spread(v, x.aval)
    if kind != "set":
        new = prims.MONOIDS[kind].combine_evenly(one_outside(mask, old), one_outside(mask, new))
    new = prims.select(mask, new, old)
    return put(x, indexer, operands, new)


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
