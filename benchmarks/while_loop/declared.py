"""`while` beside jax and Equinox: forward, taped, and with a bounded number of saved states."""

from importlib.metadata import version
from typing import Any

from benchmarks.model import Benchmark, Case, Contender, GrowthLimit, Limit, RatioLimit
from benchmarks.while_loop.inputs import SAVED, STEPS

HERE = "benchmarks.while_loop"
SLOTS = (10, 100, 1_000)
LENGTHS = (2_500, 5_000, 10_000)
LANES = (100, 300, 1_000)
IN_PLACE = (12_500, 25_000, 50_000, 100_000)
ANY_LENGTH = (100, 1_000, 10_000, 100_000, 1_000_000)
ANY_SLOTS = (2, 10, 100, 1_000)

OF_EQUINOX = (
    {10: 0.2, SAVED: 0.1, 1_000: 0.2}
    if version("jaxlib").startswith(("0.10.", "0.11."))
    else {10: 0.85, SAVED: 0.65, 1_000: 0.85}
)
"""What a checkpointed loop may take of Equinox's time: the loops of its schedule are fast from jaxlib 0.12 on."""

CHECKPOINTED = "10,000-step checkpointed loop, same memory, known and unknown count"
TAPED = "taped gradient of `while`, 10,000 steps"
FORWARD = "forward of a loop"
FLAT = "compile time of a checkpointed loop, whatever its length and slots"
GATE = "in place means in place"


def ours(loop: str, transform: str, **options: Any) -> Contender:
    """Our contender."""
    given = {"loop": loop, "transform": transform, **options}
    return Contender("fiveloop", "fiveloop", f"{HERE}.fiveloop_loops:build", given)


def jax(spelling: str, loop: str, transform: str, **options: Any) -> Contender:
    """One spelling in jax; the plain one is called jax."""
    given = {"spelling": spelling, "loop": loop, "transform": transform, **options}
    name = spelling if spelling.startswith("equinox") else f"jax {spelling}".strip()
    return Contender(name, "jax", f"{HERE}.jax_loops:build", given)


def checkpointed(loop: str, known: bool) -> Case:
    """Value and gradient of 10,000 steps with so many saved states; two loops nested by hand are shown beside it.

    These run 20,000 steps forward, as they keep 100 states and the residuals of 100 steps. With 100 states alone no
    schedule runs fewer than 10,000 for the value, 24,747 from saved states and 10,000 for the way back: 44,747.
    """
    options: dict[str, Any] = {"loop": loop, "transform": "gradient", "steps": STEPS}
    row = CHECKPOINTED
    limits: list[Limit] = [
        RatioLimit("run", "equinox", OF_EQUINOX[slots], row, slots) for slots in SLOTS
    ]
    limits.append(RatioLimit("temp_bytes", "equinox", 1.0, row))
    return Case(
        name=f"checkpointed_{'known' if known else 'unknown'}/{loop}",
        sizes=SLOTS,
        ours=ours(bound="checkpoints", known=known, **options),
        peers=(jax("equinox", **options), jax("by hand", **options)),
        limits=tuple(limits),
        rtol=1e-3,
        compiles=True,
    )


def same_memory(loop: str) -> Case:
    """Value and gradient with a state before each 100 steps, and the residuals of 100: the memory of the nesting."""
    return Case(
        name=f"same_memory/{loop}",
        sizes=LENGTHS,
        ours=ours(loop, "gradient", bound="periodic", known=True),
        peers=(jax("by hand", loop, "gradient"),),
        limits=(
            RatioLimit("run", "jax by hand", 1.25, CHECKPOINTED),
            RatioLimit("temp_bytes", "jax by hand", 1.0, CHECKPOINTED),
        ),
        rtol=1e-3,
        compiles=True,
    )


def taped(loop: str) -> Case:
    """Value and gradient of a loop that is bounded by as many steps as it takes."""
    scan = ours(loop, "gradient", known=True)
    return Case(
        name=f"taped/{loop}",
        sizes=LENGTHS,
        ours=ours(loop, "gradient", bound="max_steps"),
        peers=(
            Contender("our scan", scan.side, scan.builder, scan.options),
            jax("equinox bounded", loop, "gradient"),
        ),
        limits=(RatioLimit("run", "our scan", 1.1, TAPED, LENGTHS[-1]),),
        rtol=1e-3,
        compiles=True,
    )


def forward(loop: str) -> Case:
    """The loop alone."""
    return Case(
        name=f"forward/{loop}",
        sizes=LENGTHS,
        ours=ours(loop, "forward"),
        peers=(jax("", loop, "forward"),),
        limits=(RatioLimit("run", "jax", 1.0, FORWARD),),
        rtol=1e-3,
        compiles=True,
    )


LANES_FORWARD = Case(
    name="lanes/forward",
    sizes=LANES,
    ours=ours("lanes", "lanes"),
    peers=(jax("", "lanes", "lanes"),),
    limits=(RatioLimit("run", "jax", 1.0, FORWARD),),
    rtol=1e-3,
    compiles=True,
)


def in_place(loop: str, peers: tuple[Contender, ...] = ()) -> Case:
    """Value and gradient of a loop that writes in place, without a bound that the user gives."""
    return Case(
        name=f"in_place/{loop}",
        sizes=IN_PLACE,
        ours=ours(loop, "gradient"),
        peers=peers,
        limits=(GrowthLimit("run", 1.1, GATE), GrowthLimit("temp_bytes", 1.1, GATE)),
        rtol=1e-3,
    )


def staged(name: str, sizes: tuple[int, ...], **options: Any) -> Case:
    """Value and gradient of a loop whose compile time may not grow."""
    return Case(
        name=f"staging/{name}",
        sizes=sizes,
        ours=ours("scalar", "gradient", bound="checkpoints", **options),
        peers=(),
        limits=(GrowthLimit("staging", 0.05, FLAT),),
        compiles=True,
    )


CASES = (
    *(checkpointed(loop, known) for loop in ("scalar", "dense") for known in (True, False)),
    *(same_memory(loop) for loop in ("scalar", "dense")),
    *(taped(loop) for loop in ("scalar", "dense")),
    *(forward(loop) for loop in ("scalar", "dense")),
    LANES_FORWARD,
    in_place("chase", (jax("at_set", "chase", "gradient"),)),
    in_place("heap"),
    staged("length", ANY_LENGTH, saved=SAVED),
    staged("slots", ANY_SLOTS, steps=STEPS),
)

BENCHMARK = Benchmark(
    "while", "loops that run until their state says so, beside jax and Equinox", CASES
)
"""`while`, forward and in reverse."""
