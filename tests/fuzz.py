"""The fuzz session: counts of fresh random programs, by their seeds, on the oracle and compiled.

    python tests/fuzz.py --oracle 100000 --compiled 2000 --gate 300
    python tests/fuzz.py --oracle 100000 --family state --family everything

A program is run by its twin in NumPy and by the oracle; then a random chain of transforms is taken of it, and the
law of one more transform holds on the result. A compiled program is its vjp's jvp, or itself, as a module, against
the oracle. For the gate, random loops and their derivatives are compiled and read for copies of arrays.

The work is cut into chunks, each with a seed of its own: `--seed S --oracle 1` is the chunk of seed S alone. A failure
prints its seed and the smallest program that fails; the other chunks go on.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.integration import random_gate, random_layers

from fiveloop.core.passes import run_passes
from fiveloop.loops.options import STEPS, planning
from fiveloop.testing.core.compare import assert_all_close
from fiveloop.testing.core.cube import TRANSFORMS, jvp_of, vjp_of
from fiveloop.testing.core.lane_steps import AXIS, lane_sample, lane_twin, with_collectives
from fiveloop.testing.core.lanes import lanes
from fiveloop.testing.core.laws import (
    check_law_batch,
    check_law_dce,
    check_law_jvp,
    check_law_lanes,
    check_law_linearize,
    check_law_split,
    check_law_transpose,
    check_law_type,
    float_inputs,
)
from fiveloop.testing.core.program_steps import CORE_KINDS, with_custom_rules, with_transforms
from fiveloop.testing.core.programs import Kinds, Program, programs
from fiveloop.testing.core.samples import Sample
from fiveloop.testing.loops.laws import check_law_planning
from fiveloop.testing.loops.program_steps import (
    CARRIED_KINDS,
    LOOP_KINDS,
    WHILE_KINDS,
    of_nests,
    with_planned,
    with_progress,
)
from fiveloop.testing.remat.program_steps import with_checkpoints
from fiveloop.testing.state.laws import (
    check_law_discharge,
    check_law_lower_discharged,
    check_law_partial_discharge,
    discharged,
)
from fiveloop.testing.state.program_steps import STATE_KINDS, read_all, with_followed, with_refs

Law = Callable[[Sample, int], None]

CHUNKS = {"oracle": 250, "compiled": 20, "gate": 20}
"""How many programs a seed stands for."""
DIFFERENCES = 1e5
"""How much looser a twin is compared that takes derivatives by differences."""


def check_law_of_passes(s: Sample, number: int) -> None:
    """The passes that run before lowering change no result."""
    pure = discharged(s)
    assert_all_close(Sample(run_passes(pure.jaxpr), pure.args).run(), s.run(), "passes: result")


FORWARD: tuple[Law, ...] = (
    lambda s, n: check_law_dce(s, n, most=1),
    lambda s, n: check_law_split(s, n, most=1),
    lambda s, n: check_law_batch(s, seed=n, most=1),
    check_law_jvp,
    check_law_linearize,
)
EVERY: tuple[Law, ...] = (*FORWARD, check_law_transpose)
STATEFUL: tuple[Law, ...] = (
    *EVERY,
    check_law_discharge,
    check_law_partial_discharge,
    check_law_of_passes,
    check_law_planning,
)
CHAINED = tuple(sorted(TRANSFORMS))


@dataclass(frozen=True)
class Family:
    """Programs of some kinds of steps: how one becomes a sample, and what is tried on it."""

    kinds: Kinds
    refs: bool = False
    laws: Sequence[Law] = STATEFUL
    transforms: Sequence[str] = CHAINED
    scale: float = 1.0
    talks: bool = False

    def programs(self) -> st.SearchStrategy[Program]:
        """Programs to draw; what their own Refs hold in the end is among their results."""
        drawn = programs(self.kinds, refs=self.refs)
        return drawn if self.refs or self.talks else drawn.map(read_all)

    def chains(self) -> st.SearchStrategy[list[str]]:
        """Up to two transforms in a row."""
        if not self.transforms:
            return st.just([])
        return st.lists(st.sampled_from(self.transforms), max_size=2)

    def sample(self, program: Program, dtype: str = "float64") -> Sample:
        """A program as a jaxpr with arguments."""
        if self.talks:
            return lane_sample(program)
        return with_refs(program, dtype) if self.refs else program.sample(dtype)

    def twin(self, program: Program) -> list[Any]:
        """What NumPy makes of the program."""
        return lane_twin(program) if self.talks else program.twin(*program.arrays())


EVERYTHING = with_checkpoints(LOOP_KINDS)
FAMILIES: dict[str, Family] = {
    "core": Family(CORE_KINDS, laws=EVERY),
    "custom rules": Family(with_custom_rules(CORE_KINDS), laws=EVERY),
    "lanes": Family(with_collectives(CORE_KINDS), laws=EVERY, talks=True),
    "transforms within": Family(with_transforms(EVERYTHING), transforms=(), scale=DIFFERENCES),
    "state": Family(STATE_KINDS, refs=True),
    "everything": Family(EVERYTHING),
    "everything on refs": Family(with_custom_rules(EVERYTHING), refs=True),
    "carried": Family(with_planned(CARRIED_KINDS)),
    "followed": Family(with_followed(EVERYTHING), refs=True),
    "progress": Family(with_progress(LOOP_KINDS), refs=True),
    "while": Family(with_checkpoints(WHILE_KINDS), refs=True),
    "nests": Family(of_nests(with_checkpoints(WHILE_KINDS)), refs=True),
}
COMPILED = ("core", "state", "everything", "everything on refs", "while", "nests")


@dataclass(frozen=True)
class Chunk:
    """Programs of one family and one seed, on one tier."""

    tier: str
    family: str
    seed: int
    count: int


def without_a_step(program: Program) -> AbstractContextManager[object]:
    """Loops are planned, every other program's without one of the steps: which, the program's seed tells."""
    off = (program.seed // 2) % (len(STEPS) + 1)
    if program.seed % 2 == 0:
        return nullcontext()
    return planning(False) if off == len(STEPS) else planning(**{STEPS[off]: False})


def check_by_oracle(family: Family, program: Program, names: Sequence[str], law: Law) -> None:
    """The twin and the oracle agree, and the law holds after a chain of transforms."""
    with without_a_step(program):
        s = family.sample(program)
    with lanes(AXIS) if family.talks else nullcontext():
        assert_all_close(s.run(), family.twin(program), "eval", scale=family.scale)
        rng = np.random.default_rng(program.seed)
        for name in names:
            s = TRANSFORMS[name](s, rng)
        check_law_type(s)
        if any(float_inputs(s)) or law not in (
            check_law_jvp,
            check_law_linearize,
            check_law_transpose,
        ):
            law(s, program.seed)
    if family.talks:
        check_law_lanes(s, [AXIS], most=1)


def check_compiled(family: Family, program: Program, derivative: bool) -> None:
    """The compiled program computes what the oracle does: the program, or the jvp of its vjp."""
    if not derivative:
        with without_a_step(program):
            s = family.sample(program, "float32")
        check_law_lower_discharged(s)
        return
    rng = np.random.default_rng(program.seed)
    check_law_lower_discharged(jvp_of(vjp_of(family.sample(program), rng), rng))


def property_of(chunk: Chunk) -> Any:
    """What Hypothesis runs for a chunk, and the counter of its programs."""
    family, counted = FAMILIES[chunk.family], Counter[str]()

    picks: st.SearchStrategy[tuple[Any, ...]]
    check: Callable[..., None]
    if chunk.tier == "oracle":
        picks = st.tuples(family.chains(), st.sampled_from(list(family.laws)))
        check = check_by_oracle
    else:
        picks = st.tuples(st.booleans())
        check = check_compiled

    @settings(
        max_examples=chunk.count,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @seed(chunk.seed)
    @given(family.programs(), picks)
    def agrees(program: Program, pick: tuple[Any, ...]) -> None:
        check(family, program, *pick)
        counted["programs"] += 1

    return agrees, counted


def run_chunk(chunk: Chunk) -> tuple[int, str]:
    """How many programs agreed, or 0 and the failure, for which programs are drawn again until they are small."""
    if chunk.tier == "gate":
        return run_gate(chunk)
    agrees, counted = property_of(chunk)
    try:
        agrees()
    except BaseException:
        return 0, traceback.format_exc()
    return counted["programs"], ""


def run_gate(chunk: Chunk) -> tuple[int, str]:
    """How many random loops stay in place, or 0 and the first that does not."""
    try:
        for number in range(chunk.count):
            seed = chunk.seed * CHUNKS["gate"] + number
            if seed % 4 == 0:
                random_layers.assert_in_place(random_layers.draw(seed), seed)
            else:
                random_gate.assert_in_place(random_gate.draw(seed), seed)
    except BaseException:
        return 0, traceback.format_exc()
    return chunk.count, ""


def chunks(
    oracle: int, compiled: int, gate: int, first_seed: int, families: Sequence[str]
) -> Iterator[Chunk]:
    """The work, tier by tier, families in turn."""
    number = first_seed
    for tier, total, names in (
        ("oracle", oracle, [name for name in FAMILIES if name in families]),
        ("compiled", compiled, [name for name in COMPILED if name in families]),
        ("gate", gate, ["random loops"]),
    ):
        if total and not names:
            sys.exit(f"none of the families {', '.join(families)} is among those that are {tier}")
        size = CHUNKS[tier]
        for k in range(-(-total // size)):
            yield Chunk(tier, names[k % len(names)], number, min(size, total - k * size))
            number += 1


class Report:
    """Counts so far, and failures as they come."""

    def __init__(self) -> None:
        self.start = time.monotonic()
        self.counts: Counter[str] = Counter()
        self.failures: list[Chunk] = []

    def add(self, chunk: Chunk, count: int, failure: str) -> None:
        self.counts[chunk.tier] += count
        seconds = time.monotonic() - self.start
        print(
            f"seed {chunk.seed}: {count} {chunk.tier} programs of {chunk.family}; {dict(self.counts)} in all, "
            f"{sum(self.counts.values()) / seconds:.1f} a second",
            flush=True,
        )
        if failure:
            self.failures.append(chunk)
            print(f"{chunk} FAILED\n{failure}", flush=True)


def collect_rarely() -> None:
    """Look for cycles a hundred times less often than Python would: programs are many small objects, soon gone."""
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)


def run(work: Iterator[Chunk], processes: int, seconds: float) -> Report:
    """Run chunks side by side, until all are done or the time is up."""
    report = Report()
    pool = partial(
        ProcessPoolExecutor,
        mp_context=get_context("spawn"),
        max_tasks_per_child=10,
        initializer=collect_rarely,
    )
    with pool(processes) as executor:
        running: dict[Future[tuple[int, str]], Chunk] = {}
        for chunk in work:
            if time.monotonic() - report.start > seconds:
                break
            running[executor.submit(run_chunk, chunk)] = chunk
            while len(running) >= processes:
                for done in wait(running, return_when=FIRST_COMPLETED).done:
                    report.add(running.pop(done), *done.result())
        for done, chunk in running.items():
            report.add(chunk, *done.result())
    return report


def main(arguments: Sequence[str]) -> int:
    """Run the session; 1 if anything disagreed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--oracle", type=int, default=0, help="how many programs the oracle runs")
    parser.add_argument("--compiled", type=int, default=0, help="how many are compiled")
    parser.add_argument("--gate", type=int, default=0, help="how many are read for copies")
    parser.add_argument(
        "--family", action="append", choices=list(FAMILIES), help="only these; all unless told"
    )
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**9, help="the first seed")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no chunk later")
    given = parser.parse_args(arguments)
    families = given.family or list(FAMILIES)
    work = chunks(given.oracle, given.compiled, given.gate, given.seed, families)
    report = run(work, given.processes, given.seconds)
    print(f"{dict(report.counts)} programs; {len(report.failures)} chunks failed", flush=True)
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
