"""Calls of jitted functions: the cases, and the arguments that both sides get."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks.model import Action, Case, Contender, RatioLimit

HERE = "benchmarks.core"
PROCESSES = 3  # of each side, for every row of calls and of eager operations


def array(size: int) -> np.ndarray:
    """A vector of 32-bit floats."""
    return np.linspace(0.0, 1.0, size, dtype=np.float32)


def double(x: Any) -> dict[str, Any]:
    """One argument, a tree or an array."""
    return {"y": [leaf + leaf for leaf in x] if isinstance(x, list) else x + x}


def add(x: Any, y: Any) -> dict[str, Any]:
    """Two arguments."""
    return {"y": x + y}


def action(kind: str, size: int, jit: Callable[..., Any], on_device: Callable[..., Any]) -> Action:
    """A call of one kind, of functions jitted by whichever library runs it."""
    fun, args = arguments(kind, size, on_device)
    jitted = jit(fun)
    leaves = size if kind.endswith("arrays") else 1
    times = max(1, min(100, 1000 // leaves))
    return Action(lambda: jitted(*args), times, clock=time.process_time)


def arguments(
    kind: str, size: int, on_device: Callable[..., Any]
) -> tuple[Callable[..., Mapping[str, Any]], tuple[Any, ...]]:
    """The function and its arguments; `size` counts leaves of trees, and bytes of NumPy arrays."""
    match kind:
        case "array":
            return double, (on_device(array(10)),)
        case "arrays":
            return double, ([on_device(array(10)) for _ in range(size)],)
        case "numpy":
            return double, (array(size // 4),)
        case "numpy arrays":
            return double, ([array(10) for _ in range(size)],)
        case "number":
            return double, (1.5,)
        case "array, number":
            return add, (on_device(array(10)), 1.5)
        case "array, numpy":
            return add, (on_device(array(10)), array(10))
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
        seconds=4.0,
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
)
