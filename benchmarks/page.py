"""Prints results as Markdown for docs/benchmarks.md: `python benchmarks/page.py [--short] benchmarks/results/*.json`.

With `--short` a case has one line: the largest size, the ratio to each peer, and how time and memory grow. With
`--costs` the cases `policy/model` are one table of our times and bytes.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

Row = dict[str, Any]


OURS = "fiveloop"


def main() -> None:
    """Print each file's results as tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--short", action="store_true", help="one line a case")
    parser.add_argument("--costs", action="store_true", help="a table of policies by models")
    parser.add_argument("paths", nargs="+", type=Path)
    given = parser.parse_args()
    for path in given.paths:
        result = json.loads(path.read_text(encoding="utf-8"))
        show = costs if given.costs else short if given.short else full
        parts = [*heading(result), *show(result)]
        print("\n\n".join(parts) + "\n")


def heading(result: Row) -> list[str]:
    """The versions and the machine."""
    jaxlib = next(v["jaxlib"] for v in result["versions"].values() if "jaxlib" in v)
    machine = result["machine"]
    return [
        f"### {result['benchmark']}, jaxlib {jaxlib}",
        f"{machine['machine']}, {machine['cores']} cores, Python {machine['python']}.",
    ]


def short(result: Row) -> list[str]:
    """A line for each case, and the limits that were missed."""
    peers = list(dict.fromkeys(row["contender"] for row in result["rows"]))
    peers.remove(OURS)
    head = ["case", "n", OURS, *[f"/ {peer}" for peer in peers], "time", "temp", "copies"]
    lines = [line(result, case, peers) for case in dict.fromkeys(r["case"] for r in result["rows"])]
    limits = result["limits"]
    kept = sum(limit["kept"] is True for limit in limits)
    return [table(head, lines), f"{kept} of {len(limits)} limits kept.", *missed(limits)]


def costs(result: Row, plain: str = "no_checkpoint") -> list[str]:
    """Our time over that without a checkpoint, and our temporary bytes, for each policy and model."""
    ours = {row["case"]: row for row in result["rows"] if row["contender"] == OURS and row["run"]}
    models = [case.partition("/")[2] for case in ours if case.startswith(f"{plain}/")]
    ways = list(dict.fromkeys(case.partition("/")[0] for case in ours))

    def cell(way: str, model: str) -> str:
        row, base = ours.get(f"{way}/{model}"), ours[f"{plain}/{model}"]
        if row is None:
            return ""
        return f"{row['run']['least'] / base['run']['least']:.2f}, {size(row['temp_bytes'])}"

    lines = [[way, *(cell(way, model) for model in models)] for way in ways]
    return [table(["saved", *models], [line for line in lines if any(line[1:])])]


def line(result: Row, case: str, peers: list[str]) -> list[str]:
    """A case at its largest size, beside each peer at the largest that it was run at."""
    rows = [row for row in result["rows"] if row["case"] == case]
    ours = [row for row in rows if row["contender"] == OURS and row["run"]][-1]
    growth: Row = next(
        (g for g in result["growth"] if g["case"] == case and g["contender"] == OURS), {}
    )
    return [
        case,
        str(ours["size"]),
        seconds(ours["run"]["median"]),
        *[beside(peer, rows, ours["size"]) for peer in peers],
        power(growth.get("run")),
        power(growth.get("temp_bytes")),
        "" if ours["copies"] is None else str(ours["copies"]),
    ]


def beside(peer: str, rows: list[Row], largest: int) -> str:
    """Our time over a peer's, and the size if it is not the largest; or why there is none."""
    theirs = [row for row in rows if row["contender"] == peer]
    timed = [row for row in theirs if row["ratio"]]
    if not timed:
        return theirs[0]["note"].partition(":")[0] if theirs else ""
    row = timed[-1]
    at = "" if row["size"] == largest else f" at {row['size']}"
    return f"{row['ratio']['median']:.3g}{at}"


def missed(limits: list[Row]) -> list[str]:
    """A table of the limits that were not kept, if there are any."""
    rows = [[x["case"], x["what"], x["measured"], x["at_most"]] for x in limits if not x["kept"]]
    return [table(["missed", "what", "measured", "at most"], rows)] if rows else []


def full(result: Row) -> list[str]:
    """All rows, growth exponents and limits."""
    has_staging = any(row.get("staging") for row in result["rows"])
    parts = [
        table(
            [
                *("case", "n", "contender", "median", "fiveloop / it [95 %]", "lower"),
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
    return parts


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
    main()
