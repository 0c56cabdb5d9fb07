"""Arguments of the loops: what they read, where they write, and how large they are."""

import numpy as np

from benchmarks.inplace import inputs

OLD = ("prefix", "two_refs", "swap", "nested", "histogram")
NEW = ("sine", "edit", "heap", "cycles", "strided", "gather")
TRANSFORMS = ("primal", "jvp", "gradient", "jvp_of_gradient", "checkpoint")

WINDOW, STRIDE = 4, 3  # of the strided loop
NEAR = (
    1024  # elements: a step round the cycle leads into its own window of so many, or into the next
)
INDEXED = ("cycles", "gather")


def levels(size: int) -> int:
    """How deep a heap of that many elements is, its root aside."""
    return max(1, size.bit_length() - 1)


def one_cycle(size: int, draw: np.random.Generator) -> np.ndarray:
    """A permutation that is one cycle, whose steps stay near: growth is the loop's then, and not the caches'."""
    parts = [draw.permutation(part) for part in np.array_split(np.arange(size), -(-size // NEAR))]
    order = np.concatenate(parts)
    after = np.empty(size, np.int32)
    after[order] = np.roll(order, -1)
    return after


def shapes(loop: str, size: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape of the input that derivatives are taken of, and of the result."""
    return inputs.shapes(loop, size) if loop in OLD else ((size,), (size,))


def arguments(loop: str, size: int) -> dict[str, np.ndarray]:
    """x, a tangent v of x, weights w of the result, and indices k known only at run time."""
    data = inputs.arguments(loop if loop in OLD else "prefix", size)
    draw = np.random.default_rng(size)
    if loop == "heap":
        data["h"] = np.sort(draw.standard_normal(size)).astype(np.float32)
    if loop == "cycles":
        data["k"] = one_cycle(size, draw)
    if loop == "gather":
        data["k"] = draw.integers(0, size, size).astype(np.int32)
    return data


def needed(loop: str, transform: str, size: int) -> dict[str, np.ndarray]:
    """The arguments that one transform of a loop uses."""
    extra = {"primal": "", "jvp": "v", "gradient": "w", "jvp_of_gradient": "wv", "checkpoint": "w"}
    wanted = "xkh" + extra[transform]
    return {name: array for name, array in arguments(loop, size).items() if name in wanted}
