"""The bench runner: statistics, agreement, reading programs, limits, and whole runs on NumPy alone."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import agree, hlo, report, run, stats, verdicts
from benchmarks.core import breakdown
from benchmarks.duel import Row, Runner, Settings
from benchmarks.inplace import declared, fiveloop_loops, inputs, numpy_loops
from benchmarks.model import (
    Benchmark,
    Case,
    Contender,
    GeomeanLimit,
    GrowthLimit,
    NoCopies,
    RatioLimit,
    Task,
    task,
)
from benchmarks.pool import Pool, WorkerFailed
from benchmarks.sides import fiveloop_side, numpy_side
from benchmarks.sides.base import Staging, last_leaf, map_leaves, named
from benchmarks.worker import Built, Worker

BUILDERS = "tests.bench_builders"
FAST = Settings(rounds=3, round_seconds=1e-4, lower_rounds=1)


def contender(name: str, builder: str = "build_squares") -> Contender:
    return Contender(name, "numpy", f"{BUILDERS}:{builder}")


def task_of(builder: str) -> Task:
    return task(contender("t", builder), 4)


# Statistics


def test_a_summary_has_the_least_the_median_and_the_spread() -> None:
    summary = stats.summarise([4.0, 1.0, 2.0, 3.0, 5.0])
    assert (summary.least, summary.median, summary.count) == (1.0, 3.0, 5)
    assert summary.spread == pytest.approx(2.0 / 3.0)


def test_the_interval_of_a_ratio_holds_its_median_and_narrows_with_less_noise() -> None:
    draw = np.random.default_rng(0)
    quiet, loud = (draw.normal(2.0, s, 31).tolist() for s in (0.01, 0.5))
    base = draw.normal(1.0, 0.01, 31).tolist()
    narrow, wide = stats.paired_ratio(quiet, base), stats.paired_ratio(loud, base)
    assert narrow.low <= narrow.median <= narrow.high
    assert narrow.median == pytest.approx(2.0, rel=0.02)
    assert wide.high - wide.low > 5 * (narrow.high - narrow.low)


def test_samples_of_a_ratio_come_in_pairs() -> None:
    with pytest.raises(ValueError, match="expected equal counts, got 1 and 2"):
        stats.paired_ratio([1.0], [1.0, 2.0])


def test_a_ratio_is_that_of_neighbouring_rounds_whatever_the_speed_of_the_machine() -> None:
    speeds = [1.0, 1.0, 2.0, 1.0, 2.0, 2.0, 2.0]
    ours, theirs = [3.0 * s for s in speeds], [4.0 * s for s in speeds]
    theirs[2], theirs[4] = 4.0, 4.0  # the speed changed within two of the rounds
    assert stats.paired_ratio(ours, theirs).median == pytest.approx(0.75)
    assert np.median(ours) / np.median(theirs) == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("median", "low", "at_most", "kept"),
    [
        (1.02, 0.99, 1.0, True),
        (1.02, 1.01, 1.0, False),
        (1.04, 0.90, 1.0, False),
        (0.80, 0.70, 1.0, True),
        (0.51, 0.40, 0.5, False),
        (0.50, 0.40, 0.5, True),
    ],
)
def test_how_a_limit_is_read(median: float, low: float, at_most: float, kept: bool) -> None:
    assert stats.meets(stats.Ratio(median, low, 2.0), at_most) is kept


def test_growth_exponents() -> None:
    steps = (1000, 2000, 4000)
    assert stats.growth_exponent(steps, [s**2 for s in steps]) == pytest.approx(2.0)
    assert stats.growth_exponent(steps, [7.0] * 3) == pytest.approx(0.0)
    assert stats.growth_exponent((1000,), [1.0]) is None
    assert stats.growth_exponent(steps, [0.0, 0.0, 1.0]) is None


# Agreement


def test_agreement_is_relative_to_the_largest_magnitude() -> None:
    want = {"a": np.array([100.0, 1e-6])}
    assert agree.disagreements({"a": np.array([100.0, 0.0])}, want, 1e-6) == []
    (line,) = agree.disagreements({"a": np.array([100.1, 0.0])}, want, 1e-6)
    assert line.startswith("a: expected a relative error of at most 1e-06, got 0.001")


@pytest.mark.parametrize("got", [np.zeros(3), np.array([1.0, np.nan])])
def test_a_wrong_shape_or_a_nan_never_agrees(got: np.ndarray) -> None:
    assert len(agree.disagreements({"a": got}, {"a": np.array([1.0, 1.0])}, 1e9)) == 1


def test_a_result_that_one_side_lacks_is_named() -> None:
    found = agree.disagreements({"a": np.ones(1)}, {"a": np.ones(1), "b": np.ones(1)}, 0.0)
    assert found == ["b: only one side has it"]


# Reading compiled programs

MODULE = """\
HloModule m, is_scheduled=true

%fused (p: f32[8], i: s32[]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  %i = s32[] parameter(1)
  %one = f32[1]{0} constant({1})
  %c2 = f32[8]{0} copy(%p)
  ROOT %d = f32[8]{0} dynamic-update-slice(%c2, %one, %i)
}

%body (t: (s32[], f32[8])) -> (s32[], f32[8]) {
  %t = (s32[], f32[8]{0}) parameter(0)
  %i.1 = s32[] get-tuple-element(%t), index=0
  %a = f32[8]{0} get-tuple-element(%t), index=1
  %c1 = f32[8]{0} copy(%a)
  %small = f32[4]{0} slice(%c1), slice={[0:4]}
  %f = f32[8]{0} fusion(%c1, %i.1), kind=kLoop, calls=%fused
  ROOT %r = (s32[], f32[8]{0}) tuple(%i.1, %f)
}

%cond (t: (s32[], f32[8])) -> pred[] {
  %t.1 = (s32[], f32[8]{0}) parameter(0)
  ROOT %p.1 = pred[] constant(true)
}

ENTRY %main (x: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  %outside = f32[8]{0} copy(%x)
  %z = s32[] constant(0)
  %in = (s32[], f32[8]{0}) tuple(%z, %outside)
  %w = (s32[], f32[8]{0}) while(%in), condition=%cond, body=%body
  ROOT %out = f32[8]{0} get-tuple-element(%w), index=1
}
"""


def test_whole_array_work_is_found_in_bodies_and_what_they_call() -> None:
    assert hlo.whole_array_work(MODULE, [(8,)]) == ["copy c1", "copy c2"]
    assert hlo.whole_array_work(MODULE, [(4,)]) == ["slice small"]
    assert hlo.whole_array_work(MODULE, []) == []


# Tables


def test_durations_and_sizes_have_fitting_units() -> None:
    assert [report.seconds(v) for v in (2.5, 0.0125, 3.4e-6, None)] == [
        "2.5 s",
        "12.5 ms",
        "3.4 us",
        "-",
    ]
    assert [report.amount(v) for v in (196, 64_200, 2_140_000, None)] == [
        "196 B",
        "64.2 kB",
        "2.14 MB",
        "-",
    ]


def test_columns_are_aligned_numbers_to_the_right() -> None:
    assert report.aligned(("who", "n"), [("a", "10"), ("bcde", "9")]) == (
        "who    n\n----  --\na     10\nbcde   9"
    )


# Trees


def test_leaves_are_named_by_their_path() -> None:
    tree = {"w": (1, 2), "b": [{"c": 3}]}
    assert named(tree) == {"w/0": 1, "w/1": 2, "b/0/c": 3}
    assert map_leaves(lambda leaf: leaf + 1, tree) == {"w": (2, 3), "b": [{"c": 4}]}


# Limits


def rows_of(ours: list[float], theirs: list[float], sizes: tuple[int, ...]) -> list[Row]:
    rows = []
    for index, size in enumerate(sizes):
        ratio = stats.paired_ratio([ours[index]] * 3, [theirs[index]] * 3)
        times = (stats.summarise([v[index]] * 3) for v in (ours, theirs))
        rows.append(Row("c", size, size, "ours", next(times), temp_bytes=4 * size, copies=0))
        rows.append(Row("c", size, size, "peer", next(times), temp_bytes=8 * size, ratio=ratio))
    return rows


def test_limits_are_judged_by_their_metric() -> None:
    limits = (
        RatioLimit("run", "peer", 0.5, "times", 20),
        RatioLimit("temp_bytes", "peer", 0.4, "bytes", 10),
        GrowthLimit("run", 1.1, "growth"),
        NoCopies("gate"),
        RatioLimit("trace_lower", "peer", 0.5, "not there", 10),
    )
    case = Case("c", (10, 20), contender("ours"), (contender("peer"),), limits=limits)
    found = verdicts.findings(case, rows_of([1.0, 2.0], [4.0, 16.0], (10, 20)))
    assert [f.kept for f in found] == [True, False, True, True, None]
    assert [f.measured for f in found] == [
        "0.125 [0.125, 0.125]",
        "0.5 [0.5, 0.5]",
        "1.000",
        "0",
        "not measured",
    ]


def test_growth_is_told_of_every_contender() -> None:
    case = Case("c", (10, 20), contender("ours"), (contender("peer"),))
    ours, peer = verdicts.growths(case, rows_of([1.0, 2.0], [4.0, 16.0], (10, 20)))
    assert (ours.contender, peer.contender) == ("ours", "peer")
    assert [ours.run, ours.temp_bytes, peer.run] == pytest.approx([1.0, 1.0, 2.0])


def test_a_geometric_mean_takes_the_largest_size_that_both_ran_of_each_case() -> None:
    rows = rows_of([1.0, 2.0], [1.0, 1.0], (10, 20))  # half the bytes of its peer
    more = [replace(row, case="d") for row in rows]
    more[0].temp_bytes, more[3].temp_bytes = 10, None  # 10 of 80 bytes, at n = 10 only
    limit = GeomeanLimit("temp_bytes", "peer", 0.25, "bytes", ("c", "d", "not run"))
    found = verdicts.geomean_finding(limit, [*rows, *more], "ours")
    assert found.what == "temp_bytes / peer, geometric mean of 2 cases"
    assert (found.measured, found.kept) == ("0.25", True)
    nothing = verdicts.geomean_finding(limit, [], "ours")
    assert (nothing.measured, nothing.kept) == ("not measured", None)


# The duel, on sides that only pretend


class Pretend:
    """Answers orders from a script and writes down which came."""

    def __init__(self, seconds: dict[str, float], results: dict[str, float]) -> None:
        self.seconds, self.values = seconds, results
        self.sampled: list[str] = []
        self.sides: list[str] = []

    def ask(self, side: str, method: str, /, *arguments: Any, timeout: float = 0.0) -> object:
        match method:
            case "build":
                if arguments[0].key == "broken":
                    raise WorkerFailed("ValueError: broken on purpose", "the trace")
                return Built(0.1, 0.2, 100, 0, self.seconds[arguments[0].key])
            case "results":
                return {"y": np.array([self.values[arguments[0]]])}
            case "sample":
                self.sampled.append(arguments[0])
                self.sides.append(side)
                return [self.seconds[arguments[0]]]
            case "stage":
                compiles = arguments[1]
                return Staging(0.1, self.seconds[arguments[0].key] if compiles else None)
        return None


def pretend_case(*peers: str, sizes: tuple[int, ...] = (10,)) -> Case:
    return Case("c", sizes, contender("a"), tuple(contender(p) for p in peers))


def test_rounds_alternate_between_the_contenders() -> None:
    pool = Pretend({"a": 1e-3, "b": 2e-3}, {"a": 1.0, "b": 1.0})
    a, b = Runner(pool, FAST).case(pretend_case("b"))
    assert pool.sampled == ["a", "b"] * 4  # one round to warm, three that count
    assert a.run is not None
    assert (a.run.count, a.run.median, a.ratio) == (3, 1e-3, None)
    assert b.ratio is not None
    assert b.ratio.median == pytest.approx(0.5)


def test_rounds_are_run_in_several_processes_each_of_which_is_warmed() -> None:
    pool = Pretend({"a": 1e-3, "b": 2e-3}, {"a": 1.0, "b": 1.0})
    a, _ = Runner(pool, FAST).case(replace(pretend_case("b"), processes=3))
    assert pool.sampled == ["a", "b"] * 12  # in each process one round to warm, three that count
    assert pool.sides[::8] == ["numpy", "numpy:1", "numpy:2"]
    assert a.run is not None
    assert a.run.count == 3  # each process counts once


def test_where_a_case_is_not_timed_there_are_no_rounds() -> None:
    pool = Pretend({"a": 1e-3, "b": 2e-3}, {"a": 1.0, "b": 2.0})
    a, b = Runner(pool, FAST).case(replace(pretend_case("b"), timed=False, staged=False))
    assert pool.sampled == []
    assert a.run is not None and b.ratio is None
    assert b.wrong


def test_compiling_is_timed_in_rounds_where_a_case_asks_for_it() -> None:
    pool = Pretend({"a": 0.1, "b": 0.3}, {"a": 1.0, "b": 1.0})
    for compiles in (False, True):
        _, b = Runner(pool, FAST).case(replace(pretend_case("b"), compiles=compiles))
        assert b.metric("trace_lower") == pytest.approx(0.1)
        assert b.metric("staging") == (pytest.approx(0.4) if compiles else None)
        assert (b.staging_ratio is not None) is compiles
    assert b.staging_ratio is not None
    assert b.staging_ratio.median == pytest.approx(0.5)
    assert b.lower_ratio is not None


def test_a_wrong_result_is_marked_on_the_side_that_differs() -> None:
    pool = Pretend({"a": 1e-3, "b": 1e-3}, {"a": 1.0, "b": 2.0})
    a, b = Runner(pool, FAST).case(pretend_case("b"))
    assert (a.wrong, b.wrong) == (False, True)
    assert b.note.startswith("WRONG: y: expected a relative error of at most 0.0001, got 1")


def test_a_slow_peer_gets_no_larger_sizes_but_ours_does() -> None:
    pool = Pretend({"a": 5.0, "b": 2.0}, {"a": 1.0, "b": 1.0})
    rows = Runner(pool, FAST).case(pretend_case("b", sizes=(10, 20)))
    ran = {(r.contender, r.size): r.run is not None for r in rows}
    assert ran == {("a", 10): True, ("b", 10): True, ("a", 20): True, ("b", 20): False}
    assert rows[-1].note == "skipped: a run took 2 s at n = 10"


def test_a_contender_that_fails_is_told_and_left_behind() -> None:
    pool = Pretend({"a": 1e-3, "b": 1e-3}, {"a": 1.0, "b": 1.0})
    case = pretend_case("broken", "b", sizes=(10, 20))
    rows = {(r.contender, r.size): r for r in Runner(pool, FAST).case(case)}
    assert rows["broken", 10].note == "failed: ValueError: broken on purpose"
    assert rows["broken", 10].trace == "the trace"
    assert rows["broken", 20].note == "skipped: failed at n = 10"
    assert rows["b", 20].ratio is not None


def test_a_contender_can_be_left_out() -> None:
    pool = Pretend({"b": 1e-3}, {"b": 1.0})
    runner = Runner(pool, FAST, without=frozenset({"a"}))
    (row,) = runner.case(pretend_case("b"))
    assert (row.contender, row.ratio) == ("b", None)


# Whole runs, in real processes


@pytest.fixture
def benchmark_of_squares(monkeypatch: pytest.MonkeyPatch) -> Benchmark:
    case = Case(
        "squares",
        (8, 16),
        contender("ours"),
        (contender("same"), contender("cubes", "build_cubes")),
        reference=contender("reference"),
    )
    benchmark = Benchmark("squares", "squares of numbers", (case,))
    monkeypatch.setattr(run, "NAMES", ("squares",))
    monkeypatch.setattr(run, "load", lambda name: benchmark)
    monkeypatch.setattr(run, "QUICK", FAST)
    return benchmark


def test_a_run_prints_tables_and_writes_json(
    benchmark_of_squares: Benchmark, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "out" / "squares.json"
    status = run.main(["squares", "--quick", "--without", "cubes", "--json", str(path)])
    printed = capsys.readouterr().out
    assert status == 0
    assert "fiveloop / it [95 %]" in printed
    content = json.loads(path.read_text())
    assert [(r["contender"], r["size"]) for r in content["rows"]] == [
        ("ours", 8),
        ("same", 8),
        ("ours", 16),
        ("same", 16),
    ]
    assert content["rows"][1]["ratio"]["low"] > 0
    assert content["versions"]["numpy"]["numpy"] == np.__version__


def test_a_control_runs_our_side_beside_itself(
    benchmark_of_squares: Benchmark, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.json"
    assert run.main(["squares", "--quick", "--control", "--json", str(path)]) == 0
    rows = json.loads(path.read_text())["rows"]
    assert {row["contender"] for row in rows} == {"ours", "ours again"}
    assert all(row["ratio"]["median"] > 0 for row in rows if row["contender"] == "ours again")


def test_a_run_with_a_wrong_result_fails(
    benchmark_of_squares: Benchmark, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["squares", "--sizes", "8", "--rounds", "2", "--json", str(tmp_path / "x.json")]
    assert run.main([*arguments, "--without", "same"]) == 1
    assert "FAILED squares n=8 cubes: WRONG: y" in capsys.readouterr().out


def test_a_peer_that_another_peer_outvotes_is_marked_and_fails_nothing(
    benchmark_of_squares: Benchmark, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["squares", "--sizes", "8", "--rounds", "2", "--json", str(tmp_path / "x.json")]
    assert run.main(arguments) == 0
    printed = capsys.readouterr().out
    assert "FAILED" not in printed
    assert "WRONG: y" in printed


def test_a_limit_that_is_missed_fails_only_when_enforced(
    benchmark_of_squares: Benchmark, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (case,) = benchmark_of_squares.cases
    limits = (RatioLimit("run", "same", 1e-9, "impossible"),)
    strict = replace(benchmark_of_squares, cases=(replace(case, limits=limits),))
    monkeypatch.setattr(run, "load", lambda name: strict)
    arguments = ["squares", "--quick", "--without", "cubes", "--json", str(tmp_path / "x.json")]
    assert run.main(arguments) == 0
    assert run.main([*arguments, "--enforce"]) == 1


def test_an_unknown_benchmark_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run.main(["nothing"])
    expected = f"expected the names of benchmarks out of {', '.join(run.NAMES)}, got nothing"
    assert expected in capsys.readouterr().err


def test_an_order_that_raises_comes_back_with_its_trace() -> None:
    with Pool() as pool:
        task = task_of("build_error")
        with pytest.raises(WorkerFailed, match="ValueError: no program of size 4") as caught:
            pool.ask("numpy", "build", task)
        assert "build_error" in caught.value.trace
        assert isinstance(pool.ask("numpy", "build", task_of("build_squares")), Built)


def test_a_process_that_ends_is_told_and_started_anew() -> None:
    with Pool() as pool:
        with pytest.raises(WorkerFailed, match="the numpy process ended during `build`"):
            pool.ask("numpy", "build", task_of("build_exit"))
        assert isinstance(pool.ask("numpy", "build", task_of("build_squares")), Built)


def test_a_process_that_takes_too_long_is_ended() -> None:
    with Pool() as pool:
        pool.ask("numpy", "versions")
        with pytest.raises(WorkerFailed, match=r"no answer to `build` within 0.2 s"):
            pool.ask("numpy", "build", task_of("build_sleep"), timeout=0.2)
        assert not pool.sides["numpy"].alive()


def test_an_action_runs_many_times_a_sample_and_stages_nothing() -> None:
    worker = Worker(numpy_side.SIDE)
    built = worker.build(task_of("build_count"))
    assert built.run > 0.0
    assert worker.results("t")["calls"] == 2 * 4 + 1
    (took,) = worker.sample("t", 0.0)
    assert took > 0.0
    assert worker.results("t")["calls"] == 3 * 4 + 2
    assert worker.stage(task_of("build_count"), False) is None


def test_results_that_are_numpy_arrays_need_no_waiting() -> None:
    worker = Worker(numpy_side.SIDE)
    assert worker.build(task_of("build_host_action")).temp_bytes == 32
    assert worker.results("t")["y"].tolist() == [0, 1, 2, 3]


def test_an_action_is_timed_by_its_own_clock() -> None:
    worker = Worker(numpy_side.SIDE)
    assert worker.build(task_of("build_clocked")).run == 2.0
    assert worker.sample("t", 5.0) == [2.0]


def test_the_last_leaf_is_the_one_that_is_waited_for() -> None:
    assert last_leaf({"a": 1, "b": [2, (3, {"c": 4})]}) == 4
    assert last_leaf(5) == 5


def test_a_side_that_is_not_installed_has_no_version() -> None:
    with Pool() as pool:
        with pytest.raises(WorkerFailed, match="no_such_library_side"):
            pool.ask("no_such_library", "versions")
        pool.ask("numpy", "versions")
        assert list(pool.versions()) == ["numpy"]


# The declared benchmarks


def test_the_list_names_all_cases_and_imports_no_side() -> None:
    script = "import sys; from benchmarks import run; run.main(['--list']); print({*sys.modules})"
    command = [sys.executable, "-c", script]
    root = Path(run.__file__).parent.parent
    done = subprocess.run(command, capture_output=True, text=True, cwd=root, check=True)
    *listed, modules = done.stdout.splitlines()
    names = [case.name for case in declared.BENCHMARK.cases]
    assert [name for name in names if not any(name in line for line in listed)] == []
    assert "'benchmarks.inplace.declared'" in modules
    assert "'jax'" not in modules
    assert "'jaxlib'" not in modules


def test_inplace_measures_six_loops_from_8000_to_128000_steps() -> None:
    cases = declared.BENCHMARK.cases
    assert len(cases) == len(inputs.LOOPS) * len(inputs.TRANSFORMS) == 18
    assert all(0.9 * c.steps_of(c.sizes[0]) < 8_000 for c in cases)
    assert all(abs(c.steps_of(c.sizes[-1]) - 128_000) < 1_000 for c in cases)
    assert all(any(isinstance(limit, NoCopies) for limit in c.limits) for c in cases)


@pytest.mark.parametrize("loop", inputs.LOOPS)
def test_the_reference_gradient_agrees_with_differences(loop: str) -> None:
    size = 6 if loop == "nested" else 16
    data = inputs.arguments(loop, size)
    k, w = data.get("k"), data["w"].astype(np.float64)
    x, v = data["x"].astype(np.float64), data["v"].astype(np.float64)

    def half_squares(x: np.ndarray) -> float:
        y = numpy_loops.forward(loop, x, k)
        return float(0.5 * (w * y * y).sum())

    difference = (half_squares(x + 1e-5 * v) - half_squares(x - 1e-5 * v)) / 2e-5
    slope = (numpy_loops.gradient(loop, k, w, x) * v).sum()
    assert slope == pytest.approx(difference, rel=1e-6)


@pytest.mark.parametrize("transform", inputs.TRANSFORMS)
def test_the_reference_is_deterministic_and_named(transform: str) -> None:
    program = numpy_loops.build("swap", transform, 16)
    first, second = (program.fun(*program.args) for _ in range(2))
    names = {"primal": ["y"], "gradient": ["x_bar"], "jvp_of_gradient": ["x_bar", "x_bar_dot"]}
    assert sorted(first) == names[transform]
    assert agree.disagreements(first, second, 0.0) == []


@pytest.mark.parametrize("transform", inputs.TRANSFORMS)
@pytest.mark.parametrize("loop", inputs.LOOPS)
def test_our_loops_agree_with_the_reference_and_stay_in_place(loop: str, transform: str) -> None:
    size = 24 if loop == "nested" else 512
    wanted = numpy_loops.build(loop, transform, size)
    ready = fiveloop_side.SIDE.prepare(fiveloop_loops.build(loop, transform, size))
    assert agree.disagreements(ready.results(), wanted.fun(*wanted.args), 1e-4) == []
    assert ready.copies == 0
    assert ready.trace_lower is not None
    assert ready.temp_bytes is not None


# Where the time goes


def test_a_breakdown_adds_up() -> None:
    parts = breakdown.differences({"a": 1.0, "a and b": 3.0, "all three": 3.5})
    assert parts == {"a": 1.0, "a and b": 2.0, "all three": 0.5, "all": 3.5}
    report = (
        "import time: self [us] | cumulative | imported package\n"
        "import time:       200 |        200 |   numpy.linalg\n"
        "import time:       300 |        300 |     fiveloop.core.ir\n"
        "import time:       100 |        600 | fiveloop.core\n"
        "import time:       400 |        400 | re\n"
    )
    assert breakdown.own_times(report) == {
        "fiveloop.core": 0.4,
        "the standard library": 0.4,
        "numpy": 0.2,
        "all": 1.0,
    }
    table = breakdown.table("call", "us", parts)
    assert "| a and b | 2.00 | 57% |" in table


def test_a_call_and_a_trace_are_broken_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(breakdown, "CHAIN", 4)
    call = breakdown.parts_of_call(2)
    assert call["all"] == pytest.approx(sum(call.values()) / 2)
    trace = breakdown.parts_of_trace()
    assert {"core/trace", "core/ir", "core/transforms"} <= trace.keys()
