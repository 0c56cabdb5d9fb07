"""Two of the loops in C, and their gradients by hand."""

from pathlib import Path

import numpy as np

from benchmarks.loops.inputs import WRT, arguments, result_shape
from benchmarks.model import Program
from benchmarks.sides import c_side

SOURCE = Path(__file__).with_name("loops.c")


def build(loop: str, transform: str, size: int) -> Program:
    """One transform of one loop; C reads what it is a loop of, and w for a gradient."""
    forward = transform == "forward"
    fun = c_side.library(SOURCE)[loop if forward else f"{loop}_gradient"]

    def run(data: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        read = [data[name] for name in (*WRT[loop], "w") if name in data]
        shapes = {f"{name}_bar": data[name].shape for name in WRT[loop]}
        if forward:
            shapes = {"y": result_shape(loop, size)}
        written = {name: np.empty(shape, np.float32) for name, shape in shapes.items()}
        c_side.call(fun, size, read, [*written.values()])
        return written

    data = arguments(loop, size)
    if forward:
        del data["w"]
    return Program(run, (data,))
