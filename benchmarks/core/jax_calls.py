"""The calls in jax."""

import jax

from benchmarks.core import calls
from benchmarks.model import Action


def build(kind: str, size: int) -> Action:
    """A call of one kind."""
    return calls.action(kind, size, jax.jit, jax.device_put)
