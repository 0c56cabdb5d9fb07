"""Reading and writing `x[index]`: one meaning for arrays, tracers, Refs and fiveloop.numpy.

`normalize` brings an index to its normal form, an `Indexer` and operands; `take` and `put` carry it out on
values. An index that is known is checked. One that is known only at run time counts from the end if it is
negative; then a read clamps it into range, and a write (`Indexer.dropping`) leaves out what lies outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from fiveloop.core import ad, arrays, errors, ir, prims
from fiveloop.core.arrays import Value
from fiveloop.core.index import layout as index_layout
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
        raise TypeError(
            f"a primitive was applied to a part of a Ref, of type {self.aval}; expected the whole Ref, of type "
            f"{self.base.aval}: apply it to that one and an index, or to what the part holds, `part[...]`"
            f"{errors.at_source(ir.user_source())}"
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
    value = arrays.as_value(v, "the value written")
    check_write(aval, shape, value.aval)
    if isinstance(value, arrays.Scalar):
        return _broadcast_to(
            arrays.host_scalar(
                value.exact, arrays.Typed(aval.dtype, aval.weak_type), "the value written"
            ),
            shape,
        )
    arrays.check_narrowing(
        arrays.Typed(value.dtype, value.weak_type), aval.dtype, "the value written"
    )
    if value.dtype != aval.dtype or value.weak_type != aval.weak_type:
        value = prims.convert(value, aval.dtype, aval.weak_type)
    return value if ir.same_shape(value.shape, shape) else _broadcast_to(value, shape)


def check_write(aval: ir.Aval, shape: ir.Shape, given: ir.Aval) -> None:
    """Refuse to write a value of a type that loses something, or has too large a shape."""
    if given.accumulates:
        prims.bad_type(
            f"the value written must be an array, got {given}; read a Ref first: `ref[...]`"
        )
    if not _fits(arrays.Typed(given.dtype, given.weak_type), arrays.Typed(aval.dtype)):
        prims.bad_type(
            f"cannot write a value of dtype {ir.short_dtype(given.dtype)} into an array of dtype "
            f"{ir.short_dtype(aval.dtype)} without loss; convert it first: `{_conversion(given, aval)}`"
        )
    if not ir.same_shape(given.shape, shape) and ir.broadcast_shapes(given.shape, shape) != tuple(
        shape
    ):
        prims.bad_value(
            f"cannot write a value of shape {errors.shape_str(given.shape)} where the index selects shape "
            f"{errors.shape_str(shape)}: it does not broadcast to it"
        )


def _conversion(given: ir.Aval, aval: ir.Aval) -> str:
    """What to write to convert a value; of complex numbers the real part, if they are to become real."""
    part = "v.real" if given.dtype.kind == "c" and aval.dtype.kind != "c" else "v"
    return f"{part}.astype({aval.dtype.name!r})"


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
    wide = any(prims.index_dtype(i.dtype) == np.int64 for i in operands)
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


def _broadcast_to(x: Value, shape: ir.Shape) -> Value:
    return prims.broadcast_in_dim(x, shape, tuple(range(len(shape) - x.ndim, len(shape))))
