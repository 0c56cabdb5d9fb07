"""Linear algebra that needs no decomposition: norms and products of matrices."""

from __future__ import annotations

from fiveloop.core import ArrayLike, Value, extend, util
from fiveloop.core.operators import methods as me
from fiveloop.numpy.linear import cross, matmul, norm, outer, tensordot, vecdot
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
util.show_public_names(globals())


@extend.fused
def diagonal(x: ArrayLike, *, offset: int = 0) -> Value:
    """The `offset`-th diagonals of the matrices in the last two axes; `fnp.diagonal` takes the first two.

    >>> fnp.linalg.diagonal(np.array([[[1, 2], [3, 4]]]))
    Array([[1, 4]], dtype=int64)
    """
    return me.diagonal(x, offset, -2, -1)


@extend.fused
def trace(x: ArrayLike, *, offset: int = 0) -> Value:
    """The sums of the `offset`-th diagonals of the matrices in the last two axes; `fnp.trace` takes the first two.

    >>> fnp.linalg.trace(np.array([[[1, 2], [3, 4]]]))
    Array([5], dtype=int64)
    """
    return me.trace(x, offset, -2, -1)
