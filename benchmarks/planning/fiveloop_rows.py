"""fiveloop, as the loops that are set down beside jax use it."""

import fiveloop.numpy as fnp
from benchmarks.model import Program
from benchmarks.planning.rows import Library, program, straight_line
from fiveloop.core import grad, jvp, vmap
from fiveloop.core.pytree import tree_leaves
from fiveloop.loops import scan
from fiveloop.nn import sigmoid
from fiveloop.remat import checkpoint

LIBRARY = Library(fnp, scan, grad, jvp, vmap, checkpoint, sigmoid, tree_leaves)


def build(name: str, size: int) -> Program:
    """One of the loops."""
    return program(LIBRARY, name)


def build_straight_line(size: int) -> Program:
    """So many scans, one after the other."""
    return straight_line(LIBRARY, size)
