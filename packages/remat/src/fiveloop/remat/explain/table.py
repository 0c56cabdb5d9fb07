"""Text tables, and numbers as people read them."""

from __future__ import annotations

from collections.abc import Sequence

from fiveloop.core.primitives import check

WIDTH = 160
"""The most characters of a line unless told otherwise."""

LEAST, GAP, NUMBERS = 12, "  ", 3
"""No column is cut to fewer characters; what is between two columns; how many columns, the first, hold numbers."""


def shown_count(count: float) -> str:
    """A number of operations with three digits.

    >>> shown_count(950), shown_count(14_592), shown_count(2e9)
    ('950', '14.6 k', '2 G')
    """
    for unit in ("", " k", " M", " G", " T"):
        if abs(count) < 1000:
            return f"{count:.3g}{unit}"
        count /= 1000
    return f"{count:.3g} P"


def limit(argument: str, given: int | None) -> int | None:
    """How many rows or characters a table may have, as its user gives it; None is no limit.

    >>> limit("rows", 3)
    3
    """
    if given is not None and check.known_int("table", argument, given) < 0:
        check.bad_value(
            f"table: expected `{argument}` not to be negative, got {given}; None shows all"
        )
    return given


def cut(text: str, most: int | None) -> str:
    """A text of at most so many characters; None cuts nothing.

    >>> cut("result of tanh", 12)
    'result of t…'
    """
    return text if most is None or len(text) <= most else f"{text[: most - 1]}…"


def table(rows: Sequence[Sequence[str]], width: int | None = WIDTH) -> str:
    """Rows below a first one of titles, in lines of at most `width` characters. The first `NUMBERS` hold numbers.

    Cells of the longest columns are cut, but no column to less than `LEAST`; None cuts nothing.

    >>> rows = [
    ...     ("bytes", "steps", "flops", "value"),
    ...     ("1.5 KiB", "12", "9 k", "result of dot_general"),
    ... ]
    >>> print(table(rows, 38))
      bytes  steps  flops  value
    1.5 KiB     12    9 k  result of dot_…
    """
    sizes = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if width is not None:
        sizes = _narrowed(sizes, width)
    return "\n".join(GAP.join(_aligned(row, sizes)).rstrip() for row in rows)


def _narrowed(sizes: Sequence[int], width: int) -> list[int]:
    """The sizes of columns that fit in a width, if they can: the longest that holds no numbers gives way first."""
    found = [*sizes]
    while (
        sum(found) + len(GAP) * (len(found) - 1) > width and (most := max(found[NUMBERS:])) > LEAST
    ):
        found[found.index(most, NUMBERS)] -= 1
    return found


def _aligned(row: Sequence[str], sizes: Sequence[int]) -> list[str]:
    cells = [(cut(c, n), n) for c, n in zip(row, sizes, strict=True)]
    return [c.rjust(n) if k < NUMBERS else c.ljust(n) for k, (c, n) in enumerate(cells)]
