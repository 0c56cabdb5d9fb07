"""The loops in C, and their gradients by hand."""

from pathlib import Path

import numpy as np

from benchmarks.inplace.inputs import needed, shapes
from benchmarks.model import Program
from benchmarks.sides import c_side

SOURCE = Path(__file__).with_name("loops.c")


def build(loop: str, transform: str, size: int) -> Program:
    """One transform of one loop."""
    primal = transform == "primal"
    fun = c_side.library(SOURCE)[loop if primal else f"{loop}_gradient"]
    read, written = shapes(loop, size)

    def run(data: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        out = np.empty(written if primal else read, np.float32)
        c_side.call(fun, size, [data[name] for name in "xkw" if name in data], [out])
        return {"y" if primal else "x_bar": out}

    return Program(run, (needed(loop, transform, size),))
