"""Loops that people write, forward and in reverse, beside jax; the LSTM beside torch too."""

from typing import Any

from benchmarks.loops.inputs import WRT, watched
from benchmarks.model import Benchmark, Case, Contender, GeomeanLimit, Limit, NoCopies, RatioLimit

HERE = "benchmarks.loops"
INPLACE = "benchmarks.inplace"
LONG = (16_000, 32_000, 64_000)
SIZES = {
    "recurrence": LONG,
    "lstm": (64, 128, 256),
    "edit_distance": (100, 200, 400),
    "edit_table": (100, 200, 400),
    "floyd_warshall": (32, 64, 128),
    "shortest_paths": (32, 64, 128),
    "linear": LONG,
    "n_body": (100, 200, 400),
    "life": (64, 128, 256),
    "histogram": LONG,
    "rk4": (1_000, 2_000, 4_000),
    "midpoint": (1_000, 2_000, 4_000),
    "prefix_sums": LONG,
    "ring": LONG,
    "sieve": LONG,
    "outputs": (2_500, 5_000, 10_000),
    "weights": (128, 256, 512),
    "three_deep": (24, 36, 48),
    "group": (250, 500, 1_000),
    "lanes": (250, 500, 1_000),
    "transport": (64, 128, 256),
}
EXPONENTS = {
    "edit_distance": 2,
    "edit_table": 2,
    "floyd_warshall": 3,
    "shortest_paths": 3,
    "life": 2,
    "three_deep": 3,
    "transport": 2,
}
"""Of the number of elements that a loop works on, where it is not the size."""

OTHERS = {
    "lstm": ("by hand",),
    "edit_table": ("at_set",),
    "histogram": ("no loop",),
    "prefix_sums": ("at_set", "no loop"),
    "outputs": ("refs",),
    "weights": ("refs",),
    "three_deep": ("refs", "at_set"),
    "group": ("by hand",),
}
"""What jax is run as beside its best spelling."""

OWN_ROW = ("edit_table", "three_deep", "shortest_paths", "outputs", "weights", "group")
FORWARD = "forward of a loop"
GRADIENT = "any other gradient of a loop"
GATE = "in place means in place"
BY_HAND = ("linear", "shortest_paths")  # in C too
BESIDE_C = "in place, beside C"


def jax_contender(spelling: str, loop: str, transform: str) -> Contender:
    """One spelling of jax; the best is called jax."""
    options = {"spelling": spelling, "loop": loop, "transform": transform}
    return Contender(f"jax {spelling}".strip(), "jax", f"{HERE}.jax_others:build", options)


def peers(loop: str, transform: str) -> tuple[Contender, ...]:
    """All that a loop is run beside."""
    spellings = OTHERS.get(loop, ())
    if loop != "three_deep":
        spellings = ("", *spellings)
    found = [jax_contender(spelling, loop, transform) for spelling in spellings]
    if loop == "lstm":
        options: dict[str, Any] = {"transform": transform}
        found.append(Contender("torch", "torch", f"{HERE}.torch_lstm:build", options))
    if loop in BY_HAND:
        options = {"loop": loop, "transform": transform}
        found.append(Contender("C", "c", f"{HERE}.c_loops:build", options))
    return tuple(found)


def own_limits(loop: str, transform: str) -> tuple[Limit, ...]:
    """The lines of the design that speak of one loop."""
    last = SIZES[loop][-1]
    match loop, transform:
        case "three_deep", _:
            row = "forward of loops with several reads and writes: three deep, 48^3"
            return tuple(RatioLimit("run", f"jax {p}", 0.005, row, last) for p in OTHERS[loop])
        case "edit_table", _:
            forward = transform == "forward"
            at_most, row = (1.0, FORWARD) if forward else (0.9, GRADIENT)
            return (RatioLimit("run", "jax at_set", at_most, row),)
        case "outputs", "gradient":
            row = "gradient of outputs written through a Ref, T = 10,000, d = 64"
            return (RatioLimit("run", "jax refs", 0.005, row, last),)
        case "weights", "gradient":
            row = "loop-invariant weights read from a Ref, T = 512, d = 256"
            return (
                RatioLimit("run", "jax refs", 0.05, row, last),
                RatioLimit("temp_bytes", "jax refs", 0.02, row, last),
            )
        case "lstm", "gradient":
            row = "gradient of an LSTM, T = 256"
            return (
                RatioLimit("run", "jax", 0.7, row, last),
                RatioLimit("run", "torch", 0.7, row, last),
                RatioLimit("temp_bytes", "jax", 0.5, row, last),
            )
        case "group", _:
            row = "cond in groups, one lane in ten on the dear branch"
            staging = RatioLimit("staging", "jax", 1.2, f"{row}: lower and compile", last)
            return (RatioLimit("run", "jax", 0.05, row, last), staging)
    return ()


def limits(loop: str, transform: str) -> tuple[Limit, ...]:
    """What a case has to keep."""
    found = list(own_limits(loop, transform))
    if loop in BY_HAND:
        found.append(RatioLimit("run", "C", 2.0, BESIDE_C))
    if loop not in OWN_ROW:
        forward = transform == "forward"
        found.append(
            RatioLimit("run", "jax", 1.0 if forward else 0.9, FORWARD if forward else GRADIENT)
        )
        if not forward:
            found.append(RatioLimit("temp_bytes", "jax", 1.0, f"{GRADIENT}, bytes"))
        found.append(RatioLimit("staging", "jax", 1.0, "trace, lower and compile", SIZES[loop][-1]))
    if watched(loop, 2):
        found.append(NoCopies(GATE))
    return tuple(found)


def case(loop: str, transform: str) -> Case:
    """One transform of one loop."""
    options = {"loop": loop, "transform": transform}
    power = EXPONENTS.get(loop, 1)
    reference = Contender("numpy", "numpy", f"{HERE}.numpy_loops:build", options)
    return Case(
        name=f"{loop}/{transform}",
        sizes=SIZES[loop],
        steps=tuple(size**power for size in SIZES[loop]),
        ours=Contender("fiveloop", "fiveloop", f"{HERE}.fiveloop_loops:build", options),
        peers=peers(loop, transform),
        reference=reference if transform == "forward" else None,
        limits=limits(loop, transform),
        rtol=1e-3,
        compiles=True,
    )


def inplace_case(
    loop: str, transform: str, sizes: tuple[int, ...], at_most: float, row: str
) -> Case:
    """A loop of the in-place benchmark that the design has a line for."""
    options = {"loop": loop, "transform": transform}

    def contender(spelling: str) -> Contender:
        given = {"spelling": spelling, **options}
        return Contender(f"jax {spelling}", "jax", f"{INPLACE}.jax_loops:build", given)

    spellings = ("refs", "at_set") if loop == "swap" else ("refs", "at_set", "scan")
    found = tuple(RatioLimit("run", f"jax {p}", at_most, row, sizes[-1]) for p in spellings[:2])
    return Case(
        name=f"in_place_{loop}/{transform.replace('primal', 'forward')}",
        sizes=sizes,
        steps=tuple((side - 1) ** 2 for side in sizes) if loop == "nested" else (),
        ours=Contender("fiveloop", "fiveloop", f"{INPLACE}.fiveloop_loops:build", options),
        peers=tuple(map(contender, spellings)),
        reference=Contender("numpy", "numpy", f"{INPLACE}.numpy_loops:build", options),
        limits=(*found, NoCopies(GATE)),
        compiles=True,
    )


FROM_INPLACE = (
    inplace_case(
        *("swap", "primal", (4_000, 8_000, 16_000), 0.01),
        row="forward of loops with several reads and writes: swap, n = 16,000",
    ),
    inplace_case(
        *("prefix", "gradient", (4_000, 8_000, 16_000), 0.02),
        row="gradient of in-place recurrence, n = 16,000",
    ),
    inplace_case(
        *("nested", "gradient", (50, 100, 200), 0.02),
        row="gradient of nested in-place update 200 x 200",
    ),
)
CASES = (
    *(case(loop, "forward") for loop in SIZES if loop not in ("outputs", "weights")),
    *(case(loop, "gradient") for loop in WRT),
    *FROM_INPLACE,
)
OTHER_GRADIENTS = tuple(f"{loop}/gradient" for loop in WRT if loop not in (*OWN_ROW, "lstm"))

BENCHMARK = Benchmark(
    "loops",
    "loops that people write, forward and gradient, beside jax's best spelling of each",
    CASES,
    (GeomeanLimit("temp_bytes", "jax", 0.5, f"{GRADIENT}, bytes", OTHER_GRADIENTS),),
)
