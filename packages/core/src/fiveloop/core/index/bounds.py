"""Indices out of bounds, by the `mode` of `x.at[index]`: the selected elements are masked, never the whole array.

Without a mode, an index known in the trace is checked; one known only at run time is clamped for a read, and a write
drops the elements that lie outside. With the mode "clip", "drop" or "fill" every index is treated as the mode says,
known in the trace or not, for a read or a write.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np

from fiveloop.core import ad, arrays, ir, prims
from fiveloop.core.arrays import Value
from fiveloop.core.index import access, parse
from fiveloop.core.ir.indexer import Entry, Indexer, Span, is_dynamic


def can_be_masked(indexer: Indexer) -> bool:
    """Whether what an index drops is all of a part, or elements at the ends of a block."""
    spans = [e for e in indexer.entries if isinstance(e, Span) and is_dynamic(e) and e.size != 1]
    if spans:
        return indexer.is_block and all(e.stride == 1 for e in spans)
    return not indexer.pick_shape


def is_all_or_none(indexer: Indexer) -> bool:
    """Whether an index drops all of a block or nothing."""
    wide = any(is_dynamic(e) and _is_wide(e) for e in indexer.entries)
    return indexer.is_block and can_be_masked(indexer) and not wide


def zero_outside(shape: ir.Shape, indexer: Indexer, index: ad.Values, found: Value) -> Value:
    """The result of a dropping read, from the elements found where the index fits."""
    fits, moves = _apart(shape, indexer, index)
    moved = (
        access.take(found, _within(indexer).dropping(), moves, resolved=True) if moves else found
    )
    return _where(fits, moved, prims.zeros_of(moved.aval), indexer)


def old_outside(shape: ir.Shape, indexer: Indexer, at: ad.Values, new: Value, old: Value) -> Value:
    """The values of a dropping write where its index fits: new elements, and old elements that it does not name."""
    fits, moves = _apart(shape, indexer, at)
    if moves:
        new = access.put(old, _within(indexer).dropping(), moves, new, resolved=True)
    return _as_block(fits, new, old, indexer)


def _apart(shape: ir.Shape, indexer: Indexer, index: ad.Values) -> tuple[list[Value], list[Value]]:
    """Whether each single position fits, and how far each span is from where it does."""
    given = access.resolve(shape, indexer.dropping(), index)
    fitting = access.resolve(shape, indexer.fitting(), index)
    fits, moves = [], []
    for axis, i, k in zip(indexer.dynamic_axes, given, fitting, strict=True):
        if _is_wide(indexer.entries[axis]):
            moves.append(prims.sub(i, k))
        else:
            fits.append(prims.equal(i, k))
    return fits, moves


def _is_wide(e: Entry) -> bool:
    return isinstance(e, Span) and e.size != 1


def _within(indexer: Indexer) -> Indexer:
    """The index into what a block holds by which it is read or written again, so far away."""
    spans = [e for e in indexer.entries if isinstance(e, Span)]
    inner = [Span(None if is_dynamic(e) and _is_wide(e) else 0, e.size) for e in spans]
    for position in indexer.new_axes:
        inner.insert(position, Span(0, 1))
    return Indexer((*[Span(0, n) for n in indexer.lead], *inner))


def _where(fits: ad.Values, x: Value, y: Value, indexer: Indexer) -> Value:
    """`x` where all positions fit, and `y` elsewhere."""
    if not fits:
        return x
    flag = reduce(prims.bitwise_and, fits)
    lanes = range(len(indexer.lead))
    return prims.select(prims.broadcast_in_dim(flag, x.shape, lanes), x, y)


def _as_block(fits: ad.Values, x: Value, y: Value, indexer: Indexer) -> Value:
    """The same, chosen with an axis more, as an array is read and written: XLA does all of it in one fusion."""
    if not fits:
        return x
    wide = (*indexer.lead, 1, *x.shape[len(indexer.lead) :])
    chosen = _where(fits, prims.reshape(x, wide), prims.reshape(y, wide), indexer)
    return prims.reshape(chosen, x.shape)


AS_ALWAYS = (None, "promise_in_bounds")
CLAMPED = ("clip", "promise_in_bounds")
MODES = (*AS_ALWAYS, "clip", "drop", "fill")


def by_mode(shape: ir.Shape, index: Any, mode: str | None) -> Any:
    """The index for a mode: its positions are not checked, unless the mode asks for it."""
    if mode not in MODES:
        prims.bad_value(f"x.at[index]: expected a mode in {MODES}, got {mode!r}")
    if mode in AS_ALWAYS:
        return index
    return tuple(_at_run_time(item) for item in parse.expand_ellipsis(shape, index))


def take_or_fill(x: Value, index: Any, filler: Value | None) -> Value:
    """What stands at an index, and `filler`, zero if there is none, where it lies outside."""
    indexer, operands = parse.normalize(x.shape, index)
    out = access.take(x, indexer.dropping(), operands)
    if filler is None:
        return out
    inside = access.take(prims.full(x.shape, True, np.bool_), indexer.dropping(), operands)
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
    if isinstance(item, parse.DynamicSpan):
        return replace(item, start=_at_run_time(item.start))
    if isinstance(item, (int, np.integer)) and not isinstance(item, bool):
        wide = not -(2**31) <= item < 2**31
        item = np.asarray(item, np.int64 if wide else np.int32)
    is_known = isinstance(item, np.ndarray) and item.dtype.kind in "iu"
    return arrays.to_array(arrays.as_value(item)) if is_known else item
