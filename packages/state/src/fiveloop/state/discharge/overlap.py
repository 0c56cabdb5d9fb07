"""Whether two indices into one Ref are equal: never, always, or known only at run time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal as OneOf
from typing import TypeGuard

import numpy as np

from fiveloop.core import Value, arrays
from fiveloop.core.ir.indexer import At, Entry, Indexer, Lane, Span, is_dynamic
from fiveloop.state.discharge.table import Place

Pair = tuple[Value, Value]
Known = OneOf["same", "apart", "unknown"]
Relation = Known | list[Pair]


def relation(x: Place, y: Place) -> Relation:
    """How two places relate.

    Pairs of positions, at least one, are given where the places are the same if all are equal, and apart otherwise;
    where lanes go their own way, positions have the batch axes in front.
    "unknown" says that they may overlap in part.
    """
    known = known_relation(x.indexer, x.index, y.indexer, y.index)
    if known != "unknown":
        return known
    if x.indexer.result_shape != y.indexer.result_shape or x.indexer.lead != y.indexer.lead:
        return "unknown"
    if x.indexer.new_axes != y.indexer.new_axes:
        return "unknown"
    return _pairs(x, y)


def known_relation(
    x: Indexer, x_index: Sequence[object], y: Indexer, y_index: Sequence[object]
) -> Known:
    """How the places of two indices relate whatever they are at run time, as far as can be seen.

    Of two that drop, what is "same" may be nothing: it is not read as it was written.
    The operands of the indices are values, or what stands for values: equal ones are one object, or equal numbers.
    """
    if x == y and all(same_value(a, b) for a, b in zip(x_index, y_index, strict=True)):
        return "same"
    return "apart" if _apart(x, y) else "unknown"


def same_value(x: object, y: object) -> bool:
    """Whether two values are known to be equal: one value, or equal numbers."""
    if x is y:
        return True
    return (
        isinstance(x, arrays.Scalar) and isinstance(y, arrays.Scalar) and int(x.host) == int(y.host)
    )


def same_number(x: Value, y: Value) -> bool:
    """Whether two values are one, or the same number bit for bit, of one type."""
    if not (isinstance(x, arrays.Scalar) and isinstance(y, arrays.Scalar)):
        return x is y
    return x.aval is y.aval and np.asarray(x.host).tobytes() == np.asarray(y.host).tobytes()


def is_whole(indexer: Indexer, shape: Sequence[int]) -> bool:
    """Whether an index names all elements, each at its own place."""
    if indexer.result_shape != tuple(shape) or indexer.new_axes or indexer.lead:
        return False
    return all(
        getattr(e, "start", None) == 0 and getattr(e, "stride", 0) == 1 for e in indexer.entries
    )


def _apart(x: Indexer, y: Indexer) -> bool:
    """Whether some axis tells the two apart whatever the rest is."""
    return any(
        not is_dynamic(a) and not is_dynamic(b) and _range(a).isdisjoint(_range(b))
        for a, b in zip(x.entries, y.entries, strict=True)
        if not isinstance(a, Lane) and not isinstance(b, Lane)
    )


def _range(entry: object) -> set[int]:
    if isinstance(entry, At):
        return {entry.start or 0}
    assert isinstance(entry, Span), "unreachable: a static entry is a position or a span"
    start = entry.start or 0
    return set(range(start, start + entry.size * entry.stride, entry.stride))


def _pairs(x: Place, y: Place) -> Relation:
    ours, theirs = iter(x.positions), iter(y.positions)
    pairs: list[Pair] = []
    for a, b in zip(x.indexer.entries, y.indexer.entries, strict=True):
        if _is_single(a) and _is_single(b):
            pairs.append((_position(a, ours), _position(b, theirs)))
        elif a != b or is_dynamic(a):
            return "unknown"
    return [(a, b) for a, b in pairs if not same_value(a, b)] or "same"


def _is_single(entry: Entry) -> TypeGuard[At | Span]:
    """Whether an entry is one position."""
    return isinstance(entry, At) or (isinstance(entry, Span) and entry.size == 1)


def _position(entry: At | Span, positions: Iterator[Value]) -> Value:
    if entry.start is not None:
        return arrays.Scalar(np.asarray(entry.start, np.int32))
    return next(positions)
