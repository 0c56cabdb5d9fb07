"""The `mode` of `x.at[index]`: other rules for indices out of bounds.

An index that is known is checked. One that is known only at run time is clamped for a read, and a write leaves out
what lies outside. With "clip" and "drop" or "fill" all is clamped or left out, known or not, read or written.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fiveloop.core import arrays, ir, prims
from fiveloop.core.arrays import Value
from fiveloop.core.index import access as indexing
from fiveloop.core.index import parse as index_parse

AS_ALWAYS = (None, "promise_in_bounds")
CLAMPED = ("clip", "promise_in_bounds")
MODES = (*AS_ALWAYS, "clip", "drop", "fill")


def by_mode(shape: ir.Shape, index: Any, mode: str | None) -> Any:
    """An index as a mode takes it: with positions that are not checked, unless that is asked for."""
    if mode not in MODES:
        prims.bad_value(f"x.at[index]: expected a mode in {MODES}, got {mode!r}")
    if mode in AS_ALWAYS:
        return index
    return tuple(_at_run_time(item) for item in index_parse.expand_ellipsis(shape, index))


def take_or_fill(x: Value, index: Any, filler: Value | None) -> Value:
    """What stands at an index, and `filler`, zero if there is none, where it lies outside."""
    indexer, operands = index_parse.normalize(x.shape, index)
    out = indexing.take(x, indexer.dropping(), operands)
    if filler is None:
        return out
    inside = indexing.take(prims.full(x.shape, True, np.bool_), indexer.dropping(), operands)
    return prims.select(inside, out, prims.broadcast_in_dim(filler, out.shape, ()))


def filler_of(dtype: arrays.DType) -> Value:
    """What "fill" reads out of bounds: NaN, the least integer, the largest without a sign, or True."""
    if dtype.kind == "u":
        return arrays.Scalar(np.asarray(np.iinfo(dtype).max, dtype))
    if dtype.kind == "i":
        return arrays.Scalar(np.asarray(np.iinfo(dtype).min, dtype))
    return arrays.Scalar(np.asarray(True if dtype.kind == "b" else np.nan).astype(dtype))


def _at_run_time(item: Any) -> Any:
    """An item of an index whose positions, if it has some, are not looked at now."""
    if isinstance(item, index_parse.DynamicSpan):
        return replace(item, start=_at_run_time(item.start))
    if isinstance(item, (int, np.integer)) and not isinstance(item, bool):
        wide = not -(2**31) <= item < 2**31
        item = np.asarray(item, np.int64 if wide else np.int32)
    is_known = isinstance(item, np.ndarray) and item.dtype.kind in "iu"
    return arrays.to_array(arrays.as_value(item)) if is_known else item
