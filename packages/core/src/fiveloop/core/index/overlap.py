"""Whether two indices into one array can select the same element."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import Any, Literal

import numpy as np

from fiveloop.core import ad, arrays
from fiveloop.core.arrays import Value
from fiveloop.core.ir.indexer import At, Entry, Indexer, Lane, Span, is_dynamic

Overlap = Literal["apart", "overlap", "unknown"]
Positions = range | np.ndarray[Any, Any] | None
"""Where an index goes along one axis: None if that is known only at run time."""


def overlap(x: Indexer, of_x: ad.Values, y: Indexer, of_y: ad.Values, shape: Any) -> Overlap:
    """How what two indices select lies in an array of `shape`: apart if some axis tells them apart."""
    ours, theirs = _along(x, of_x, shape), _along(y, of_y, shape)
    pairs = list(zip(ours, theirs, strict=True))
    if any(a is not None and b is not None and _disjoint(a, b) for a, b in pairs):
        return "apart"
    if any(a is None or b is None for a, b in pairs):
        return "unknown"
    picked = [isinstance(a, np.ndarray) or isinstance(b, np.ndarray) for a, b in pairs]
    if (
        sum(picked) > 1
        and not np.intersect1d(_elements(ours, shape), _elements(theirs, shape)).size
    ):
        return "apart"
    return "overlap"


def always_apart(x: Indexer, y: Indexer) -> bool:
    """Whether some axis tells two indices apart whatever their operands are."""
    pairs = zip(x.entries, y.entries, strict=True)
    fixed = [pair for pair in pairs if not any(map(is_dynamic, pair))]
    ends = [[_positions(entry, None, 0) for entry in pair] for pair in fixed]
    return any(a is not None and b is not None and _disjoint(a, b) for a, b in ends)


def _elements(along: Sequence[Positions], shape: Any) -> np.ndarray[Any, Any]:
    """The numbers of the elements that an index selects, which is known and has picks on several axes."""
    numbers = np.arange(int(np.prod(shape))).reshape(shape)
    picks = tuple(p if isinstance(p, np.ndarray) else slice(None) for p in along)
    for k, p in enumerate(along):
        numbers = numbers if isinstance(p, np.ndarray) else np.take(numbers, np.asarray(p), k)
    return np.asarray(numbers[picks])


def _along(indexer: Indexer, operands: ad.Values, shape: Any) -> list[Positions]:
    given = iter(operands)
    return [
        _positions(e, next(given) if is_dynamic(e) else None, size)
        for e, size in zip(indexer.entries, shape, strict=True)
    ]


def _positions(entry: Entry, operand: Value | None, size: int) -> Positions:
    if isinstance(entry, Lane):
        return None
    if operand is None:
        assert isinstance(entry, At | Span), "unreachable: picks have operands"
        first = entry.start or 0
    elif isinstance(operand, arrays.Concrete):
        window = entry.extent if isinstance(entry, Span) else 1
        host = operand.numpy().astype(np.int64)
        found = np.clip(np.where(host < 0, host + size, host), 0, size - window)
        if not isinstance(entry, At | Span):
            return found.ravel()
        first = int(found)
    else:
        return None
    if isinstance(entry, At):
        return range(first, first + 1)
    return range(first, first + entry.size * entry.stride, entry.stride)


def _disjoint(x: range | np.ndarray[Any, Any], y: range | np.ndarray[Any, Any]) -> bool:
    """Whether two sets of positions, or two arithmetic progressions, have no number in common."""
    if not isinstance(x, range) or not isinstance(y, range):
        return not np.intersect1d(np.asarray(x), np.asarray(y)).size
    if not x or not y:
        return True
    x, y = (r if r.step > 0 else r[::-1] for r in (x, y))
    low, high = max(x[0], y[0]), min(x[-1], y[-1])
    common = gcd(x.step, y.step)
    if low > high or (x[0] - y[0]) % common:
        return True
    # The numbers of x that are in y come every `period` steps of x: one such period decides.
    first = x[-(-(low - x[0]) // x.step) :]
    return not any(n in y for n in first[: y.step // common] if n <= high)
