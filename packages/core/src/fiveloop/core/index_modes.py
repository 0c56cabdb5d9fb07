"""What `x.at[index]` does out of bounds, if it is asked to do other than all indexing does.

An index that is known is checked. One that is known only at run time is clamped for a read, and a write leaves out
what lies outside. With "clip" and "drop" or "fill" all is clamped or left out, known or not, read or written.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fiveloop.core.array import Scalar, Value, as_value, to_array
from fiveloop.core.index_parse import expand_ellipsis, normalize
from fiveloop.core.indexer import DynamicSpan
from fiveloop.core.indexing import take
from fiveloop.core.ir.dims import Shape
from fiveloop.core.primitives.broadcast import broadcast_in_dim, full
from fiveloop.core.primitives.check import bad_value
from fiveloop.core.primitives.elementwise import select
from fiveloop.core.promotion import DType

AS_ALWAYS = (None, "promise_in_bounds")
CLAMPED = ("clip", "promise_in_bounds")
MODES = (*AS_ALWAYS, "clip", "drop", "fill")


def by_mode(shape: Shape, index: Any, mode: str | None) -> Any:
    """An index as a mode takes it: with positions that are not checked, unless that is asked for."""
    if mode not in MODES:
        bad_value(f"x.at[index]: expected a mode in {MODES}, got {mode!r}")
    if mode in AS_ALWAYS:
        return index
    return tuple(_at_run_time(item) for item in expand_ellipsis(shape, index))


def take_or_fill(x: Value, index: Any, filler: Value | None) -> Value:
    """What stands at an index, and `filler`, zero if there is none, where it lies outside."""
    indexer, operands = normalize(x.shape, index)
    out = take(x, indexer.dropping(), operands)
    if filler is None:
        return out
    inside = take(full(x.shape, True, np.bool_), indexer.dropping(), operands)
    return select(inside, out, broadcast_in_dim(filler, out.shape, ()))


def filler_of(dtype: DType) -> Value:
    """What "fill" reads out of bounds: NaN, the least integer, the largest without a sign, or True."""
    if dtype.kind == "u":
        return Scalar(np.asarray(np.iinfo(dtype).max, dtype))
    if dtype.kind == "i":
        return Scalar(np.asarray(np.iinfo(dtype).min, dtype))
    return Scalar(np.asarray(True if dtype.kind == "b" else np.nan).astype(dtype))


def _at_run_time(item: Any) -> Any:
    """An item of an index whose positions, if it has some, are not looked at now."""
    if isinstance(item, DynamicSpan):
        return replace(item, start=_at_run_time(item.start))
    if isinstance(item, (int, np.integer)) and not isinstance(item, bool):
        wide = not -(2**31) <= item < 2**31
        item = np.asarray(item, np.int64 if wide else np.int32)
    is_known = isinstance(item, np.ndarray) and item.dtype.kind in "iu"
    return to_array(as_value(item)) if is_known else item
