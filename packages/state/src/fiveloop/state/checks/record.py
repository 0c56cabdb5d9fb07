"""The record of the first check that failed: the contents of the effect's Ref.

record : u64[code of the site or 0, *(1 + step or 0) of loops, *(1 + lane or 0) of batches, *words of the values]

Where a step and a lane are not told, there is a zero; the numbers of the outermost batch come first, and those of the
outermost loop last.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fiveloop.core import Value, ad, arrays, ir, prims, transforms
from fiveloop.state.checks.site import CheckError, CheckSite, Words, from_words, num_words, site_of

DEPTH = 4
"""The steps of so many loops are recorded, the innermost ones, and the lanes of so many batches."""
_LANES = 1 + DEPTH
HEADER = 1 + 2 * DEPTH
"""The words before those of the values."""


def record_aval(width: int) -> ir.ShapedArray:
    """The type of a record whose values take `width` words."""
    return ir.ShapedArray((HEADER + width,), np.uint64)


def empty_record(aval: ir.Aval) -> Value:
    """The record that tells of no failure."""
    return transforms.zeros_of(aval)


def record_of(site: CheckSite, lanes: ad.Values, values: ad.Values, aval: ir.Aval) -> Value:
    """The record of a failure at a site, in these lanes, outermost first."""
    told = [_number(lane) for lane in lanes[-DEPTH:]]
    code = arrays.Scalar(np.asarray(site.code, np.uint64)).reshape(1)
    places = [_zeros(DEPTH), *told, _zeros(DEPTH - len(told))]
    (size,) = aval.shape
    parts = [code, *places, *map(_words, values), _zeros(size - HEADER - site.num_words)]
    return prims.concatenate([x for x in parts if x.shape != (0,)], 0)


def _zeros(count: int) -> Value:
    return transforms.zeros_of(ir.ShapedArray((count,), np.uint64))


def _number(k: Value) -> Value:
    """How a step or a lane is recorded: zero stands for none."""
    return (k.astype(np.int64) + 1).astype(np.uint64).reshape(1)


def _words(x: Value) -> Value:
    """The elements, 64 bits each; of complex numbers the real parts and then the imaginary ones."""
    flat = x.reshape(-1)
    kind = x.dtype.kind
    if kind == "c":
        return prims.concatenate([_words(flat.real), _words(flat.imag)], 0)
    wide = {"b": np.int64, "i": np.int64, "u": np.uint64}.get(kind, np.float64)
    return flat.astype(wide).view(np.uint64)


def with_step(record: Value, i: Value) -> Value:
    """The record of a failure with the step of one more loop."""
    steps = record[1:_LANES]
    free = prims.bitwise_and(steps == 0, arrays.as_value(np.arange(DEPTH)) == (steps != 0).sum())
    return prims.concatenate(
        [record[:1], prims.select(free, _number(i), steps), record[_LANES:]], 0
    )


def with_lane(record: Value, lane: Value, around: int) -> Value:
    """The record of a failure with the lane of one more batch, around which there are others."""
    at = _LANES + min(around, DEPTH - 1)
    parts = [record[:at], _number(lane), record[at : HEADER - 1], record[HEADER:]]
    return prims.concatenate([x for x in parts if x.shape != (0,)], 0)


def error_in(record: Words, lanes: Sequence[int] = ()) -> CheckError | None:
    """The error that a record tells of, if it does; `lanes` says of which lane the record is."""
    code = int(record[0])
    if not code:
        return None
    steps, own = [[int(k) - 1 for k in record[start : start + DEPTH] if k] for start in (1, _LANES)]
    site = site_of(code)
    values, start = [], HEADER
    for aval in site.avals:
        stop = start + num_words(aval)
        values.append(from_words(record[start:stop], aval))
        start = stop
    places = [*_place("step", steps[::-1]), *_place("lane", [*lanes, *own])]
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
