"""The loops as fiveloop writes them: `for_loop` over Refs."""

from typing import Any

import fiveloop.numpy as fnp
from benchmarks.inplace import fiveloop_loops
from benchmarks.inplace.transforms import Data
from benchmarks.model import Program
from benchmarks.state.inputs import STRIDE, WINDOW, levels
from benchmarks.state.transforms import Checkpointing, program
from fiveloop import core, remat
from fiveloop.loops import for_loop
from fiveloop.state import ds

LIBRARY = Checkpointing(core.grad, core.jvp, fnp.sum, remat.checkpoint)


def sine(x: Any, data: Data) -> Any:
    """y[i] = sin(y[i-1])."""

    def body(i: Any, y: Any) -> None:
        y[i + 1] = fnp.sin(y[i])

    return for_loop(x.shape[0] - 1, body, x)


def edit(x: Any, data: Data) -> Any:
    """A row of an edit distance, whose substitutions cost x."""

    def body(j: Any, refs: Any) -> None:
        row, corner = refs
        above = row[j + 1]
        row[j + 1] = fnp.minimum(fnp.minimum(above, row[j]) + 1.0, corner[0] + x[j + 1])
        corner[0] = above

    n = x.shape[0]
    return for_loop(n - 1, body, (fnp.arange(float(n)), fnp.zeros(1)))[0]


def heap(x: Any, data: Data) -> Any:
    """Replace the least element of a heap by each of x in turn, and let it sink."""
    n = x.shape[0]

    def body(i: Any, h: Any) -> None:
        h[0] = x[i]

        def sink(level: Any, place: Any) -> None:
            p = place[...]
            left, right = fnp.minimum(2 * p + 1, n - 1), fnp.minimum(2 * p + 2, n - 1)
            child = fnp.where(h[right] < h[left], right, left)
            mine, other = h[p], h[child]
            h[p] = fnp.minimum(mine, other)
            h[child] = fnp.maximum(mine, other)
            place[...] = child

        for_loop(levels(n), sink, fnp.int32(0))

    return for_loop(n, body, data["h"])


def cycles(x: Any, data: Data) -> Any:
    """Go round the cycles of a permutation, each element handing a part of itself on."""
    k = data["k"]

    def body(i: Any, refs: Any) -> None:
        y, place = refs
        here = place[...]
        there = k[here]
        y[there] += 0.5 * y[here]
        place[...] = there

    return for_loop(x.shape[0], body, (x, fnp.int32(0)))[0]


def strided(x: Any, data: Data) -> Any:
    """Add windows of every third element to those beside them."""

    def body(i: Any, y: Any) -> None:
        y[ds(i + 1, WINDOW, STRIDE)] += 0.1 * y[ds(i, WINDOW, STRIDE)]

    return for_loop(x.shape[0] - WINDOW * STRIDE, body, x)


def gather(x: Any, data: Data) -> Any:
    """Read where an array of indices says that changes as it is used."""
    n = x.shape[0]

    def body(i: Any, refs: Any) -> None:
        y, k = refs
        j = k[i]
        y[i] = y[j] * 0.5 + y[i]
        k[j] = (j * 5 + 1) % n

    return for_loop(n, body, (x, data["k"]))[0]


LOOPS = {
    **fiveloop_loops.LOOPS,
    "sine": sine,
    "edit": edit,
    "heap": heap,
    "cycles": cycles,
    "strided": strided,
    "gather": gather,
}


def build(loop: str, transform: str, size: int) -> Program:
    """One transform of one loop."""
    return program(LIBRARY, LOOPS[loop], loop, transform, size)
