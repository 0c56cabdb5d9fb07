"""One step of each loop, in terms of whichever library runs it."""

from typing import Any


def scalar(np: Any, p: Any, x: Any) -> Any:
    """A few operations on a scalar."""
    return np.sin(p * x) + 0.1 * x


def dense(np: Any, p: Any, x: Any) -> Any:
    """A matrix times a vector."""
    return np.tanh(p @ x)


STEPS = {"scalar": scalar, "dense": dense, "lanes": scalar}
