"""jax, as the loops that are set down beside it use it."""

import jax
import jax.numpy as jnp

from benchmarks.model import Program
from benchmarks.planning.rows import Library, program, straight_line

LIBRARY = Library(
    jnp,
    jax.lax.scan,
    jax.grad,
    jax.jvp,
    jax.vmap,
    jax.checkpoint,
    jax.nn.sigmoid,
    jax.tree_util.tree_leaves,
)


def build(name: str, size: int) -> Program:
    """One of the loops."""
    return program(LIBRARY, name)


def build_straight_line(size: int) -> Program:
    """So many scans, one after the other."""
    return straight_line(LIBRARY, size)
