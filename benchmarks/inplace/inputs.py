"""Arguments of the six loops: what they read, where they write, and how large they are."""

import numpy as np

LOOPS = ("prefix", "two_refs", "swap", "nested", "histogram", "rows")
TRANSFORMS = ("primal", "gradient", "jvp_of_gradient")

DECAY = 0.9  # of the recurrences
DOWN, RIGHT = 0.3, 0.2  # what a cell of the nested loop passes to its two neighbours
COLUMNS = 16  # of the rows loop
ITEMS_PER_BIN = 8  # of the histogram, on average


def shapes(loop: str, size: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape of the input that derivatives are taken of, and of the result."""
    match loop:
        case "nested":
            return (size, size), (size, size)
        case "histogram":
            return (size,), (size // ITEMS_PER_BIN,)
        case "rows":
            return (size, COLUMNS), (size, COLUMNS)
        case _:
            return (size,), (size,)


def arguments(loop: str, size: int) -> dict[str, np.ndarray]:
    """x, a tangent v of x, weights w of the result, and indices k known only at run time."""
    draw = np.random.default_rng(size)
    read, written = shapes(loop, size)
    data = {
        "x": draw.standard_normal(read).astype(np.float32),
        "v": draw.standard_normal(read).astype(np.float32),
        "w": draw.uniform(0.5, 1.5, written).astype(np.float32),
    }
    if loop in ("swap", "histogram"):
        data["k"] = draw.integers(0, written[0], size).astype(np.int32)
    return data


def needed(loop: str, transform: str, size: int) -> dict[str, np.ndarray]:
    """The arguments that one transform of a loop uses."""
    extra = {"primal": "", "gradient": "w", "jvp_of_gradient": "wv"}[transform]
    return {name: array for name, array in arguments(loop, size).items() if name in "xk" + extra}
