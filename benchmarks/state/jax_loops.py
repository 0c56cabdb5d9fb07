"""Builds the jax programs of the loops."""

from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.inplace.transforms import Data
from benchmarks.model import Program
from benchmarks.state import jax_at_set, jax_refs
from benchmarks.state.transforms import Checkpointing, program

LIBRARY = Checkpointing(jax.grad, jax.jvp, jnp.sum, jax.checkpoint)


def sine_scan(x: Any, data: Data) -> Any:
    """y[i] = sin(y[i-1]), with y[i-1] carried."""

    def step(y: Any, _: Any) -> Any:
        y = jnp.sin(y)
        return y, y

    _, rest = jax.lax.scan(step, x[0], length=x.shape[0] - 1)
    return jnp.concatenate([x[:1], rest])


SPELLINGS = {"refs": jax_refs.LOOPS, "at_set": jax_at_set.LOOPS, "scan": {"sine": sine_scan}}


def build(spelling: str, loop: str, transform: str, size: int) -> Program:
    """One transform of one loop in one spelling."""
    return program(LIBRARY, SPELLINGS[spelling][loop], loop, transform, size)
