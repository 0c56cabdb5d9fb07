"""Calls of jitted functions: the cases, and the arguments that both sides get."""

import time
from collections.abc import Callable, Mapping
from itertools import cycle
from typing import Any

import numpy as np

from benchmarks.model import Action, Case, Contender, RatioLimit

HERE = "benchmarks.core"
SMALL = 4096
"""Up to so many bytes, or leaves, a call is timed in the thread that calls."""
PROCESSES = 9  # of each side, for every row of calls and of eager operations
IN_PLACE, STEP = 64, 16
"""XLA reads NumPy's memory in place at multiples of the first, and copies it from elsewhere; NumPy gives multiples of
the second."""


def array(size: int) -> np.ndarray:
    """A vector of 32-bit floats."""
    return np.linspace(0.0, 1.0, size, dtype=np.float32)


def placed(x: np.ndarray, start: int) -> np.ndarray:
    """The same array in memory at so many bytes after a place where XLA reads it."""
    room = np.empty(x.nbytes + IN_PLACE + start, np.uint8)
    begin = -room.ctypes.data % IN_PLACE + start
    out = room[begin : begin + x.nbytes].view(x.dtype)
    out[:] = x
    return out


def double(x: Any) -> dict[str, Any]:
    """One argument, a tree or an array."""
    return {"y": [leaf + leaf for leaf in x] if isinstance(x, list) else x + x}


def add(x: Any, y: Any) -> dict[str, Any]:
    """Two arguments."""
    return {"y": x + y}


def scale(x: Any, by: int) -> dict[str, Any]:
    """A static argument."""
    return {"y": x * by}


def add_parts(x: Any) -> dict[str, Any]:
    """A tree of two leaves."""
    return {"y": x["x"] + x["y"]}


def action(kind: str, size: int, jit: Callable[..., Any], on_device: Callable[..., Any]) -> Action:
    """A call of one kind, of functions jitted by whichever library runs it."""
    # Where a user's NumPy array lies is chance, and decides what a call costs: calls take all places in turn.
    starts = range(0, IN_PLACE, STEP if "numpy" in kind else IN_PLACE)
    given = [arguments(kind, size, on_device, start) for start in starts]
    calls = cycle([args for _, args in given])
    jitted = jit(given[0][0], **({"static_argnums": 1} if kind == "static" else {}))
    leaves = size if kind.endswith("arrays") else 1
    times = max(1, min(100, 1000 // leaves))
    return Action(lambda: jitted(*next(calls)), times, clock=clock_of(size))


def clock_of(size: int) -> Callable[[], float]:
    """The processor's time of the calling thread; of all threads for many bytes, which jax copies in another thread.

    XLA runs a program of a thousand operations and more in a thread of its own, which spins while it waits, or sleeps
    and is woken: of either library some processes do the one and some the other, and take twice the time.
    """
    return time.thread_time if size <= SMALL else time.process_time


def arguments(
    kind: str, size: int, on_device: Callable[..., Any], start: int
) -> tuple[Callable[..., Mapping[str, Any]], tuple[Any, ...]]:
    """The function and its arguments; `size` counts leaves of trees, or bytes of NumPy arrays, which are `placed`."""
    match kind:
        case "array":
            return double, (on_device(array(10)),)
        case "arrays":
            return double, ([on_device(array(10)) for _ in range(size)],)
        case "numpy":
            return double, (placed(array(size // 4), start),)
        case "numpy arrays":
            return double, ([placed(array(10), start) for _ in range(size)],)
        case "number":
            return double, (1.5,)
        case "array, number":
            return add, (on_device(array(10)), 1.5)
        case "array, numpy":
            return add, (on_device(array(10)), placed(array(10), start))
        case "static":
            return scale, (on_device(array(10)), 3)
        case "tree with a number":
            return add_parts, ({"x": on_device(array(10)), "y": 1.5},)
    raise ValueError(f"expected a kind of call, got {kind!r}")


def case(kind: str, limits: Mapping[int, float]) -> Case:
    """Calls of one kind, with the ratio to jax that each size may have."""
    row = "jitted call with NumPy or Python arguments"
    if kind in ("array", "arrays"):
        row = "jitted call, 1 / 51 / 1000 leaves"
    return Case(
        f"call/{kind}",
        tuple(limits),
        Contender("fiveloop", "fiveloop", f"{HERE}.fiveloop_calls:build", {"kind": kind}),
        (Contender("jax", "jax", f"{HERE}.jax_calls:build", {"kind": kind}),),
        limits=tuple(RatioLimit("run", "jax", most, row, size) for size, most in limits.items()),
        seconds=2.0,
        processes=PROCESSES,
    )


CASES = (
    case("array", {1: 1.05}),
    case("arrays", {51: 1.0, 1000: 1.0}),
    case("numpy", {4: 1.3, 4096: 1.3, 1_000_000: 2.0}),
    case("numpy arrays", {51: 1.3}),
    case("number", {1: 1.3}),
    case("array, number", {1: 1.3}),
    case("array, numpy", {1: 1.3}),
    case("static", {1: 1.3}),
    case("tree with a number", {1: 1.3}),
)
