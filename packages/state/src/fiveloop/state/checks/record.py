"""The record of the first check that has failed: what the Ref of the effect holds.

record : u64[code of the site or 0, 1 + lane or 0, *(1 + step or 0) of the loops around, *words of the values]
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fiveloop.core import Aval, ShapedArray, Value, as_value, bitwise_and, concatenate, select
from fiveloop.state.checks.site import CheckError, CheckSite, Words, from_words, num_words, site_of

DEPTH = 3
"""The steps of so many loops are recorded, innermost first."""
HEADER = 2 + DEPTH
"""The words before those of the values."""


def record_aval(width: int) -> ShapedArray:
    """The type of a record whose values take `width` words."""
    return ShapedArray((HEADER + width,), np.uint64)


def empty_record(aval: Aval) -> Value:
    """The record that tells of no failure."""
    return as_value(np.zeros(aval.shape, aval.dtype))


def record_of(site: CheckSite, lane: Value | None, values: Sequence[Value], aval: Aval) -> Value:
    """The record of a failure at a site."""
    number = _word(0) if lane is None else (lane.astype(np.int64) + 1).astype(np.uint64)
    steps = as_value(np.zeros(DEPTH, np.uint64))
    parts = [_word(site.code), number.reshape(1), steps, *map(_words, values)]
    (size,) = aval.shape
    left = size - HEADER - site.num_words
    if left:
        parts.append(as_value(np.zeros(left, np.uint64)))
    return concatenate(parts, 0)


def _word(number: int) -> Value:
    return as_value(np.full(1, number, np.uint64))


def _words(x: Value) -> Value:
    """The elements, 64 bits each; of complex numbers the real parts and then the imaginary ones."""
    flat = x.reshape(-1)
    kind = x.dtype.kind
    if kind == "c":
        return concatenate([_words(flat.real), _words(flat.imag)], 0)
    wide = {"b": np.int64, "i": np.int64, "u": np.uint64}.get(kind, np.float64)
    return flat.astype(wide).view(np.uint64)


def with_step(record: Value, i: Value) -> Value:
    """The record of a failure with the step of one more loop."""
    steps = record[2:HEADER]
    free = bitwise_and(steps == 0, as_value(np.arange(DEPTH)) == (steps != 0).sum())
    steps = select(free, (i.astype(np.int64) + 1).astype(np.uint64), steps)
    return concatenate([record[:2], steps, record[HEADER:]], 0)


def error_in(record: Words, lanes: Sequence[int] = ()) -> CheckError | None:
    """The error that a record tells of, if it does; `lanes` says of which lane the record is."""
    code, lane, *steps = (int(word) for word in record[:HEADER])
    if not code:
        return None
    site = site_of(code)
    values, start = [], HEADER
    for aval in site.avals:
        stop = start + num_words(aval)
        values.append(from_words(record[start:stop], aval))
        start = stop
    places = [*_place("step", [k - 1 for k in reversed(steps) if k])]
    places += _place("lane", [*lanes, lane - 1] if lane else lanes)
    return site.error(values, f" (in {', '.join(places)})" if places else "")


def _place(what: str, numbers: Sequence[int]) -> list[str]:
    """`step 3`, or `step (2, 3)` for the third step of a loop in the second step of another."""
    match [int(k) for k in numbers]:
        case []:
            return []
        case [k]:
            return [f"{what} {k}"]
        case several:
            return [f"{what} {tuple(several)}"]
