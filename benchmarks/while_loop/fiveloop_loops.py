"""The loops as fiveloop writes them."""

from functools import partial
from typing import Any

import numpy as np

import fiveloop.numpy as fnp
from benchmarks.model import Program
from benchmarks.while_loop import steps
from benchmarks.while_loop.inputs import PERIOD, Arrays
from benchmarks.while_loop.programs import Data, Library, program
from fiveloop import core, state
from fiveloop.loops import scan, while_loop
from fiveloop.loops.schedules import Periodic

LIBRARY = Library(core.value_and_grad, core.vmap, fnp.sum)


def open_ended(loop: str, data: Data, **options: Any) -> Any:
    """As many steps as the state asks for."""

    def body(val: Any) -> Any:
        i, x = val
        return i + 1, steps.STEPS[loop](fnp, data["p"], x)

    start = (fnp.zeros((), data["limit"].dtype), data["x"])
    return while_loop(lambda val: val[0] < data["limit"], body, start, **options)[1]


def counted(loop: str, data: Data, count: int, **options: Any) -> Any:
    """The same, as many steps as are known before."""
    step = steps.STEPS[loop]
    body = lambda x, _: (step(fnp, data["p"], x), None)
    return scan(body, data["x"], None, length=count, **options)[0]


def chase(data: Data, **options: Any) -> Any:
    """Follow links through an array, and write at each place what is computed from the place before."""
    x, links = data["x"], data["links"]
    y = state.new_ref(fnp.zeros_like(x))
    y[0] = fnp.tanh(x[0])

    def body(at: Any) -> Any:
        to = links[at]
        y[to] = fnp.tanh(data["p"] * y[at] + x[to])
        return to

    while_loop(lambda at: links[at] != 0, body, fnp.zeros((), links.dtype), **options)
    return y[...]


def heap(data: Data, **options: Any) -> Any:
    """Push numbers on a heap one after the other: in each step one rises by a level, or the next one is pushed."""
    x = data["x"]
    tree = state.new_ref(x)

    def body(val: Any) -> Any:
        i, pushed = val
        above = fnp.where(i > 0, (i - 1) // 2, 0)
        child, parent = tree[i], tree[above]
        rises = child < parent
        tree[i] = fnp.where(rises, parent, child)
        tree[above] = fnp.where(rises, child, parent)
        return fnp.where(rises, above, pushed), fnp.where(rises, pushed, pushed + 1)

    start = (fnp.zeros((), np.int32), fnp.zeros((), np.int32) + 1)
    while_loop(lambda val: val[0] < x.shape[0], body, start, **options)
    return tree[...]


LOOPS = {"chase": chase, "heap": heap}


def bounds(bound: str, size: int, steps: int | None, saved: int | None) -> tuple[int, Arrays]:
    """How many steps a loop takes, and the option that bounds the memory of its gradient.

    The size is the number of steps, unless that is given; else it is the number of saved states.
    """
    count = steps or size
    options: dict[str, Any] = {
        "checkpoints": {"checkpoints": saved or size},
        "periodic": {"checkpoints": Periodic(-(-count // PERIOD), tape=PERIOD)},
        "max_steps": {"max_steps": count},
    }
    return count, options.get(bound, {})


def build(
    loop: str,
    transform: str,
    size: int,
    bound: str = "",
    steps: int | None = None,
    saved: int | None = None,
    known: bool = False,
) -> Program:
    """One transform of one loop."""
    count, options = bounds(bound, size, steps, saved)
    if known:
        run: Any = partial(counted, loop, count=count, **options)
    else:
        run = partial(LOOPS.get(loop, partial(open_ended, loop)), **options)
    return program(LIBRARY, run, loop, transform, count)
