"""The sites of checks and the errors that they make; the record of the first check that failed.

The record is what the effect's Ref holds.

record : u64[code of the site or 0, *(1 + step or 0) of loops, *(1 + lane or 0) of batches, *words of the values]

A step or a lane that is not known is 0; the numbers of the outermost batch come first, and those of the outermost loop
last.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from fiveloop.core import Value, ad, arrays, errors, ir, prims, transforms
from fiveloop.core.backend import lazy
from fiveloop.core.dataclass import dataclass
from fiveloop.state.io.printing import ArrayFormatter

Words = np.ndarray[Any, np.dtype[np.uint64]]


class CheckError(ValueError):
    """A check has failed: its message, and the line of the check."""


@dataclass(frozen=True, repr=False)
class CheckSite:
    """A check in the user's program: its message, the types of what it formats, and its line.

    The values under `names` are formatted by name, those before them by position. The code stands for the site in
    programs, the same in every process.
    """

    message: str
    avals: tuple[ir.ShapedArray, ...] = ()
    names: tuple[str, ...] = ()
    source: str | None = None

    def __repr__(self) -> str:
        return repr(self.message)

    @cached_property
    def code(self) -> int:
        """A number that no other site has; not zero, which says that nothing has failed."""
        text = repr((self.message, self.avals, self.names, self.source)).encode()
        code = int.from_bytes(lazy.hashlib().blake2b(text, digest_size=8).digest(), "little") or 1
        _sites[code] = self
        return code

    @property
    def num_words(self) -> int:
        """How many words the values take in a record."""
        return sum(num_words(a) for a in self.avals)

    def format(self, values: Sequence[Any]) -> str:
        """The message with values in it."""
        num = len(values) - len(self.names)
        named = dict(zip(self.names, values[num:], strict=True))
        return ArrayFormatter().vformat(self.message, values[:num], named)

    def error(self, values: Sequence[Any], where: str = "") -> CheckError:
        """The error for values that have failed; `where` says in which step and lane."""
        return CheckError(f"{self.format(values)}{where}{errors.at_source(self.source)}")


_sites: dict[int, CheckSite] = {}
"""The site that each code stands for."""


def num_words(aval: ir.ShapedArray) -> int:
    """How many words the elements of an array take."""
    size = int(np.prod(aval.shape, dtype=np.int64))
    return 2 * size if aval.dtype.kind == "c" else size


def from_words(words: Words, aval: ir.ShapedArray) -> Any:
    """An array, or a number, from its words."""
    kind = aval.dtype.kind
    if kind == "c":
        real, imag = words.view(np.float64).reshape(2, *aval.shape)
        elements: Any = real + 1j * imag
    else:
        wide = {"b": np.int64, "i": np.int64, "u": np.uint64}.get(kind, np.float64)
        elements = words.view(wide)
    return np.asarray(elements).astype(aval.dtype).reshape(aval.shape)[()]


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
    site = _sites[code]
    values, start = [], HEADER
    for aval in site.avals:
        stop = start + num_words(aval)
        values.append(from_words(record[start:stop], aval))
        start = stop
    places = [*_place("step", steps[::-1]), *_place("lane", [*lanes, *own])]
    return site.error(values, f" (in {', '.join(places)})" if places else "")


def _place(what: str, numbers: Sequence[int]) -> list[str]:
    """`step 3`, or `step (2, 3)` for the third step of a loop in the second step of another."""
    places = tuple(map(int, numbers))
    return [f"{what} {places[0] if len(places) == 1 else places}"] if places else []
