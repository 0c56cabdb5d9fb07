"""Text tables, and numbers as people read them."""

from __future__ import annotations

from collections.abc import Sequence


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


def table(rows: Sequence[Sequence[str]], widths: Sequence[int]) -> str:
    """Rows below a first one of titles; cells longer than their column are cut. The first two columns are numbers.

    >>> print(table([("bytes", "steps", "value"), ("1.5 KiB", "12", "result of tanh")], (9, 5, 12)))
      bytes  steps  value
    1.5 KiB     12  result of t…
    """
    cut = [
        [c if len(c) <= w else f"{c[: w - 1]}…" for c, w in zip(row, widths, strict=True)]
        for row in rows
    ]
    sizes = [max(map(len, column)) for column in zip(*cut, strict=True)]
    return "\n".join("  ".join(_aligned(row, sizes)).rstrip() for row in cut)


def _aligned(row: Sequence[str], sizes: Sequence[int]) -> list[str]:
    return [
        c.rjust(n) if k < 2 else c.ljust(n) for k, (c, n) in enumerate(zip(row, sizes, strict=True))
    ]
