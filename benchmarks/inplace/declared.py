"""The six in-place loops beside jax: primal, gradient and jvp of gradient, from 8,000 to 128,000 steps."""

from benchmarks.inplace.inputs import LOOPS, TRANSFORMS
from benchmarks.model import Benchmark, Case, Contender, GrowthLimit, Limit, NoCopies, RatioLimit

HERE = "benchmarks.inplace"
SIZES = (8_000, 16_000, 32_000, 64_000, 128_000)
SIDES = (90, 126, 200, 252, 358)  # of the nested loop: about as many cells
SCANNED = ("prefix", "two_refs", "nested", "rows")
BY_HAND = ("prefix", "swap", "nested", "histogram")  # in C too
ONE_WRITE = ("prefix", "two_refs", "histogram", "rows")

GATE = "in place means in place"
EXPONENT = 1.15  # how an exponent of 1 is read: what caches and fixed costs do to it


def jax_contender(spelling: str, loop: str, transform: str) -> Contender:
    """One spelling of jax."""
    options = {"spelling": spelling, "loop": loop, "transform": transform}
    return Contender(f"jax {spelling}", "jax", f"{HERE}.jax_loops:build", options)


def both(at_most: float, row: str, size: int | None = None) -> tuple[Limit, ...]:
    """A limit on the run time beside each of jax's in-place spellings."""
    peers = ("jax refs", "jax at_set")
    return tuple(RatioLimit("run", peer, at_most, row, size) for peer in peers)


def ratio_limits(loop: str, transform: str) -> tuple[Limit, ...]:
    """The lines of the design that a case answers."""
    match loop, transform:
        case "prefix", "gradient":
            return both(0.02, "gradient of in-place recurrence, n = 16,000", 16_000)
        case "nested", "gradient":
            return both(0.02, "gradient of nested in-place update 200 x 200", 200)
        case "swap", "primal":
            return both(
                0.01, "forward of loops with several reads and writes: swap, n = 16,000", 16_000
            )
        case _, "primal" if loop in ONE_WRITE:
            return both(1.0, "forward of loops with one write a step")
        case _, "gradient" | "jvp_of_gradient":
            return both(0.9, "any other gradient of a loop")
    return ()


def case(loop: str, transform: str) -> Case:
    """One transform of one loop."""
    nested = loop == "nested"
    options = {"loop": loop, "transform": transform}
    spellings = ("refs", "at_set", "scan") if loop in SCANNED else ("refs", "at_set")
    peers = [jax_contender(spelling, loop, transform) for spelling in spellings]
    beside_c: tuple[Limit, ...] = ()
    if loop in BY_HAND and transform != "jvp_of_gradient":
        peers.append(Contender("C", "c", f"{HERE}.c_loops:build", options))
        beside_c = (RatioLimit("run", "C", 2.0, "in place, beside C"),)
    return Case(
        name=f"{loop}/{transform}",
        sizes=SIDES if nested else SIZES,
        steps=tuple((side - 1) ** 2 for side in SIDES) if nested else (),
        ours=Contender("fiveloop", "fiveloop", f"{HERE}.fiveloop_loops:build", options),
        peers=tuple(peers),
        reference=Contender("numpy", "numpy", f"{HERE}.numpy_loops:build", options),
        limits=(
            *ratio_limits(loop, transform),
            *beside_c,
            GrowthLimit("run", EXPONENT, GATE),
            GrowthLimit("temp_bytes", EXPONENT, GATE),
            NoCopies(GATE),
        ),
    )


BENCHMARK = Benchmark(
    "inplace",
    "six in-place loops, forward, gradient and jvp of gradient, beside jax's Refs, `.at[].set` and scan",
    tuple(case(loop, transform) for loop in LOOPS for transform in TRANSFORMS),
)
