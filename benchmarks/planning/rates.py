"""The rates of `sink` and of lanes in groups, measured again: `python benchmarks/planning/rates.py [sums groups]`.

Loops of one kind and many sizes are timed under both choices that the cost model has. Printed are the loops with the
time of the step over that without it, and the rates under which the model's choices take the least time, beside the
best choice and, at most, beside the step switched off.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from itertools import product
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

import fiveloop.numpy as fnp
from benchmarks.planning.loops import normal
from fiveloop.core import forget_traces, jit, make_jaxpr, vmap
from fiveloop.core.transforms import operations_of
from fiveloop.loops import cond, for_loop, fori_loop, planning

SECONDS = 0.5
"""How long the choices of one loop are timed."""

Run = Callable[[], Any]
Measured = tuple[Any, dict[Any, float]]
"""What a model knows of a loop, and its least seconds by choice."""


def least_seconds(runs: dict[Any, Run]) -> dict[Any, float]:
    """The least processor time of each, over rounds in turn."""
    least = dict.fromkeys(runs, 1e9)
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        for choice, run in runs.items():
            begin = time.process_time()
            run().block_until_ready()
            least[choice] = min(least[choice], time.process_time() - begin)
    return least


def compiled(fun: Callable[..., Any], *args: Any) -> Run:
    """A program with its arguments."""
    forget_traces()
    program = jit(lambda *args: fun(*args)).lower(*args).compile()
    return lambda: program(*args)


def best(
    measured: Sequence[Measured], rates: Sequence[Any], chosen: Callable[[Any, Any], Any]
) -> None:
    """Print the rates by which a model chooses best."""

    def score(rate: Any) -> tuple[float, float]:
        """How much longer the choices take than the best ones, and the worst of them than without the step."""
        picked = [(times[chosen(rate, known)], times) for known, times in measured]
        mean = sum(log(seconds / min(times.values())) for seconds, times in picked) / len(picked)
        return exp(mean), max(seconds / times[False] for seconds, times in picked)

    for mean, worst, rate in sorted((*score(rate), rate) for rate in rates)[:5]:
        print(f"  {rate}: {mean:.3f} of the best, at most {worst:.2f} of the same without the step")


def sums() -> None:
    """Sums of products: with the factors read from arrays or made in the step, sunk and added up in the loop."""
    sink: Any = import_module("fiveloop.loops.plan.sink")
    kept = sink.RATES, sink.MOST_TERMS, sink.MOST_KEPT
    measured: list[Measured] = []
    sink.MOST_TERMS = sink.MOST_KEPT = 10**9
    for new, terms, side in product((0, 1, 2), (1, 4, 16, 64), (8, 16, 32, 64, 128)):
        steps = max(20, min(1_000, 4_000_000 // (side * side * (terms + 2))))
        args = normal(steps, terms, side), normal(steps, terms, side, seed=1)

        def run(a: Any, b: Any, new: int = new, side: int = side, steps: int = steps) -> Any:
            def body(i: Any, total: Any) -> None:
                x = a[i] * 2.0 if new else a[i]
                y = b[i] + 1.0 if new > 1 else b[i]
                total[...] += x.T @ y

            return for_loop(steps, body, fnp.zeros((side, side)))

        sink.RATES = (1.0, 0.0, 0.0)
        runs = {True: compiled(run, *args)}
        with planning(sink=False):
            runs[False] = compiled(run, *args)
        times = least_seconds(runs)
        print(
            f"{new} new factors, {terms} terms of {side} x {side}: {times[True] / times[False]:.2f}"
        )
        measured.append(((side * side, 4 * new * terms * side), times))
    sink.RATES, sink.MOST_TERMS, sink.MOST_KEPT = kept
    rates = product((0.06,), (0.01, 0.02, 0.035, 0.06, 0.1, 0.2), (0.0, 5.0, 10.0, 20.0, 60.0))
    best(measured, [*rates], lambda r, known: r[0] * known[0] >= r[1] * known[1] + r[2])


def looped(x: Any) -> Any:
    """A dear branch."""
    return fori_loop(0, 30, lambda i, y: fnp.sin(y) + 0.1 * y, x)


def chained(x: Any) -> Any:
    """A branch of four functions."""
    for _ in range(4):
        x = fnp.tanh(x) + 0.1 * x
    return x


def multiplied(x: Any) -> Any:
    """A branch of two products with a matrix."""
    w = normal(x.shape[0], x.shape[0], scale=0.1)
    return fnp.tanh(w @ fnp.tanh(w @ x))


def doubled(x: Any) -> Any:
    """A cheap branch."""
    return x * 2.0


def groups() -> None:
    """Lanes of which one in ten takes a branch, the others a cheap one: in groups, and both branches for all."""
    lanes: Any = import_module("fiveloop.loops.cond.lanes")
    kept = lanes.PLACED, lanes.MOVED
    lanes.PLACED = lanes.MOVED = 0.0
    measured: list[Measured] = []
    branches = ((looped, 64), (looped, 1), (chained, 64), (chained, 1), (multiplied, 64))
    for (branch, width), count in product((*branches, (doubled, 64)), (512, 4_000)):
        rows = normal(count, width)
        rows[:, 0] = np.arange(count) % 10

        def run(x: Any, way: Any, branch: Any = branch) -> Any:
            return vmap(lambda x: cond(x[0] < 1, branch, doubled, x, vmap=way))(x)

        runs = {
            way == "group": compiled(partial(run, way=way), rows) for way in ("group", "select")
        }
        times = least_seconds(runs)
        print(f"{branch.__name__}, {count} lanes of {width}: {times[True] / times[False]:.2f}")
        work = sum(operations_of(make_jaxpr(f)(rows[0])) for f in (branch, doubled))
        measured.append(((work / 2, 8 * width), times))
    lanes.PLACED, lanes.MOVED = kept
    rates = product((0.01, 0.02, 0.05, 0.1), (10.0, 20.0, 50.0, 200.0), (0.0, 0.2, 0.4, 1.0))
    best(measured, [*rates], lambda r, known: known[0] * r[0] >= r[1] + known[1] * r[2])


if __name__ == "__main__":
    for name in sys.argv[1:] or ("sums", "groups"):
        print(name)
        {"sums": sums, "groups": groups}[name]()
