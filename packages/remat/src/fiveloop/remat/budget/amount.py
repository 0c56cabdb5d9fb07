"""The amount of memory of a budget: a number of bytes, or a fraction between the least and saving everything."""

from __future__ import annotations

import math
import numbers
import re
from typing import Any, TypeAlias

from fiveloop.core.dataclass import dataclass

_UNITS = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_DECIMAL = ((9, "GB"), (6, "MB"), (3, "kB"))
_NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?"
_TEXT = re.compile(rf"\s*({_NUMBER})\s*(%|[kmgt]i?b|b|)\s*", re.IGNORECASE)
_SPELLINGS = (
    "a number of bytes (an int above 1, or text such as '2GiB' or '24 MB') or a fraction from 0.0 to 1.0 (a float, "
    "or '50%')"
)
_SUFFIXES = "the units of text are B, kB, MB, GB, TB, KiB, MiB, GiB, TiB and %"


@dataclass(frozen=True)
class Amount:
    """A budget: a number of bytes, or, if `fraction`, a share from 0.0 to 1.0.

    >>> amount("2GiB"), amount("1.5 kB").bytes_of(0, 0), amount(0.5).bytes_of(100, 300)
    (Amount(size=2147483648.0, fraction=False), 1500, 200)
    """

    size: float
    fraction: bool = False

    def bytes_of(self, least: int, everything: int) -> int:
        """The bytes that it allows, where so many are needed at least, and so many to save everything."""
        if not self.fraction:
            return int(self.size)
        return least + int(self.size * (everything - least))

    def __str__(self) -> str:
        if self.fraction:
            return f"{100 * self.size:.4g}%"
        size = int(self.size)
        decimal = [f"{size / 10**k:.4g} {unit}" for k, unit in _DECIMAL if size >= 10**k]
        ways = [shown(size), *decimal]
        return next((way for way in ways if amount(way).size == size), f"{size} B")


class UnattainableError(ValueError):
    """A budget is less than any plan needs; `least` is the fewest bytes that a plan needs."""

    def __init__(self, message: str, least: int) -> None:
        super().__init__(message)
        self.least = least

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.least)


@dataclass(frozen=True)
class Choice:
    """What a budget came to: the `bytes` and the estimated milliseconds of the plan that was taken.

    `least` is what the plan of fewest bytes needs, `everything` what saving everything needs. A margin for what the
    compiler may need more is in all of them. `candidates` are the bytes and milliseconds of the plans that it weighed.
    """

    budget: Amount
    bytes: int
    milliseconds: float
    least: int
    everything: int
    candidates: tuple[tuple[int, float], ...] = ()

    @property
    def allowed(self) -> int:
        """The bytes that the budget allows."""
        return self.budget.bytes_of(self.least, self.everything)

    def __str__(self) -> str:
        return (
            f"{shown(self.bytes)} under a budget of {self.budget}, of plans from {shown(self.least)} to "
            f"{shown(max(self.everything, self.bytes))}, with the margin; {shown_time(self.milliseconds)} estimated"
        )


def amount(given: Any, where: str = "checkpoint: budget") -> Amount:
    """The budget that a user gives; TypeError or ValueError if it is none. Text without a unit is read as a number."""
    if isinstance(given, bool) or not isinstance(given, str | numbers.Real):
        raise TypeError(f"{where} must be {_SPELLINGS}, got {given!r}")
    if isinstance(given, str):
        return _of_text(given, where)
    if isinstance(given, numbers.Integral):
        return _of_int(int(given), where)
    return _of_float(float(given), given, where)


def _of_float(share: float, given: Any, where: str) -> Amount:
    _check_sign(share, given, where)
    if not share <= 1.0:
        hint = f"; for bytes write '{share:.15g} B'" if share < math.inf else ""
        raise ValueError(
            f"{where}: a number with a point or an exponent is a fraction from 0.0 to 1.0, got {given!r}{hint}"
        )
    return Amount(share + 0.0, fraction=True)  # -0.0 is 0.0, too


def _check_sign(number: float, given: Any, where: str) -> None:
    if number < 0:
        raise ValueError(f"{where} must not be negative, got {given!r}; it must be {_SPELLINGS}")


def _of_int(given: int, where: str) -> Amount:
    _check_sign(given, given, where)
    if given in (0, 1):
        raise ValueError(
            f"{where}: {given} may mean bytes or a fraction; write '{given} B' for bytes, or {float(given)} for a "
            "fraction"
        )
    return _of_bytes(given, given, where)


def _of_text(given: str, where: str) -> Amount:
    found = _TEXT.fullmatch(given)
    if found is None:
        raise ValueError(f"{where} must be {_SPELLINGS}, got {given!r}; {_SUFFIXES}")
    number, unit = float(found[1]), found[2].lower()
    if not unit:
        whole = found[1].lstrip("+-").isdigit()
        return _of_int(int(found[1]), where) if whole else _of_float(number, given, where)
    _check_sign(number, given, where)
    if unit != "%":
        return _of_bytes(number * _UNITS[unit], given, where)
    if number > 100:
        raise ValueError(f"{where}: a share of memory is from 0% to 100%, got {given!r}")
    return Amount(number / 100, fraction=True)


def _of_bytes(size: float, given: Any, where: str) -> Amount:
    if size >= 2**63:
        raise ValueError(f"{where} must be less than 2**63 bytes, got {given!r}")
    return Amount(float(size))


Units: TypeAlias = tuple[tuple[str, float], ...]
"""Units, each with how much it is, the largest first."""

BYTES: Units = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("B", 1))
TIMES: Units = (("s", 1e3), ("ms", 1.0), ("µs", 1e-3), ("ns", 1e-6))
"""The units of milliseconds."""


def unit_of(most: float, units: Units) -> tuple[str, float]:
    """The largest unit that is not more than a number; else the smallest.

    >>> unit_of(1500, BYTES)
    ('KiB', 1024)
    """
    return next((unit for unit in units if most >= unit[1]), units[-1])


def shown(size: int) -> str:
    """A number of bytes as people write it.

    >>> shown(1500), shown(3 * 2**20)
    ('1.46 KiB', '3 MiB')
    """
    unit, factor = unit_of(size, BYTES)
    return f"{size} B" if factor == 1 else f"{size / factor:.4g} {unit}"


def shown_exactly(size: int) -> str:
    """The same, and the exact number where that differs.

    >>> shown_exactly(128), shown_exactly(1500)
    ('128 B', '1.46 KiB (1500 bytes)')
    """
    text = shown(size)
    return text if text == f"{size} B" else f"{text} ({size} bytes)"


def shown_time(milliseconds: float) -> str:
    """A time with three digits.

    >>> shown_time(0.0819), shown_time(10_400)
    ('81.9 µs', '10.4 s')
    """
    unit, factor = unit_of(milliseconds, TIMES)
    return f"{milliseconds / factor:.3g} {unit}"
