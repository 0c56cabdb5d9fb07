"""Out-of-bounds positions of an index that drops: only the selected elements are masked, never the array."""

from __future__ import annotations

from functools import reduce

from fiveloop.core import ad, ir, prims
from fiveloop.core.arrays import Value
from fiveloop.core.index import access as indexing
from fiveloop.core.ir.indexer import Entry, Indexer, Span, is_dynamic


def can_be_masked(indexer: Indexer) -> bool:
    """Whether what an index drops is all of a part, or elements at the ends of a block."""
    spans = [e for e in indexer.entries if isinstance(e, Span) and is_dynamic(e) and e.size != 1]
    if spans:
        return indexer.is_block and all(e.stride == 1 for e in spans)
    return not indexer.pick_shape


def zero_outside(shape: ir.Shape, indexer: Indexer, index: ad.Values, found: Value) -> Value:
    """What an index reads that drops, of what is found where it fits."""
    fits, moves = _apart(shape, indexer, index)
    moved = (
        indexing.take(found, _within(indexer).dropping(), moves, resolved=True) if moves else found
    )
    return _where(fits, moved, prims.zeros_of(moved.aval), indexer)


def old_outside(
    shape: ir.Shape, indexer: Indexer, index: ad.Values, new: Value, old: Value
) -> Value:
    """What to write where an index fits, that drops: what is new, and the old elements that it does not name."""
    fits, moves = _apart(shape, indexer, index)
    if moves:
        new = indexing.put(old, _within(indexer).dropping(), moves, new, resolved=True)
    return _where(fits, new, old, indexer)


def _apart(shape: ir.Shape, indexer: Indexer, index: ad.Values) -> tuple[list[Value], list[Value]]:
    """Whether each single position fits, and how far each span is from where it does."""
    given = indexing.resolve(shape, indexer.dropping(), index)
    fitting = indexing.resolve(shape, indexer.fitting(), index)
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
