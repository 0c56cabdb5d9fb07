"""Builds the jax programs of the in-place loops."""

import jax
import jax.numpy as jnp

from benchmarks.inplace import jax_at_set, jax_refs, jax_scan
from benchmarks.inplace.transforms import Library, program
from benchmarks.model import Program

LIBRARY = Library(jax.grad, jax.jvp, jnp.sum)
SPELLINGS = {"refs": jax_refs.LOOPS, "at_set": jax_at_set.LOOPS, "scan": jax_scan.LOOPS}


def build(spelling: str, loop: str, transform: str, size: int) -> Program:
    """One transform of one loop in one spelling."""
    return program(LIBRARY, SPELLINGS[spelling][loop], loop, transform, size)
