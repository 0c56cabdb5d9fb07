"""Linear algebra that needs no decomposition: norms and products of matrices."""

from __future__ import annotations

from fiveloop.numpy.linear import cross, diagonal, matmul, norm, outer, tensordot, trace, vecdot
from fiveloop.numpy.manipulation import matrix_transpose

__all__ = [
    "cross",
    "diagonal",
    "matmul",
    "matrix_transpose",
    "norm",
    "outer",
    "tensordot",
    "trace",
    "vecdot",
]
