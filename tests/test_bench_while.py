"""The bench of `while`: what fiveloop computes agrees with NumPy, and the declared cases are whole."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import agree, verdicts
from benchmarks.duel import Row
from benchmarks.model import GrowthLimit, Program, RatioLimit
from benchmarks.sides import fiveloop_side
from benchmarks.stats import summarise
from benchmarks.while_loop import declared, fiveloop_loops, inputs, steps

COUNT = 20


def results(program: Program) -> dict[str, np.ndarray]:
    return fiveloop_side.SIDE.prepare(program).results()


def by_numpy(loop: str, data: dict[str, Any]) -> Any:
    """The loop in NumPy, forward."""
    if loop == "lanes":
        lanes = zip(data["x"], data["limit"], strict=True)
        return np.array([by_numpy("scalar", {**data, "x": x, "limit": n}) for x, n in lanes])
    if loop in steps.STEPS:
        x = data["x"]
        for _ in range(int(data["limit"])):
            x = steps.STEPS[loop](np, data["p"], x)
        return x
    y = np.zeros_like(data["x"])
    if loop == "heap":
        for n, x in enumerate(data["x"]):
            y[n] = x
            while n > 0 and y[n] < y[(n - 1) // 2]:
                above = (n - 1) // 2
                y[n], y[above], n = y[above], y[n], above
        return y
    at, h = 0, 0.0
    for _ in range(len(y)):
        h = np.tanh(data["p"] * h + data["x"][at])
        y[at], at = h, data["links"][at]
    return y


@pytest.mark.parametrize("loop", ["scalar", "dense", "lanes", "chase", "heap"])
def test_our_loops_agree_with_numpy(loop: str) -> None:
    transform = "lanes" if loop == "lanes" else "forward"
    wanted = by_numpy(loop, inputs.arguments(loop, COUNT))
    got = results(fiveloop_loops.build(loop, transform, COUNT))
    assert agree.disagreements(got, {"y": wanted}, 1e-4) == []


def test_every_limit_names_a_contender_that_runs() -> None:
    names = {case.name for case in declared.CASES}
    assert len(names) == len(declared.CASES)
    for case in declared.CASES:
        limited = {limit.peer for limit in case.limits if isinstance(limit, RatioLimit)}
        assert limited <= {peer.name for peer in case.peers}
        assert case.limits


def test_a_compile_time_that_grows_misses_its_limit() -> None:
    case = next(case for case in declared.CASES if case.name == "staging/length")
    (limit,) = case.limits
    assert isinstance(limit, GrowthLimit)

    def row(size: int, seconds: float) -> Row:
        whole = summarise([seconds] * 3)
        return Row(case.name, size, size, "fiveloop", run=summarise([1.0] * 3), staging=whole)

    flat = [row(size, 0.2) for size in case.sizes]
    grown = [row(size, 0.2 * size) for size in case.sizes]
    assert verdicts.judge(case, limit, flat).kept is True
    assert verdicts.judge(case, limit, grown).kept is False


@pytest.mark.parametrize(
    ("bound", "known"),
    [("", False), ("max_steps", False), ("checkpoints", False), ("checkpoints", True)],
)
def test_our_gradients_agree_whatever_bounds_their_memory(bound: str, known: bool) -> None:
    wanted = results(fiveloop_loops.build("dense", "gradient", COUNT, known=True))
    bounded = fiveloop_loops.build("dense", "gradient", COUNT, bound=bound, saved=3, known=known)
    assert agree.disagreements(results(bounded), wanted, 1e-4) == []
