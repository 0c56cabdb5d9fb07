"""Loops over single elements of Refs beside jax: five transforms, from 8,000 to 128,000 steps."""

from benchmarks.inplace.declared import GATE, SIDES, SIZES
from benchmarks.model import Benchmark, Case, Contender, GrowthLimit, Limit, NoCopies, RatioLimit
from benchmarks.state.inputs import NEW, OLD, TRANSFORMS, levels

HERE = "benchmarks.state"
EXPONENT = 1.2
ROW = "R[i] = sin(R[i-1]) at n = 32,000"


def contender(spelling: str, loop: str, transform: str) -> Contender:
    """One spelling of jax."""
    options = {"spelling": spelling, "loop": loop, "transform": transform}
    return Contender(f"jax {spelling}", "jax", f"{HERE}.jax_loops:build", options)


def steps(loop: str) -> tuple[int, ...]:
    """What growth is measured against, where it is not the size."""
    if loop == "nested":
        return tuple((side - 1) ** 2 for side in SIDES)
    return tuple(n * levels(n) for n in SIZES) if loop == "heap" else ()


def ratios(loop: str, transform: str) -> tuple[Limit, ...]:
    """The limits beside jax."""
    if (loop, transform) != ("sine", "gradient"):
        return ()
    return (
        RatioLimit("run", "jax refs", 0.01, ROW, 32_000),
        RatioLimit("run", "jax scan", 2.0, ROW, 32_000),
    )


def case(loop: str, transform: str) -> Case:
    """One transform of one loop."""
    options = {"loop": loop, "transform": transform}
    spellings = ("refs", "at_set", "scan") if loop == "sine" else ("refs", "at_set")
    return Case(
        name=f"{loop}/{transform}",
        sizes=SIDES if loop == "nested" else SIZES,
        steps=steps(loop),
        ours=Contender("fiveloop", "fiveloop", f"{HERE}.fiveloop_loops:build", options),
        peers=tuple(contender(s, loop, transform) for s in spellings),
        limits=(
            *ratios(loop, transform),
            GrowthLimit("run", EXPONENT, GATE),
            GrowthLimit("temp_bytes", EXPONENT, GATE),
            NoCopies(GATE),
        ),
        cap=0.3,
        seconds=5.0,
    )


BENCHMARK = Benchmark(
    "state",
    "loops over single elements of Refs, in five transforms, beside jax's Refs and `.at[].set`",
    tuple(case(loop, transform) for loop in (*OLD, *NEW) for transform in TRANSFORMS),
)
