"""What `x.at[index]` does out of bounds, if it is asked to do other than all indexing does.

An index that is known is checked, and one that is known only at run time is clamped. With "drop" and "fill" what is
out of bounds, known or not, is left out: it goes to an element behind the last one of its axis, which is put there
for it and cut off again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fiveloop.core.array import Scalar, Value
from fiveloop.core.dims import Dim
from fiveloop.core.index_parse import bad_index, expand_ellipsis
from fiveloop.core.indexer import DynamicSpan
from fiveloop.core.primitives.check import bad_value
from fiveloop.core.primitives.convert import convert
from fiveloop.core.primitives.elementwise import add, bitwise_and, greater_equal, less, select
from fiveloop.core.primitives.shape import pad
from fiveloop.core.promotion import DType

AS_ALWAYS = (None, "promise_in_bounds", "clip")
MODES = (*AS_ALWAYS, "drop", "fill")


def leaves_out(mode: str | None) -> bool:
    """Whether a mode leaves out what is out of bounds."""
    if mode not in MODES:
        bad_value(f"x.at[index]: expected a mode in {MODES}, got {mode!r}")
    return mode not in AS_ALWAYS


def with_room(
    x: Value, index: Any, filler: Value, run: Callable[[Value, Any], Value], *, cut: bool
) -> Value:
    """`run` on an array with an element more where an index may be out of bounds, and that index, redirected.

    With `cut`, the result has the array's shape and is cut to what it was.
    """
    items, room, axis = [], [0] * x.ndim, 0
    for item in expand_ellipsis(x.shape, index):
        if isinstance(item, DynamicSpan):
            bad_index(
                "x.at[index]: expected integers where an index may be left out, got a span `ds(start, size)`, which is "
                "moved until it fits; leave `mode` out"
            )
        is_integer = _is_integer(item)
        items.append(_redirected(item, x.shape[axis]) if is_integer else item)
        if is_integer:
            room[axis] = 1
        axis += 0 if item is None or isinstance(item, bool) else _axes(item)
    none = [0] * x.ndim
    out = run(pad(x, filler, none, room), tuple(items))
    return pad(out, filler, none, [-n for n in room]) if cut else out


def filler_of(dtype: DType) -> Value:
    """What "fill" reads out of bounds: NaN, the least integer, the largest without a sign, or True."""
    if dtype.kind == "u":
        return Scalar(np.asarray(np.iinfo(dtype).max, dtype))
    if dtype.kind == "i":
        return Scalar(np.asarray(np.iinfo(dtype).min, dtype))
    return Scalar(np.asarray(True if dtype.kind == "b" else np.nan).astype(dtype))


def _is_integer(item: Any) -> bool:
    if isinstance(item, (Value, np.ndarray)):
        return item.dtype != np.bool_
    return isinstance(item, int) and not isinstance(item, bool)


def _axes(item: Any) -> int:
    is_mask = isinstance(item, (Value, np.ndarray)) and item.dtype == np.bool_
    return item.ndim if is_mask else 1


def _redirected(item: Any, size: Dim) -> Any:
    """An index in which all that is out of bounds of an axis names the place behind its last element."""
    if isinstance(item, int):
        return item % size if -size <= item < size else size
    if isinstance(item, np.ndarray):
        return np.where((item < -size) | (item >= size), size, item % max(size, 1))
    wide = item.dtype.itemsize == 8 or item.dtype == np.uint32
    i = convert(item, np.int64 if wide else np.int32)
    i = select(less(i, 0), add(i, size), i)
    return select(bitwise_and(greater_equal(i, 0), less(i, size)), i, convert(size, i.dtype))
