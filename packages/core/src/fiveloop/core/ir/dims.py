"""Dimensions of shapes: an int now, a polynomial later; rules use these helpers and never `int()` or `math.prod`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Dim = int
Shape = tuple[Dim, ...]


class SymbolicDim:
    """The base of dims that are no numbers yet: equal to themselves, added and multiplied, never an int or a bool."""

    __slots__ = ()


def is_dim(x: object) -> bool:
    """Whether something may stand in a shape as it is."""
    return isinstance(x, (int, SymbolicDim))


def is_empty(shape: Iterable[Dim]) -> bool:
    """Whether arrays of a shape are known to have no elements."""
    return any(same_dim(n, 0) for n in shape)


def size_of(shape: Iterable[Dim]) -> Dim:
    """The number of elements of a shape.

    >>> size_of((2, 3)), size_of(())
    (6, 1)
    """
    product: Dim = 1
    for dim in shape:
        product = product * dim
    return product


def same_shape(x: Sequence[Dim], y: Sequence[Dim]) -> bool:
    """Whether two shapes are known to be equal."""
    return len(x) == len(y) and all(same_dim(a, b) for a, b in zip(x, y, strict=True))


def same_dim(x: Dim, y: Dim) -> bool:
    """Whether two dims are known to be equal."""
    return x == y


def is_one(dim: Dim) -> bool:
    """Whether a dim is known to be 1, and so broadcasts."""
    return same_dim(dim, 1)


def is_constant(dim: Dim) -> bool:
    """Whether a dim is a plain number."""
    return isinstance(dim, int)


def is_more(x: Dim, y: Dim) -> bool:
    """Whether a dim is known to be larger than another."""
    return is_constant(x) and is_constant(y) and x > y


def broadcast_shapes(*shapes: Sequence[Dim]) -> Shape | None:
    """The common shape under NumPy's rules, or None if there is none.

    >>> broadcast_shapes((3, 1), (4,))
    (3, 4)
    """
    rank = max(map(len, shapes), default=0)
    padded = [(1,) * (rank - len(s)) + tuple(s) for s in shapes]
    out: list[Dim] = []
    for dims in zip(*padded, strict=True):
        wide = [d for d in dims if not is_one(d)]
        if any(not same_dim(d, wide[0]) for d in wide):
            return None
        out.append(wide[0] if wide else 1)
    return tuple(out)


def strided_size(start: Dim, stop: Dim, stride: int) -> Dim:
    """How many elements `range(start, stop, stride)` has, for a positive stride."""
    if stride == 1 and not (is_constant(start) and is_constant(stop)):
        return stop + -1 * start
    return max(0, -(-(stop - start) // stride))
