"""jax as the library of the models."""

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from benchmarks.remat.models.base import Library

LIBRARY = Library(jnp, jax.nn, jax.lax.scan, checkpoint_name)
