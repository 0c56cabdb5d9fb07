"""Rearranging elements: shapes, axes, joining, splitting, repeating."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from fiveloop.core import ArrayLike, Value, ds, prims
from fiveloop.core.extend import fused
from fiveloop.core.operators import methods as me
from fiveloop.core.operators import operators as op

Axes = int | Sequence[int]


@fused
def reshape(x: ArrayLike, shape: Any) -> Value:
    """The same elements, in row-major order, in another shape; one size may be -1.

    >>> fnp.reshape(np.arange(4), (2, -1))
    Array([[0, 1],
           [2, 3]], dtype=int64)
    """
    return prims.reshape(x, shape)


@fused
def ravel(x: ArrayLike) -> Value:
    """All elements along one axis.

    >>> fnp.ravel(np.ones((2, 1)))
    Array([1., 1.], dtype=float64)
    """
    return prims.reshape(x, (-1,))


@fused
def transpose(x: ArrayLike, axes: Sequence[int] | None = None) -> Value:
    """The axes in another order, or reversed.

    >>> fnp.transpose(np.zeros((2, 3, 4)), (2, 0, 1)).shape
    (4, 2, 3)
    """
    return prims.transpose(x, axes)


@fused
def permute_dims(x: ArrayLike, axes: Sequence[int]) -> Value:
    """The axes in another order.

    >>> fnp.permute_dims(np.zeros((2, 3)), (1, 0)).shape
    (3, 2)
    """
    return prims.transpose(x, axes)


@fused
def matrix_transpose(x: ArrayLike) -> Value:
    """The last two axes swapped.

    >>> fnp.matrix_transpose(np.zeros((2, 3, 4))).shape
    (2, 4, 3)
    """
    return op.matrix_transpose(x)


@fused
def swapaxes(x: ArrayLike, axis1: int, axis2: int) -> Value:
    """Two axes exchanged.

    >>> fnp.swapaxes(np.zeros((2, 3, 4)), 0, 2).shape
    (4, 3, 2)
    """
    return me.swapaxes(x, axis1, axis2)


@fused
def moveaxis(x: ArrayLike, source: Axes, destination: Axes) -> Value:
    """Axes moved to other places; the rest keep their order.

    >>> fnp.moveaxis(np.zeros((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """
    value = prims.operand("moveaxis", "x", x)
    start = prims.canonical_axes("moveaxis", source, value.ndim, "source")
    end = prims.canonical_axes("moveaxis", destination, value.ndim, "destination")
    if len(start) != len(end):
        prims.bad_value(
            f"moveaxis: expected as many sources as destinations, got {source} and {destination}"
        )
    rest = iter([k for k in range(value.ndim) if k not in start])
    taken = dict(zip(end, start, strict=True))
    return prims.transpose(
        value, [taken[k] if k in taken else next(rest) for k in range(value.ndim)]
    )


@fused
def expand_dims(x: ArrayLike, axis: Axes) -> Value:
    """`x` with new axes of size 1, at these positions in the result.

    >>> fnp.expand_dims(np.zeros(3), 0).shape
    (1, 3)
    """
    return prims.expand_dims(x, axis)


@fused
def squeeze(x: ArrayLike, axis: Axes | None = None) -> Value:
    """The array without axes of size 1: without these, or all of them. ValueError for an axis of another size.

    >>> fnp.squeeze(np.zeros((1, 3, 1))).shape
    (3,)
    """
    return prims.squeeze(x, axis)


@fused
def atleast_1d(x: ArrayLike) -> Value:
    """`x` with at least one axis.

    >>> fnp.atleast_1d(1.0).shape
    (1,)
    """
    value = prims.operand("atleast_1d", "x", x)
    return value if value.ndim else prims.reshape(value, (1,))


@fused
def atleast_2d(x: ArrayLike) -> Value:
    """`x` with at least two axes; a vector becomes a row.

    >>> fnp.atleast_2d(np.zeros(3)).shape
    (1, 3)
    """
    value = atleast_1d(x)
    return value if value.ndim > 1 else prims.expand_dims(value, 0)


@fused
def atleast_3d(x: ArrayLike) -> Value:
    """`x` with at least three axes; a matrix gets its new axis last.

    >>> fnp.atleast_3d(np.zeros((2, 3))).shape
    (2, 3, 1)
    """
    value = atleast_2d(x)
    return value if value.ndim > 2 else prims.expand_dims(value, 2)


@fused
def broadcast_to(x: ArrayLike, shape: Any) -> Value:
    """`x` repeated to a shape; new axes come in front. ValueError if it does not fit.

    >>> fnp.broadcast_to(np.array([1, 2]), (2, 2))
    Array([[1, 2],
           [1, 2]], dtype=int64)
    """
    return prims.broadcast_to(x, shape)


@fused
def broadcast_arrays(*xs: ArrayLike) -> list[Value]:
    """Arrays repeated to their common shape.

    >>> [x.shape for x in fnp.broadcast_arrays(np.zeros((2, 1)), np.zeros(3))]
    [(2, 3), (2, 3)]
    """
    values = [prims.operand("broadcast_arrays", f"xs[{k}]", x) for k, x in enumerate(xs)]
    shape = prims.common_shape("broadcast_arrays", [x.shape for x in values])
    return [prims.broadcast_to(x, shape) for x in values]


def broadcast_shapes(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The shape that arrays of these shapes broadcast to.

    >>> fnp.broadcast_shapes((2, 1), (3,))
    (2, 3)
    """
    return prims.common_shape("broadcast_shapes", [tuple(s) for s in shapes])


@fused
def concatenate(xs: Sequence[ArrayLike], axis: int | None = 0) -> Value:
    """Arrays joined end to end along an axis, brought to one dtype; flattened first if `axis` is None.

    >>> fnp.concatenate([np.zeros(1), np.ones(2)])
    Array([0., 1., 1.], dtype=float64)
    """
    if axis is None:
        return prims.concatenate([ravel(x) for x in prims.promote("concatenate", *xs)], 0)
    return prims.concatenate(xs, axis)


@fused
def stack(xs: Sequence[ArrayLike], axis: int = 0) -> Value:
    """Arrays of one shape joined along a new axis.

    >>> fnp.stack([np.zeros(2), np.ones(2)], axis=1)
    Array([[0., 1.],
           [0., 1.]], dtype=float64)
    """
    return prims.stack(xs, axis)


@fused
def unstack(x: ArrayLike, *, axis: int = 0) -> tuple[Value, ...]:
    """The slices along an axis, as a tuple of arrays without it.

    >>> fnp.unstack(np.array([[1, 2], [3, 4]]))[1]
    Array([3, 4], dtype=int64)
    """
    value = prims.operand("unstack", "x", x)
    return tuple(prims.move_axis(value, prims.canonical_axis("unstack", axis, value.ndim), 0))


@fused
def hstack(xs: Sequence[ArrayLike]) -> Value:
    """Arrays joined along their second axis; vectors along their first.

    >>> fnp.hstack([np.zeros(1), np.ones(1)])
    Array([0., 1.], dtype=float64)
    """
    values = [atleast_1d(x) for x in _alike("hstack", xs)]
    return prims.concatenate(values, 0 if values[0].ndim == 1 else 1)


@fused
def vstack(xs: Sequence[ArrayLike]) -> Value:
    """Arrays joined along their first axis; vectors are rows.

    >>> fnp.vstack([np.zeros(2), np.ones(2)])
    Array([[0., 0.],
           [1., 1.]], dtype=float64)
    """
    return prims.concatenate([atleast_2d(x) for x in _alike("vstack", xs)], 0)


@fused
def column_stack(xs: Sequence[ArrayLike]) -> Value:
    """Vectors as the columns of a matrix; matrices side by side.

    >>> fnp.column_stack([np.zeros(2), np.ones(2)])
    Array([[0., 1.],
           [0., 1.]], dtype=float64)
    """
    values = _alike("column_stack", xs)
    return prims.concatenate([x if x.ndim > 1 else prims.reshape(x, (-1, 1)) for x in values], 1)


def _alike(fun: str, xs: Sequence[ArrayLike]) -> list[Value]:
    """Arrays brought to one dtype, before numbers among them become arrays and lose digits that it has."""
    if not hasattr(xs, "__len__"):
        prims.bad_type(f"{fun}: expected a sequence of arrays, got {xs!r}")
    if not len(xs):
        prims.bad_value(f"{fun}: expected at least one array, got none")
    return prims.promote(fun, *xs)


@fused
def split(x: ArrayLike, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[Value]:
    """Consecutive parts along an axis: so many equal ones, or those between the given indices.

    ValueError if the axis does not divide into that many.

    >>> [part.shape for part in fnp.split(np.zeros(6), 3)]
    [(2,), (2,), (2,)]
    """
    value = prims.operand("split", "x", x)
    at = prims.canonical_axis("split", axis, value.ndim)
    size = value.shape[at]
    places = prims.int_or_ints("split", "indices_or_sections", indices_or_sections)
    if isinstance(indices_or_sections, int) and places[0] > 0 and size % places[0]:
        prims.bad_value(
            f"split: expected a number of parts that divides axis {at} of size {size}, "
            f"got {indices_or_sections}; see `array_split`"
        )
    return array_split(value, indices_or_sections, at)


@fused
def array_split(
    x: ArrayLike, indices_or_sections: int | Sequence[int], axis: int = 0
) -> list[Value]:
    """Consecutive parts along an axis; where they cannot be equal, the first are longer by one.

    >>> [part.shape for part in fnp.array_split(np.zeros(5), 2)]
    [(3,), (2,)]
    """
    value = prims.operand("array_split", "x", x)
    at = prims.canonical_axis("array_split", axis, value.ndim)
    size = value.shape[at]
    if isinstance(indices_or_sections, int):
        count = indices_or_sections
        if count < 1:
            prims.bad_value(f"array_split: expected at least one part, got {count}")
        edges = [k * (size // count) + min(k, size % count) for k in range(count + 1)]
    else:
        edges = [0, *[slice(None, i).indices(size)[1] for i in indices_or_sections], size]
    if sorted(edges) == edges:
        return prims.split(value, [b - a for a, b in pairwise(edges)], at)
    lead = (slice(None),) * at
    return [value[(*lead, slice(a, max(a, b)))] for a, b in pairwise(edges)]


@fused
def flip(x: ArrayLike, axis: Axes | None = None) -> Value:
    """The elements in reverse order along axes, or along all.

    >>> fnp.flip(np.arange(3))
    Array([2, 1, 0], dtype=int64)
    """
    value = prims.operand("flip", "x", x)
    return prims.reverse(value, prims.canonical_axes("flip", axis, value.ndim))


@fused
def fliplr(x: ArrayLike) -> Value:
    """The elements in reverse order along the second axis.

    >>> fnp.fliplr(np.array([[1, 2]]))
    Array([[2, 1]], dtype=int64)
    """
    return prims.reverse(x, 1)


@fused
def flipud(x: ArrayLike) -> Value:
    """The elements in reverse order along the first axis.

    >>> fnp.flipud(np.arange(2))
    Array([1, 0], dtype=int64)
    """
    return prims.reverse(x, 0)


@fused
def rot90(x: ArrayLike, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Value:
    """A quarter turn, `k` times, in the plane of two axes, from the first towards the second.

    >>> fnp.rot90(np.array([[1, 2], [3, 4]]))
    Array([[2, 4],
           [1, 3]], dtype=int64)
    """
    value = prims.operand("rot90", "x", x)
    i, j = prims.canonical_axes("rot90", axes, value.ndim)
    match k % 4:
        case 0:
            return value
        case 1:
            return prims.reverse(swapaxes(value, i, j), i)
        case 2:
            return prims.reverse(value, (i, j))
        case _:
            return prims.reverse(swapaxes(value, i, j), j)


@fused
def roll(x: ArrayLike, shift: ArrayLike | Sequence[int], axis: Axes | None = None) -> Value:
    """Elements moved along axes by `shift` positions, those at the end to the front; of the flattened array if None.

    A shift may be known only at run time.

    >>> fnp.roll(np.arange(4), 1)
    Array([3, 0, 1, 2], dtype=int64)
    """
    value = prims.operand("roll", "x", x)
    if axis is None:
        return prims.reshape(roll(prims.reshape(value, (-1,)), shift, 0), value.shape)
    shifts: list[Any] = list(shift) if isinstance(shift, (tuple, list)) else [shift]
    axes = [
        prims.canonical_axis("roll", a, value.ndim) for a in prims.int_or_ints("roll", "axis", axis)
    ]
    if len(shifts) != len(axes):
        if min(len(shifts), len(axes)) != 1:
            prims.bad_value(
                f"roll: expected a shift for each of {axis}, got {len(shifts)}: {shift}"
            )
        shifts, axes = shifts * len(axes), axes * len(shifts)
    for by, at in zip(shifts, axes, strict=True):
        value = _rolled(value, by, at)
    return value


def _rolled(x: Value, by: ArrayLike, at: int) -> Value:
    size = x.shape[at]
    if size == 0:
        return x
    if isinstance(by, (int, np.integer)):
        moved = int(by) % size
        parts = prims.split(x, [size - moved, moved], at) if moved else [x]
        return prims.concatenate(parts[::-1], at)
    places = prims.operand("roll", "shift", by)
    if places.dtype.kind not in "iu":
        prims.bad_type(f"roll: expected `shift` to be integers, got {places.aval}")
    # A window, since the derivative of a gather would add to each element by itself.
    start = prims.sub(size, op.remainder(prims.convert(places, np.int32), size))
    return prims.concatenate([x, x], at)[(*(slice(None),) * at, ds(start, size))]


@fused
def tile(x: ArrayLike, reps: int | Sequence[int]) -> Value:
    """`x` repeated as a whole: `reps` times along each axis, new axes in front.

    >>> fnp.tile(np.array([1, 2]), 2)
    Array([1, 2, 1, 2], dtype=int64)
    """
    value = prims.operand("tile", "x", x)
    counts = prims.int_or_ints("tile", "reps", reps)
    if any(n < 0 for n in counts):
        prims.bad_value(f"tile: expected no negative numbers in `reps`, got {reps}")
    rank = max(value.ndim, len(counts))
    counts = (*(1,) * (rank - len(counts)), *counts)
    shape = (*(1,) * (rank - value.ndim), *value.shape)
    value = prims.reshape(value, [d for size in shape for d in (1, size)])
    wide = [d for pair in zip(counts, shape, strict=True) for d in pair]
    value = prims.broadcast_in_dim(value, wide, range(2 * rank))
    return prims.reshape(value, [n * d for n, d in zip(counts, shape, strict=True)])


@fused
def repeat(
    x: ArrayLike, repeats: int | Sequence[int] | np.ndarray, axis: int | None = None
) -> Value:
    """Each element repeated, all as often or each its own number of times, known now; flattened if `axis` is None.

    >>> fnp.repeat(np.array([1, 2]), 2), fnp.repeat(np.array([1, 2]), [1, 2])
    (Array([1, 1, 2, 2], dtype=int64), Array([1, 2, 2], dtype=int64))
    """
    return me.repeat(x, repeats, axis)


@fused
def pad(
    x: ArrayLike, pad_width: Any, mode: str = "constant", *, constant_values: ArrayLike = 0
) -> Value:
    """`x` with elements put before and after it along each axis.

    `pad_width` is a number, a pair (before, after), or a pair per axis. `mode` is "constant", "edge",
    "reflect", "symmetric" or "wrap".

    >>> fnp.pad(np.array([1, 2]), (1, 2)), fnp.pad(np.array([1, 2, 3]), 1, mode="reflect")
    (Array([0, 1, 2, 0, 0], dtype=int64), Array([2, 1, 2, 3, 2], dtype=int64))
    """
    value = prims.operand("pad", "x", x)
    try:
        widths = np.broadcast_to(np.asarray(pad_width), (value.ndim, 2)).tolist()
    except ValueError:
        prims.bad_value(
            f"pad: expected `pad_width` to be a number, a pair, or a pair for each of {value.ndim} axes, got "
            f"{pad_width}"
        )
    if any(n < 0 for pair in widths for n in pair):
        prims.bad_value(f"pad: expected no negative widths, got {pad_width}")
    if mode == "constant":
        filler = prims.convert(
            prims.operand("pad", "constant_values", constant_values), value.dtype
        )
        return prims.pad(value, filler, [lo for lo, _ in widths], [hi for _, hi in widths])
    modes = {"edge": "edge", "reflect": "reflect", "symmetric": "symmetric", "wrap": "wrap"}
    if mode not in modes:
        prims.bad_value(
            f"pad: expected `mode` to be constant or one of {list(modes)}, got {mode!r}"
        )
    for axis, (low, high) in enumerate(widths):
        if low or high:
            source = np.pad(np.arange(value.shape[axis]), (low, high), mode=modes[mode])  # type: ignore[call-overload]
            value = _padded(value, axis, source, low, high)
    return value


MOST_PIECES = 32
"""Pieces of an axis up to which padding joins slices; if it is so much wider, it reads the axis at an array of places.

Measured on the CPU for symmetric padding of f32[4] to f32[256, 64], on two versions of jaxlib: slices are faster by a
factor of 1 to 2, and in the gradient by up to 7, but from 65 pieces on compiling them takes twice as long.
"""


def _padded(x: Value, axis: int, source: np.ndarray[Any, Any], low: int, high: int) -> Value:
    """The elements of an axis at `source`, of which all but the first `low` and the last `high` are the axis itself."""
    size = len(source)
    pieces = [*_runs(source[:low]), (0, 1, size - low - high), *_runs(source[size - high :])]
    lead = (slice(None),) * axis
    if len(pieces) > MOST_PIECES:
        return x[(*lead, source)]
    return prims.concatenate([_run(x, axis, *piece) for piece in pieces], axis)


def _runs(source: np.ndarray[Any, Any]) -> list[tuple[int, int, int]]:
    """Places in as few pieces as possible: the first place, the step, which is 1, -1 or 0, and the number of places."""
    found: list[tuple[int, int, int]] = []
    for place in source.tolist():
        first, step, count = found[-1] if found else (place, 0, 0)
        if count == 1 and abs(place - first) <= 1:
            step = place - first
        if found and place == first + step * count:
            found[-1] = first, step, count + 1
        else:
            found.append((place, 0, 1))
    return found


def _run(x: Value, axis: int, first: int, step: int, count: int) -> Value:
    """So many elements of an axis from one on: the next ones, those before it, or the same one again."""
    lead, end = (slice(None),) * axis, first + step * (count - 1)
    part = x[(*lead, slice(min(first, end), max(first, end) + 1))]
    if step < 0:
        return prims.reverse(part, axis)
    if step or count == 1:
        return part
    shape = [count if k == axis else n for k, n in enumerate(x.shape)]
    return prims.broadcast_in_dim(part, shape, range(x.ndim))


@fused
def astype(x: ArrayLike, dtype: Any) -> Value:
    """The same elements in another dtype; to bool, whether they differ from zero.

    >>> fnp.astype(np.array([0.5, 0.0]), bool)
    Array([ True, False], dtype=bool)
    """
    return op.astype(x, dtype)


@fused
def append(x: ArrayLike, values: ArrayLike, axis: int | None = None) -> Value:
    """`x` with `values` joined to its end along an axis; both flattened if `axis` is None.

    >>> fnp.append(np.array([1, 2]), np.array([3]))
    Array([1, 2, 3], dtype=int64)
    """
    return concatenate(prims.promote("append", x, values), axis)
