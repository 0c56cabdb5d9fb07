"""Tables for people and JSON for programs."""

import dataclasses
import datetime
import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.duel import Row
from benchmarks.stats import Ratio
from benchmarks.verdicts import Finding, Growth

RESULTS = Path(__file__).resolve().parent / "results"
UNITS = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6))


def seconds(value: float | None) -> str:
    """A duration to three figures in a fitting unit."""
    if value is None:
        return "-"
    unit, scale = next(((u, s) for u, s in UNITS if value >= s), UNITS[-1])
    return f"{value / scale:.3g} {unit}"


def amount(value: int | None) -> str:
    """A number of bytes to three figures."""
    if value is None:
        return "-"
    size = float(value)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} GB"


def interval(ratio: Ratio | None) -> str:
    """A ratio with its interval."""
    return "" if ratio is None else f"{ratio.median:.3g} [{ratio.low:.3g}, {ratio.high:.3g}]"


def number(value: float | None) -> str:
    """An exponent, or a dash."""
    return "-" if value is None else f"{value:.2f}"


def aligned(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Columns padded to their widest cell: text to the left, all that starts with a digit to the right."""
    widths = [max(len(row[k]) for row in (header, *lines)) for k in range(len(header))]
    right = [
        all(not row[k] or row[k][0].isdigit() or row[k] == "-" for row in lines)
        for k in range(len(header))
    ]

    def line(row: Sequence[str]) -> str:
        cells = [
            c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True)
        ]
        return "  ".join(cells).rstrip()

    return "\n".join([line(header), line(["-" * w for w in widths]), *(line(row) for row in lines)])


def rows_table(rows: Sequence[Row]) -> str:
    """Every measured row; ratios are ours over the row's contender."""
    header = (
        *("case", "n", "contender", "min", "median", "spread", "fiveloop / it [95 %]"),
        *("lower", "fiveloop / it", "compile", "staged", "fiveloop / it", "temp", "copies", "note"),
    )
    lines = [
        (
            row.case,
            str(row.size),
            row.contender,
            seconds(row.run.least if row.run else None),
            seconds(row.metric("run")),
            f"{row.run.spread:.0%}" if row.run else "-",
            interval(row.ratio),
            seconds(row.metric("trace_lower")),
            f"{row.lower_ratio.median:.2g}" if row.lower_ratio else "",
            seconds(row.compile),
            seconds(row.metric("staging")),
            interval(row.staging_ratio),
            amount(row.temp_bytes),
            "-" if row.copies is None else str(row.copies),
            row.note,
        )
        for row in rows
    ]
    return aligned(header, lines)


def growth_table(growths: Sequence[Growth]) -> str:
    """Exponents per case and contender."""
    header = ("case", "contender", "sizes", "time ~ n^", "temp ~ n^")
    lines = [
        (g.case, g.contender, f"{g.sizes[0]} to {g.sizes[-1]}", number(g.run), number(g.temp_bytes))
        for g in growths
    ]
    return aligned(header, lines)


def findings_table(findings: Sequence[Finding]) -> str:
    """Limits and whether they are kept."""
    words = {True: "kept", False: "MISSED", None: "open"}
    header = ("", "case", "what", "measured", "at most", "answers")
    return aligned(
        header, [(words[f.kept], f.case, f.what, f.measured, f.at_most, f.row) for f in findings]
    )


def machine() -> dict[str, Any]:
    """Where and when the numbers were taken."""
    return {
        "when": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "load": list(os.getloadavg()),
    }


def versions_line(versions: dict[str, dict[str, str]]) -> str:
    """The versions behind each side, on one line."""
    parts = (
        f"{side}: " + ", ".join(f"{k} {v}" for k, v in known.items())
        for side, known in sorted(versions.items())
    )
    return " | ".join(parts)


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write results, dataclasses included."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1, default=dataclasses.asdict) + "\n")
