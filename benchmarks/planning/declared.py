"""Loops as planning makes them, beside the same loops without each of its steps, and with everything saved.

No planning step may make a loop slower than it is without that step. The cost models of planning are fitted to the
loops of `fitted`; those of `held out` were set aside before.
"""

from benchmarks.model import Benchmark, Case, Contender, RatioLimit
from benchmarks.planning.fitted import FITTED
from benchmarks.planning.held_out import HELD_OUT
from benchmarks.planning.loops import Loops
from benchmarks.planning.programs import CHOICES

ROW = "planning's defaults"


def case(group: str, name: str) -> Case:
    """One loop, beside itself by other choices."""

    def contender(choice: str) -> Contender:
        options = {"group": group, "name": name, "choice": choice}
        return Contender(choice, "fiveloop", "benchmarks.planning.programs:build", options)

    return Case(
        f"{group}/{name}",
        (1,),
        contender("planned"),
        tuple(map(contender, CHOICES)),
        limits=tuple(RatioLimit("run", choice, 1.03, ROW) for choice in CHOICES),
        rtol=1e-3,
        seconds=6.0,
    )


def cases(group: str, loops: Loops) -> tuple[Case, ...]:
    """All loops of a group."""
    return tuple(case(group, name) for name in loops)


BENCHMARK = Benchmark(
    "planning",
    "loops with each planning step on and off",
    (*cases("fitted", FITTED), *cases("held out", HELD_OUT)),
)
