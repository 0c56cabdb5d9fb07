"""Arguments of the loops, by size, and what gradients are taken of."""

from typing import Any

import numpy as np

Arrays = dict[str, Any]

WRT = {
    "recurrence": ("x", "p"),
    "lstm": ("wx", "wh", "b"),
    "edit_distance": ("a", "b"),
    "edit_table": ("a", "b"),
    "floyd_warshall": ("d",),
    "shortest_paths": ("d",),
    "linear": ("a", "x"),
    "n_body": ("pos", "vel"),
    "histogram": ("x",),
    "rk4": ("y", "p"),
    "midpoint": ("y", "v", "u"),
    "prefix_sums": ("x",),
    "ring": ("x",),
    "outputs": ("x",),
    "weights": ("weights", "h"),
    "group": ("x",),
    "lanes": ("x",),
    "transport": ("kernel", "mass"),
}
"""The loops that have a gradient, and with respect to which arguments."""

COUNTED = ("n_body", "rk4", "midpoint", "weights")
"""The loops whose size is a number of steps that no argument tells."""

FORWARD_ONLY = ("life", "sieve", "three_deep")

TAPS = {
    11: 0.3,
    7: 0.2,
    3: 0.5,
}  # of the ring buffer: by how many steps each is late, and its weight
PLACES = 12
GAP = 0.7  # what a letter left out costs
ITEMS_PER_BIN = 8  # of the histogram, on average
GENERATIONS = 64  # of the game of life
BATCH, WIDTH = 32, 128  # of the LSTM
BODIES, PERIOD, SOFTENING = 32, 0.01, 0.1
TIME_STEP = 0.01  # of the ODEs
PATHS, UNKNOWNS, HIDDEN = 32, 8, 32  # of the neural ODE
ROW = 64  # of the rows written through a Ref
CELLS = 256  # of the lanes in the second axis
SCALINGS = 100  # of the plan of optimal transport
STATE = 256  # of the loop with weights in a Ref
PASSED = 0.2  # what a cell of the cube passes to each neighbour
LANE, DEAR_STEPS, DEAR_SHARE = 64, 64, 10  # of the lanes: elements, steps, one in how many


def result_shape(loop: str, size: int) -> tuple[int, ...]:
    """The shape of what a loop that has a gradient gives."""
    return {
        "recurrence": (size,),
        "lstm": (size, BATCH, WIDTH),
        "edit_distance": (),
        "edit_table": (),
        "floyd_warshall": (size, size),
        "shortest_paths": (size, size),
        "linear": (size,),
        "n_body": (BODIES, 3),
        "histogram": (size // ITEMS_PER_BIN,),
        "rk4": (size, 2),
        "midpoint": (PATHS, UNKNOWNS),
        "prefix_sums": (size + 1,),
        "ring": (size,),
        "outputs": (size, ROW),
        "weights": (STATE,),
        "group": (size, LANE),
        "lanes": (size, CELLS),
        "transport": (size,),
    }[loop]


def watched(loop: str, size: int) -> tuple[tuple[int, ...], ...]:
    """The shapes of arrays of which a step touches a part only, in place."""
    return {
        "edit_table": ((size + 1, size + 1),),
        "shortest_paths": ((size, size),),
        "histogram": ((size,), (size // ITEMS_PER_BIN,)),
        "prefix_sums": ((size,), (size + 1,)),
        "outputs": ((size, ROW),),
        "sieve": ((size,),),
        "three_deep": ((size, size, size),),
    }.get(loop, ())


def arguments(loop: str, size: int) -> Arrays:
    """What a loop reads, and weights w of its result."""
    draw = np.random.default_rng(size)
    data = _own(loop, size, draw)
    if loop in WRT:
        data["w"] = np.asarray(draw.uniform(0.5, 1.5, result_shape(loop, size)))
    return {k: v.astype(np.float32) if v.dtype == np.float64 else v for k, v in data.items()}


def _own(loop: str, size: int, draw: np.random.Generator) -> Arrays:
    normal, uniform = draw.standard_normal, draw.uniform
    match loop:
        case "recurrence":
            return {"x": normal(size), "p": np.array([0.8, 0.5])}
        case "lstm":
            scale = WIDTH**-0.5
            weights = {k: scale * normal((WIDTH, 4 * WIDTH)) for k in ("wx", "wh")}
            return {**weights, "b": 0.1 * normal(4 * WIDTH), "x": normal((size, BATCH, WIDTH))}
        case "edit_distance" | "edit_table":
            return {"a": normal(size), "b": normal(size)}
        case "linear":
            return {"a": uniform(0.5, 0.9, size), "x": normal(size)}
        case "shortest_paths":  # no zeros: no two ways are equally long
            return {"d": uniform(1.0, 10.0, (size, size))}
        case "floyd_warshall":
            return {"d": np.where(np.eye(size) > 0, 0.0, uniform(1.0, 10.0, (size, size)))}
        case "n_body":
            place, speed = normal((BODIES, 3)), 0.1 * normal((BODIES, 3))
            return {"pos": place, "vel": speed, "mass": uniform(0.5, 1.5, BODIES) / BODIES}
        case "life":
            return {"board": draw.integers(0, 2, (size, size)).astype(np.int32)}
        case "histogram":
            k = draw.integers(0, size // ITEMS_PER_BIN, size)
            return {"x": normal(size), "k": k.astype(np.int32)}
        case "rk4":
            return {"y": np.array([1.0, 0.5]), "p": np.array([0.7, 1.3, 1.0, 1.0])}
        case "midpoint":
            v = [normal(s) / 4 for s in ((UNKNOWNS, HIDDEN), (HIDDEN, UNKNOWNS))]
            return {"y": normal((PATHS, UNKNOWNS)), "v": v[0], "u": v[1]}
        case "prefix_sums" | "ring":
            return {"x": normal(size)}
        case "sieve":
            return {"marks": np.arange(size) >= 2}
        case "outputs":
            return {"x": normal((size, ROW))}
        case "lanes":
            return {"x": normal((size, CELLS))}
        case "transport":
            return {"kernel": uniform(0.5, 1.5, (size, size)), "mass": uniform(0.5, 1.5, size)}
        case "weights":
            return {"weights": normal((STATE, STATE)) / STATE**0.5, "h": normal(STATE)}
        case "three_deep":
            return {"x": normal((size, size, size))}
        case "group":
            dear = draw.permutation(size) < size // DEAR_SHARE
            x = np.abs(normal((size, LANE)))
            x[:, 0] = np.where(dear, 1.0, -1.0)
            return {"x": x, "layer": normal((LANE, LANE)) / LANE**0.5}
    raise ValueError(f"expected the name of a loop, got {loop!r}")
