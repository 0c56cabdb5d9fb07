"""The constants of planning's cost models, measured again: `python benchmarks/planning/fit.py [constant ...]`.

Each constant is set to each of its candidates in turn, the fitted loops and their gradients are compiled, and those
whose program depends on it are timed in alternating short rounds. Printed are, for each candidate, the geometric mean
of the least times beside the least of any candidate, and the loop that is worst off. What is in the source is marked.
Take it again on another machine, put the best candidates into the source, and run `nox -s bench -- planning`, whose
held-out loops say whether they are right.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from math import exp, log
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.planning import programs
from benchmarks.planning.declared import FITTED
from fiveloop.core import forget_traces, jit

SECONDS = 2.0
"""How long the variants of one loop are timed."""

UNROLL, CUT = "fiveloop.loops.plan.unroll", "fiveloop.core.transforms.residuals"
SINK = "fiveloop.loops.plan.sink"
PASSED = "fiveloop.loops.for_loop.residuals"
CONSTANTS: dict[str, tuple[str, Sequence[Any]]] = {
    "TURNS": (
        UNROLL,
        tuple(
            ((4, most, 4), (4, few, 2), (1024, many, 2))
            for most in (12, 16, 20, 24)
            for few in (24, 40, 48)
            for many in (0, 32)
        ),
    ),
    "FEW": (UNROLL, (1, 4, 16, 1024)),
    "BUSY": (UNROLL, (1, 2, 3, 4, 6, 8, 1_000)),
    "BRIEF": (UNROLL, (0, 30, 70, 110, 1_000)),
    "RATES": (SINK, tuple((each, 0.035, 5.0) for each in (0.0, 0.005, 0.02, 0.06, 0.2, 1.0))),
    "CHAINED": (CUT, (0.02, 0.2, 1.0)),
    "MOVED": (CUT, (0.02, 0.1, 1.0)),
    "LIGHT": (PASSED, (0, 100, 250, 2_000)),
}
"""The constants, the modules that hold them, and candidates."""


def loops() -> Iterator[tuple[str, str]]:
    """The fitted loops, by name and form."""
    forms = {"both": ("forward", "gradient"), "forward": ("forward",), "gradient": ("gradient",)}
    for which, names in FITTED.items():
        for name in names.split():
            for form in forms[which]:
                yield name, form


def variants(name: str, form: str, constant: str) -> dict[Any, Callable[[], Any]]:
    """The compiled loop by candidate; those with the same program share it."""
    module, candidates = import_module(CONSTANTS[constant][0]), CONSTANTS[constant][1]
    chosen = getattr(module, constant)
    by_text: dict[str, Callable[[], Any]] = {}
    found: dict[Any, Callable[[], Any]] = {}
    for candidate in candidates:
        setattr(module, constant, candidate)
        forget_traces()
        loop, args = getattr(import_module("benchmarks.planning.fitted"), name)()
        compiled = jit(programs.under(loop, form, "planned")).lower(*args)
        text = str(compiled.as_text())
        if text not in by_text:
            run = compiled.compile()
            by_text[text] = partial(run, *args)
        found[candidate] = by_text[text]
    setattr(module, constant, chosen)
    return found


def least_times(runs: Sequence[Callable[[], Any]]) -> dict[Callable[[], Any], float]:
    """The least seconds of each, over rounds in turn."""
    least = dict.fromkeys(runs, 1e9)
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        for run in runs:
            begin = time.perf_counter()
            for x in run().values():
                x.block_until_ready()
            least[run] = min(least[run], time.perf_counter() - begin)
    return least


def fit(constant: str) -> None:
    """Print how the candidates of one constant do."""
    module, candidates = CONSTANTS[constant]
    slower: dict[Any, list[tuple[float, str]]] = {candidate: [] for candidate in candidates}
    for name, form in loops():
        runs = variants(name, form, constant)
        if len(set(runs.values())) > 1:
            least = least_times([*dict.fromkeys(runs.values())])
            for candidate, run in runs.items():
                slower[candidate].append((least[run] / min(least.values()), f"{name}/{form}"))
    print(f"{constant} of {module}: {len(slower[candidates[0]])} loops depend on it")
    for candidate, ratios in slower.items():
        if ratios:
            mean = exp(sum(log(ratio) for ratio, _ in ratios) / len(ratios))
            worst, where = max(ratios)
            mark = "*" if candidate == getattr(import_module(module), constant) else " "
            print(f" {mark} {candidate!s:45} {mean:.3f} of the best, at most {worst:.2f} ({where})")


if __name__ == "__main__":
    for constant in sys.argv[1:] or CONSTANTS:
        fit(constant)
