"""The loops of the bench: what fiveloop computes agrees with NumPy, forward and in reverse."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import agree
from benchmarks.inplace import c_loops as inplace_c
from benchmarks.inplace import declared as in_place
from benchmarks.inplace import fiveloop_loops as inplace_fiveloop
from benchmarks.loops import c_loops, declared, fiveloop_loops, inputs, numpy_loops
from benchmarks.model import Program, RatioLimit
from benchmarks.sides import c_side, fiveloop_side

SMALL = {
    "recurrence": 20,
    "lstm": 2,
    "edit_distance": 6,
    "edit_table": 6,
    "floyd_warshall": 6,
    "shortest_paths": 6,
    "linear": 20,
    "n_body": 3,
    "life": 8,
    "histogram": 64,
    "rk4": 5,
    "midpoint": 5,
    "prefix_sums": 20,
    "ring": 20,
    "sieve": 50,
    "outputs": 4,
    "weights": 3,
    "three_deep": 4,
    "group": 20,
    "lanes": 20,
    "transport": 6,
}
STEP = 1e-6


def results(program: Program) -> dict[str, np.ndarray]:
    return fiveloop_side.SIDE.prepare(program).results()


@pytest.mark.parametrize("loop", SMALL)
def test_our_loops_agree_with_numpy(loop: str) -> None:
    size = SMALL[loop]
    wanted = numpy_loops.build(loop, "forward", size)
    got = results(fiveloop_loops.build(loop, "forward", size))
    assert agree.disagreements(got, wanted.fun(*wanted.args), 1e-4) == []


@pytest.mark.parametrize("loop", inputs.WRT)
def test_our_gradients_agree_with_differences(loop: str) -> None:
    size = SMALL[loop]
    program = fiveloop_loops.build(loop, "gradient", size)
    data = numpy_loops.wide(program.args[0])
    draw = np.random.default_rng(1)
    way = {name: draw.standard_normal(data[name].shape) for name in inputs.WRT[loop]}

    def half_squares(step: float) -> float:
        moved = {name: data[name] + step * way[name] for name in way}
        y = numpy_loops.forward(loop, {**data, **moved}, size)
        return float(0.5 * (data["w"] * y * y).sum())

    difference = (half_squares(STEP) - half_squares(-STEP)) / (2.0 * STEP)
    bars = results(program)
    slope = sum((bars[f"{name}_bar"].astype(np.float64) * way[name]).sum() for name in way)
    scale = sum(float(np.abs(bars[f"{name}_bar"] * way[name]).sum()) for name in way)
    assert abs(slope - difference) <= 1e-4 * scale


def test_every_loop_is_run_and_every_peer_that_a_limit_names() -> None:
    names = {case.name for case in declared.CASES}
    assert {f"{loop}/gradient" for loop in inputs.WRT} <= names
    assert {f"{loop}/forward" for loop in inputs.FORWARD_ONLY} <= names
    for case in declared.CASES:
        limited = {limit.peer for limit in case.limits if isinstance(limit, RatioLimit)}
        assert limited <= {peer.name for peer in case.peers}
        assert limited
    (geometric,) = declared.BENCHMARK.limits
    assert set(geometric.cases) <= names


def test_c_agrees_with_our_loops_and_gradients_or_says_that_there_is_no_compiler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if shutil.which(c_side.COMPILER) is not None:
        ours, theirs = (fiveloop_loops, inplace_fiveloop), (c_loops, inplace_c)
        cases = [(0, loop, way) for loop in declared.BY_HAND for way in ("forward", "gradient")]
        cases += [(1, loop, way) for loop in in_place.BY_HAND for way in ("primal", "gradient")]
        for which, loop, way in cases:
            got = c_side.SIDE.prepare(theirs[which].build(loop, way, 16)).results()
            want = results(ours[which].build(loop, way, 16))
            assert agree.disagreements(got, want, 1e-4) == [], (loop, way)
    monkeypatch.setattr(c_side, "COMPILER", "no_such_compiler")
    with pytest.raises(c_side.NoCompiler, match="left out: no C compiler"):
        c_side.compiler()
