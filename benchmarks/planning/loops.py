"""How loops are listed: a name, a function and its arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fiveloop.core import grad

Function = Callable[..., Any]
Build = Callable[[], tuple[Function, Sequence[Any]]]
HostArray = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Loop:
    """A program with a loop, or its gradient; `build` gives a function and its arguments."""

    build: Build
    is_gradient: bool

    def args(self) -> tuple[Any, ...]:
        """The arguments, as NumPy arrays."""
        return tuple(self.build()[1])

    def function(self, wrap: Callable[[Function], Function]) -> Function:
        """The function, or the gradient of the sum of its results in its first argument; `wrap` is applied before."""
        fun = wrap(self.build()[0])
        return grad(lambda *args: total(fun(*args))) if self.is_gradient else fun


class Loops(dict[str, Loop]):
    """Loops by name."""

    def program(self, build: Build) -> Build:
        """List a program under the name of the function that builds it."""
        self[build.__name__] = Loop(build, is_gradient=False)
        return build

    def gradient(self, build: Build) -> Build:
        """List the gradient of a program."""
        self[f"{build.__name__}, gradient"] = Loop(build, is_gradient=True)
        return build


def total(result: Any) -> Any:
    """The sum of all elements of an array, or of those of a tuple."""
    if isinstance(result, tuple):
        return sum(map(total, result))
    return result.sum()


def numbers(*values: float) -> HostArray:
    """A vector of float32 numbers."""
    return np.asarray(values, np.float32)


def normal(*shape: int, scale: float = 1.0, seed: int = 0) -> HostArray:
    """Normally distributed float32 numbers, the same each time."""
    return (np.random.default_rng(seed).normal(size=shape) * scale).astype(np.float32)


def uniform(*shape: int, low: float = 0.0, high: float = 1.0, seed: int = 0) -> HostArray:
    """Uniformly distributed float32 numbers, the same each time."""
    return np.random.default_rng(seed).uniform(low, high, shape).astype(np.float32)


def integers(high: int, *shape: int, seed: int = 0) -> HostArray:
    """Integers below a bound, the same each time."""
    return np.random.default_rng(seed).integers(0, high, shape).astype(np.int32)
