"""What a model is, and the functions of a library that the models are written in."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

Tree = Any
Sizes = Mapping[str, int]
KEPT = "kept"
"""The label of the values of each model that are worth saving."""


@dataclass(frozen=True)
class Library:
    """A library: `block` wraps each repeated part of a model (a checkpoint, or nothing), `name` labels a value."""

    np: ModuleType
    nn: Any
    scan: Callable[..., Any]
    name: Callable[[Any, str], Any] = lambda x, name: x
    block: Callable[[Callable[..., Any]], Callable[..., Any]] = lambda f: f


@dataclass(frozen=True)
class Model:
    """A pure loss of parameters and data, and its arguments as nested dictionaries of NumPy arrays.

    The `small` sizes run and compile in a moment, for tests; the `full` ones are those of the benchmark. `depth` names
    the size that counts the repeated parts.
    """

    name: str
    loss: Callable[[Library, Tree, Tree], Any]
    init: Callable[["Draw", Sizes], tuple[Tree, Tree]]
    depth: str
    small: Sizes
    full: Sizes

    def sizes(self, scale: str) -> Sizes:
        """The sizes that are "small", or "full"."""
        return {"small": self.small, "full": self.full}[scale]

    def arguments(self, scale: str = "small") -> tuple[Tree, Tree]:
        """Parameters and data, "small" or "full", the same each time."""
        return self.init(Draw(), self.sizes(scale))


class Draw:
    """Random arrays of 32 bits."""

    def __init__(self) -> None:
        self.generator = np.random.default_rng(0)

    def normal(self, *shape: int, scale: float = 1.0) -> np.ndarray:
        """Normal numbers of some standard deviation."""
        return (scale * self.generator.standard_normal(shape)).astype(np.float32)

    def matrix(self, *shape: int, scale: float = 1.0) -> np.ndarray:
        """Matrices that keep the size of what they multiply."""
        return self.normal(*shape, scale=scale * shape[-2] ** -0.5)

    def near_one(self, *shape: int) -> np.ndarray:
        """Factors about one."""
        return self.generator.uniform(0.8, 1.2, shape).astype(np.float32)

    def below(self, limit: int, *shape: int) -> np.ndarray:
        """Whole numbers from zero."""
        return self.generator.integers(0, limit, shape).astype(np.int32)


def written_out(step: Callable[..., Any], carry: Any, xs: list[Tree]) -> tuple[Any, None]:
    """A `scan` without a loop, of steps that stack nothing; what each is given is a tree of its own."""
    for x in xs:
        carry, _ = step(carry, x)
    return carry, None


def normalised(np: ModuleType, x: Any, scale: Any) -> Any:
    """x over the root of its mean square along the last axis, times a scale."""
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-6) * scale


def mixed_neighbours(np: ModuleType, x: Any, w: Any) -> Any:
    """A convolution of three places: [batch, places, width] and [3 * width, out] to [batch, places, out]."""
    edge = np.zeros_like(x[:, :1])
    before = np.concatenate([edge, x[:, :-1]], axis=1)
    after = np.concatenate([x[:, 1:], edge], axis=1)
    return np.concatenate([before, x, after], axis=-1) @ w
