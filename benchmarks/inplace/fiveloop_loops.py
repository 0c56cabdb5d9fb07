"""The six loops as fiveloop writes them: `for_loop` over Refs."""

from typing import Any

import fiveloop.numpy as fnp
from benchmarks.inplace.inputs import DECAY, DOWN, ITEMS_PER_BIN, RIGHT
from benchmarks.inplace.transforms import Data, Library, program
from benchmarks.model import Program
from fiveloop import core
from fiveloop.loops import for_loop

LIBRARY = Library(core.grad, core.jvp, fnp.sum)


def prefix(x: Any, data: Data) -> Any:
    """y[i] = a y[i-1] + x[i], with x closed over."""

    def body(i: Any, y: Any) -> None:
        y[i + 1] = DECAY * y[i] + x[i + 1]

    return for_loop(x.shape[0] - 1, body, fnp.zeros_like(x))


def two_refs(x: Any, data: Data) -> Any:
    """y[i] = a y[i-1] + x[i] x[i-1], with x and y both in Refs."""

    def body(i: Any, refs: Any) -> None:
        x, y = refs
        y[i + 1] = DECAY * y[i] + x[i + 1] * x[i]

    return for_loop(x.shape[0] - 1, body, (x, fnp.zeros_like(x)))[1]


def swap(x: Any, data: Data) -> Any:
    """Exchange x[i] and x[k[i]]."""
    k = data["k"]

    def body(i: Any, x: Any) -> None:
        j = k[i]
        mine, other = x[i], x[j]
        x[i] = other
        x[j] = mine

    return for_loop(x.shape[0], body, x)


def nested(x: Any, data: Data) -> Any:
    """Each cell passes a part of itself down and to the right."""
    last = x.shape[0] - 1

    def outer(i: Any, a: Any) -> None:
        def inner(j: Any, _: Any) -> None:
            t = a[i, j]
            a[i + 1, j] += DOWN * t
            a[i, j + 1] += RIGHT * t

        for_loop(last, inner, ())

    return for_loop(last, outer, x)


def histogram(x: Any, data: Data) -> Any:
    """h[k[i]] += x[i]^2."""
    k = data["k"]

    def body(i: Any, h: Any) -> None:
        h[k[i]] += x[i] * x[i]

    return for_loop(x.shape[0], body, fnp.zeros(x.shape[0] // ITEMS_PER_BIN, x.dtype))


def rows(x: Any, data: Data) -> Any:
    """y[i, :] = tanh(a y[i-1, :] + x[i, :])."""

    def body(i: Any, refs: Any) -> None:
        x, y = refs
        y[i + 1] = fnp.tanh(DECAY * y[i] + x[i + 1])

    return for_loop(x.shape[0] - 1, body, (x, fnp.zeros_like(x)))[1]


LOOPS = {
    "prefix": prefix,
    "two_refs": two_refs,
    "swap": swap,
    "nested": nested,
    "histogram": histogram,
    "rows": rows,
}


def build(loop: str, transform: str, size: int) -> Program:
    """One transform of one loop."""
    return program(LIBRARY, LOOPS[loop], loop, transform, size)
