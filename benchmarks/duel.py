"""Running one case: build every contender, check that they agree, then time them in alternating rounds."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from benchmarks.agree import disagreements
from benchmarks.model import NO_SAVING, Case, Contender, Saving, task
from benchmarks.pool import WorkerFailed
from benchmarks.sides.base import Staging
from benchmarks.stats import Ratio, Summary, paired_ratio, summarise
from benchmarks.worker import Built


class Orders(Protocol):
    """Whatever carries orders to the sides."""

    def ask(self, side: str, method: str, /, *arguments: object, timeout: float = ...) -> object:
        """Send an order to a side and give its answer."""


@dataclass(frozen=True)
class Settings:
    """How much to measure; `pace` scales the seconds that a case allows itself and its peers."""

    rounds: int = 31
    round_seconds: float = 0.01
    lower_rounds: int = 5
    pace: float = 1.0
    timeout: float = 240.0


@dataclass
class Row:
    """All that was measured of one contender at one size; `staging` is tracing, lowering and compiling together."""

    case: str
    size: int
    steps: int
    contender: str
    run: Summary | None = None
    trace_lower: Summary | None = None
    compile: float | None = None
    staging: Summary | None = None
    temp_bytes: int | None = None
    saving: Saving = NO_SAVING
    copies: int | None = None
    ratio: Ratio | None = None
    lower_ratio: Ratio | None = None
    staging_ratio: Ratio | None = None
    note: str = ""
    trace: str = ""
    wrong: bool = False

    def metric(self, name: str) -> float | None:
        """One number by the name that limits use."""
        if name in ("run", "trace_lower", "staging"):
            summary: Summary | None = getattr(self, name)
            return None if summary is None else summary.median
        if name == "of_allowed":
            allowed = self.saving.allowed_bytes
            return None if not allowed or self.temp_bytes is None else self.temp_bytes / allowed
        value: float | None = getattr(self.saving if name == "saved_bytes" else self, name)
        return value


@dataclass
class Runner:
    """Runs cases on a pool of sides."""

    pool: Orders
    settings: Settings
    say: Callable[[str], None] = lambda line: None
    without: frozenset[str] = frozenset()
    samples: dict[str, list[float]] = field(default_factory=dict)

    def case(self, case: Case, sizes: tuple[int, ...] | None = None) -> list[Row]:
        """Every row of a case; a contender that failed or became too slow gets no larger sizes."""
        rows: list[Row] = []
        out = dict.fromkeys(self.without, "left out")
        for size in sizes or case.sizes:
            rows_here = self.size(case, size, out)
            for row in rows_here:
                if row.run is None:
                    out.setdefault(row.contender, f"failed at n = {size}")
                elif (
                    row.run.median > case.cap * self.settings.pace
                    and row.contender != case.ours.name
                ):
                    out[row.contender] = f"a run took {row.run.median:.2g} s at n = {size}"
            rows += rows_here
        return rows

    def size(self, case: Case, size: int, out: dict[str, str]) -> list[Row]:
        """Every contender's row at one size."""
        present = [c for c in case.contenders if c.name not in self.without]
        rows = {c.name: Row(case.name, size, case.steps_of(size), c.name) for c in present}
        for name in out.keys() & rows.keys():
            rows[name].note = f"skipped: {out[name]}"
        active = [c for c in present if c.name not in out]
        built = {c.name: b for c in active if (b := self.build(c, size, rows[c.name])) is not None}
        active = [c for c in active if c.name in built]
        self.check(case, size, active, rows)
        self.race(case, size, active, built, rows)
        self.staging(case, active, size, rows)
        self.compare(case, active, rows)
        self.drop(active)
        return list(rows.values())

    def build(self, contender: Contender, size: int, row: Row) -> Built | None:
        """Build one contender, or note why it could not be built."""
        self.say(f"{row.case} n={size} {contender.name}: build")
        try:
            built = self.pool.ask(
                contender.side, "build", task(contender, size), timeout=self.settings.timeout
            )
        except WorkerFailed as failure:
            row.note, row.trace = f"failed: {str(failure).splitlines()[0][:160]}", failure.trace
            return None
        assert isinstance(built, Built)
        row.compile, row.temp_bytes, row.copies = built.compile, built.temp_bytes, built.copies
        row.saving = built.saving
        return built

    def check(self, case: Case, size: int, active: list[Contender], rows: dict[str, Row]) -> None:
        """Compare every contender's results with the reference, or with the first contender's where there is none."""
        if not active:
            return
        judge = case.reference or active[0]
        if case.reference is not None:
            self.pool.ask(judge.side, "build", task(judge, size), timeout=self.settings.timeout)
        want = self.results(judge)
        for contender in active:
            if contender is judge:
                continue
            wrong = disagreements(self.results(contender), want, case.rtol)
            if wrong:
                rows[contender.name].wrong = True
                rows[contender.name].note = f"WRONG: {'; '.join(wrong[:3])}"
        if case.reference is not None:
            self.pool.ask(judge.side, "drop", judge.name)

    def results(self, contender: Contender) -> dict[str, np.ndarray]:
        """A contender's results."""
        answer = self.pool.ask(
            contender.side, "results", contender.name, timeout=self.settings.timeout
        )
        assert isinstance(answer, dict)
        return answer

    def race(
        self,
        case: Case,
        size: int,
        active: list[Contender],
        built: dict[str, Built],
        rows: dict[str, Row],
    ) -> None:
        """Time all contenders, one after the other in each round; the first round of a process only warms.

        A round stands for its least time: other work on the machine only adds to one. Of several processes each
        counts once, by the median of its rounds: these agree with each other better than with the next process.
        """
        self.samples = {c.name: [] for c in active}
        if not case.timed:
            for name, b in built.items():
                rows[name].run = summarise([b.run])
            return
        once = sum(max(b.run, self.settings.round_seconds) for b in built.values())
        seconds = case.seconds * self.settings.pace / case.processes
        rounds = min(self.settings.rounds, max(3, int(seconds / max(once, 1e-9))))
        least = {c.name: built[c.name].run for c in active}
        for process in range(case.processes):
            here = [self.again(c, process, size) if process else c for c in active]
            found: dict[str, list[float]] = {c.name: [] for c in active}
            for _ in range(rounds + 1):
                for contender in here:
                    times = self.sample(contender)
                    least[contender.name] = min(least[contender.name], *times)
                    found[contender.name].append(min(times))
            for name, (_, *warm) in found.items():
                self.samples[name] += [float(np.median(warm))] if case.processes > 1 else warm
            if process:
                self.drop(here)
        for name, samples in self.samples.items():
            rows[name].run = replace(summarise(samples), least=least[name])

    def again(self, contender: Contender, process: int, size: int) -> Contender:
        """A contender built once more, in another process of its side, which serves later cases, too."""
        other = replace(contender, side=f"{contender.side}:{process}")
        self.pool.ask(other.side, "build", task(other, size), timeout=self.settings.timeout)
        return other

    def drop(self, active: list[Contender]) -> None:
        """Let the processes forget what they have built."""
        for contender in active:
            self.pool.ask(contender.side, "drop", contender.name)

    def sample(self, contender: Contender) -> list[float]:
        """The times of one round of a contender."""
        seconds = self.settings.round_seconds
        times = self.pool.ask(contender.side, "sample", contender.name, seconds)
        assert isinstance(times, list)
        return times

    def staging(self, case: Case, active: list[Contender], size: int, rows: dict[str, Row]) -> None:
        """Time tracing and lowering, and compiling, as far as the case asks for it, in alternating rounds."""
        if not case.staged:
            return
        lower: dict[str, list[float]] = {c.name: [] for c in active}
        whole: dict[str, list[float]] = {c.name: [] for c in active}
        for _ in range(self.settings.lower_rounds):
            for contender in active:
                order = (task(contender, size), case.compiles)
                took = self.pool.ask(contender.side, "stage", *order, timeout=self.settings.timeout)
                if isinstance(took, Staging):
                    lower[contender.name].append(took.trace_lower)
                    if took.compile is not None:
                        whole[contender.name].append(took.trace_lower + took.compile)
        ours = case.ours.name
        for name in lower:
            rows[name].trace_lower, rows[name].lower_ratio = beside(lower, ours, name)
            rows[name].staging, rows[name].staging_ratio = beside(whole, ours, name)

    def compare(self, case: Case, active: list[Contender], rows: dict[str, Row]) -> None:
        """Give each peer's row the ratio of our run time to its own."""
        ours = self.samples.get(case.ours.name)
        if not ours:
            return
        for contender in active:
            if contender is not case.ours:
                rows[contender.name].ratio = paired_ratio(ours, self.samples[contender.name])


def beside(
    times: dict[str, list[float]], ours: str, name: str
) -> tuple[Summary | None, Ratio | None]:
    """One contender's times in a few numbers, and ours over them."""
    mine, its = times.get(ours, []), times[name]
    comparable = name != ours and its and len(its) == len(mine)
    return (
        summarise(its) if its else None,
        paired_ratio(mine, its) if comparable else None,
    )
