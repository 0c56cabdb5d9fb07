"""Draws time against size from a result: `python benchmarks/picture.py RESULT.json CASE OUT.svg`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams.update({"svg.hashsalt": "fiveloop", "svg.fonttype": "none"})

from matplotlib import pyplot  # noqa: E402 — the backend is chosen before

COLOURS = {
    "fiveloop": "#1b6ac9",
    "jax refs": "#c9461b",
    "jax at_set": "#d9902f",
    "jax scan": "#8a8a8a",
}


def main() -> None:
    """Draw the case of the result that the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("result", type=Path)
    parser.add_argument("case")
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    result = json.loads(given.result.read_text(encoding="utf-8"))
    draw(result, given.case, given.out)


def points(result: dict[str, Any], case: str, contender: str) -> tuple[list[int], list[float]]:
    """Sizes, and the least milliseconds of any call, which a busy machine changes least."""
    rows = [r for r in result["rows"] if r["case"] == case and r["contender"] == contender]
    measured = [(r["size"], 1e3 * r["run"]["least"]) for r in rows if r["run"]]
    return [n for n, _ in measured], [ms for _, ms in measured]


def draw(result: dict[str, Any], case: str, out: Path) -> None:
    """One line a contender, both axes logarithmic, with the versions that ran below."""
    figure, axes = pyplot.subplots(figsize=(6.4, 3.6), layout="constrained")
    for contender, colour in COLOURS.items():
        sizes, times = points(result, case, contender)
        if sizes:
            axes.plot(sizes, times, marker="o", color=colour, label=contender)
    axes.set(
        xscale="log", yscale="log", xlabel="elements n", ylabel="milliseconds, least of all calls"
    )
    axes.set_title(f"{case.replace('/', ', ')} ({versions(result)})", fontsize=10)
    axes.legend(frameon=False, fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    figure.savefig(out, metadata={"Date": None})


def versions(result: dict[str, Any]) -> str:
    """The releases that were measured."""
    known = {k: v for side in result["versions"].values() for k, v in side.items()}
    return ", ".join(f"{name} {known[name]}" for name in ("jaxlib", "jax") if name in known)


if __name__ == "__main__":
    main()
