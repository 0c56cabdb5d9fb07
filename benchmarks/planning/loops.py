"""Numbers for the loops, and the sum that is differentiated."""

from __future__ import annotations

from typing import Any

import numpy as np

HostArray = np.ndarray[Any, Any]


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
