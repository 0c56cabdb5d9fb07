"""The sites of checks, and the errors that they make of the values that failed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from fiveloop.core import errors, ir
from fiveloop.core.backend import lazy
from fiveloop.core.dataclass import dataclass
from fiveloop.state.formatting import ArrayFormatter

Words = np.ndarray[Any, np.dtype[np.uint64]]


class CheckError(ValueError):
    """A check has failed: the message that it was given, and the line where it stands."""


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


def site_of(code: int) -> CheckSite:
    """The site that a code stands for."""
    return _sites[code]


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
