"""Prints results as Markdown: `python benchmarks/page.py benchmarks/results/*.json`, for docs/benchmarks.md."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def main(paths: list[str]) -> None:
    """Print each file's rows, growth exponents and limits as tables."""
    for path in paths:
        print(page(json.loads(Path(path).read_text(encoding="utf-8"))))


def page(result: Row) -> str:
    """The tables of one run, under a heading with the versions and the machine."""
    jaxlib = next(v["jaxlib"] for v in result["versions"].values() if "jaxlib" in v)
    machine = result["machine"]
    has_staging = any(row.get("staging") for row in result["rows"])
    parts = [
        f"### {result['benchmark']}, jaxlib {jaxlib}",
        f"{machine['machine']}, {machine['cores']} cores, Python {machine['python']}.",
        table(
            [
                *("case", "n", "contender", "median", "ours / it [95 %]", "lower"),
                *(["staged"] if has_staging else []),
                *("temp", "copies"),
            ],
            [cells(row, has_staging) for row in result["rows"]],
        ),
    ]
    if result["growth"]:
        parts.append(
            table(
                ["case", "contender", "time grows as n^", "temp grows as n^"],
                [
                    [g["case"], g["contender"], power(g.get("run")), power(g.get("temp_bytes"))]
                    for g in result["growth"]
                ],
            )
        )
    if result["limits"]:
        parts.append(
            table(
                ["case", "what", "measured", "at most", ""],
                [
                    [x["case"], x["what"], x["measured"], x["at_most"], verdict(x["kept"])]
                    for x in result["limits"]
                ],
            )
        )
    return "\n\n".join(parts) + "\n"


def cells(row: Row, has_staging: bool) -> list[str]:
    """What the table shows of a row."""
    run, lower, ratio, staging = (
        row.get(name) for name in ("run", "trace_lower", "ratio", "staging")
    )
    return [
        row["case"],
        str(row["size"]),
        row["contender"],
        seconds(run["median"]) if run else row["note"],
        f"{ratio['median']:.3g} [{ratio['low']:.3g}, {ratio['high']:.3g}]" if ratio else "",
        seconds(lower["median"]) if lower else "",
        *([seconds(staging["median"]) if staging else ""] if has_staging else []),
        size(row["temp_bytes"]),
        "" if row["copies"] is None else str(row["copies"]),
    ]


def seconds(x: float) -> str:
    """A time with its unit."""
    unit, factor = next(
        (u, f) for u, f in (("s", 1.0), ("ms", 1e3), ("us", 1e6)) if x * f >= 1 or u == "us"
    )
    return f"{x * factor:.3g} {unit}"


def size(x: float | None) -> str:
    """A number of bytes with its unit."""
    if x is None:
        return ""
    unit, factor = next(
        (u, f) for u, f in (("MB", 1e6), ("kB", 1e3), ("B", 1.0)) if x >= f or u == "B"
    )
    return f"{x / factor:.3g} {unit}"


def power(x: Any) -> str:
    """A growth exponent, if it was found."""
    return "" if x is None else f"{x:.2f}" if isinstance(x, float) else str(x)


def verdict(kept: bool | None) -> str:
    """A limit's fate in a word."""
    return "open" if kept is None else "kept" if kept else "missed"


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *[[str(c) for c in row] for row in rows]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


if __name__ == "__main__":
    main(sys.argv[1:])
