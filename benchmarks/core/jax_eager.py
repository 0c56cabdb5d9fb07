"""The eager operations in jax."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp

from benchmarks.core import eager
from benchmarks.model import Action

TOOLS = SimpleNamespace(grad=jax.grad, vmap=jax.vmap, top_k=jax.lax.top_k)


def build(name: str, size: int) -> Action:
    """One operation."""
    return eager.action(name, size, jnp, TOOLS, jax.device_put)
