"""The eager operations in jax."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp

from benchmarks.core import eager
from benchmarks.model import Action, Program

TOOLS = SimpleNamespace(
    grad=jax.grad,
    vmap=jax.vmap,
    make_jaxpr=jax.make_jaxpr,
    top_k=jax.lax.top_k,
    new_ref=jax.new_ref,
)


def build(name: str, size: int) -> Action:
    """One operation."""
    return eager.action(name, size, jnp, TOOLS, jax.device_put)


def build_program(name: str, size: int) -> Program:
    """One operation to compile."""
    return eager.program(name, size, jnp, TOOLS)
