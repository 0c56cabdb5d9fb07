"""What every side gives the worker, and the pieces that they share."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from benchmarks.model import Action, Program


@dataclass(frozen=True)
class Ready:
    """A program that can be called, with what its preparation cost; `call` runs it `times` times."""

    call: Callable[[], Any]
    results: Callable[[], dict[str, np.ndarray]]
    trace_lower: float | None = None
    compile: float | None = None
    temp_bytes: int | None = None
    copies: int | None = None
    times: int = 1
    clock: Callable[[], float] = time.perf_counter


@dataclass(frozen=True)
class Staging:
    """Seconds from a function not seen before to its program; `compile` is None where it was not asked for."""

    trace_lower: float
    compile: float | None = None


class Side(Protocol):
    """A library behind a worker process."""

    def versions(self) -> dict[str, str]:
        """The versions that matter for this side's numbers."""

    def prepare(self, program: Program) -> Ready:
        """Trace, lower and compile a program and put its arguments on the device."""

    def stage(self, program: Program, compiles: bool) -> Staging | None:
        """Trace, lower and, if asked, compile as if for the first time; None where nothing is lowered."""


def ready_action(action: Action) -> Ready:
    """An action, whose arrays know how to become NumPy's and, unless they are NumPy's, how to be waited for.

    The last array is waited for: the results of a program are there together, and each wait takes time of its own.
    """

    def call() -> None:
        for _ in range(action.times):
            out = action.run()
        leaf = last_leaf(out)
        if not isinstance(leaf, np.ndarray):
            leaf.block_until_ready()

    results = lambda: {name: np.asarray(leaf) for name, leaf in named(action.run()).items()}
    held = None if action.memory is None else action.memory()
    return Ready(call, results, temp_bytes=held, times=action.times, clock=action.clock)


def fresh(fun: Callable[..., Any]) -> Callable[..., Any]:
    """The same function with an identity of its own, so that no cache of traces knows it."""
    token = object()

    def renewed(*args: Any) -> Any:
        assert token is not None
        return fun(*args)

    return renewed


def named(tree: Any, prefix: str = "") -> dict[str, Any]:
    """The leaves of nested dictionaries, lists and tuples, named by their path."""
    if isinstance(tree, dict):
        parts = list(tree.items())
    elif isinstance(tree, (list, tuple)):
        parts = list(enumerate(tree))
    else:
        return {prefix: tree}
    leaves: dict[str, Any] = {}
    for key, part in parts:
        leaves |= named(part, f"{prefix}/{key}" if prefix else str(key))
    return leaves


def last_leaf(tree: Any) -> Any:
    """The last leaf of nested dictionaries, lists and tuples."""
    while isinstance(tree, (dict, list, tuple)):
        tree = [*tree.values()][-1] if isinstance(tree, dict) else tree[-1]
    return tree


def map_leaves(fun: Callable[[Any], Any], tree: Any) -> Any:
    """Apply a function to each leaf of nested dictionaries, lists and tuples."""
    if isinstance(tree, dict):
        return {key: map_leaves(fun, part) for key, part in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(map_leaves(fun, part) for part in tree)
    return fun(tree)
