"""The collectives, as users call them; their primitives are in `collective_rules`.

Where `vmap(..., axis_name=...)` binds the axis, each collective becomes ordinary operations along the batch. All take
pytrees, and one axis name or several; several are one axis in row-major order. `axis_index_groups` cuts the axis
into groups of lanes that talk among themselves.
"""

from __future__ import annotations

import operator
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NoReturn

import numpy as np

from fiveloop.core import arrays, errors, ir, pytree, rules, trace
from fiveloop.core.arrays import Value
from fiveloop.core.primitives import check, convert, elementwise, family
from fiveloop.core.primitives import collective_rules as rows
from fiveloop.core.util import T


def axis_size(axis_name: Any) -> int:
    """The number of lanes of a named axis, or of several together, as an int.

    >>> vmap(lambda x: x / axis_size("i"), axis_name="i")(np.ones(4, "float32"))
    Array([0.25, 0.25, 0.25, 0.25], dtype=float32)
    """
    return rows.lanes_of(_axes("axis_size", axis_name))


def axis_index(axis_name: Any) -> Value:
    """The number of this lane along a named axis, as an int32; along several, in row-major order.

    >>> vmap(lambda x: x + axis_index("i"), axis_name="i")(np.zeros(3, "int32"))
    Array([0, 1, 2], dtype=int32)
    """
    axes = _axes("axis_index", axis_name)
    index = convert.convert(0, np.int32)
    for k, axis in enumerate(axes):
        here = trace.bind1(rows.axis_index_p, params=rows.IndexParams((axis,)))
        index = elementwise.add(elementwise.mul(index, axis.size), here) if k else here
    return index


def psum(x: T, axis_name: Any, *, axis_index_groups: Sequence[Sequence[int]] | None = None) -> T:
    """The sum over the lanes of a named axis, the same in every lane.

    For a Python number it is the number times the size, as a Python number: `psum(1, name)` is the size.

    >>> vmap(lambda x: x / psum(x, "i"), axis_name="i")(np.array([1.0, 3.0], "float32"))
    Array([0.25, 0.75], dtype=float32)
    """
    axes = _axes("psum", axis_name)
    groups = _groups("psum", axes, axis_index_groups)
    return pytree.tree_map(lambda leaf: _sum("psum", leaf, axes, groups), x)


def pmean(x: T, axis_name: Any, *, axis_index_groups: Sequence[Sequence[int]] | None = None) -> T:
    """The mean over the lanes of a named axis; for integers it is a float.

    >>> vmap(lambda x: x - pmean(x, "i"), axis_name="i")(np.array([1.0, 3.0], "float32"))
    Array([-1.,  1.], dtype=float32)
    """
    axes = _axes("pmean", axis_name)
    groups = _groups("pmean", axes, axis_index_groups)
    count = _sum("pmean", 1, axes, groups)

    def of_leaf(leaf: Any) -> Any:
        total = _sum("pmean", leaf, axes, groups)
        if arrays.is_python_number(total) and arrays.is_python_number(count):
            return total / count
        return family.apply_binary(elementwise.div.prim, total, count, inexact=True)

    return pytree.tree_map(of_leaf, x)


def _sum(fun: str, x: Any, axes: tuple[ir.NamedAxis, ...], groups: rows.Groups) -> Any:
    """The sum of a leaf; the sum of a Python number is a Python number if the number of lanes is known."""
    if arrays.is_python_number(x) and (groups is None or len({*map(len, groups)}) == 1):
        return x * (rows.lanes_of(axes) if groups is None else len(groups[0]))
    value = convert.operand(fun, "x", x)
    return _reduce(rows.psum_p, convert.counted(value), axes, groups)


def pmax(x: T, axis_name: Any, *, axis_index_groups: Sequence[Sequence[int]] | None = None) -> T:
    """The greatest over the lanes of a named axis; NaN wins. Lanes that tie share its derivative equally.

    >>> vmap(lambda x: pmax(x, "i"), axis_name="i")(np.array([1, 3, 2]))
    Array([3, 3, 3], dtype=int64)
    """
    return _extreme(rows.pmax_p, x, axis_name, axis_index_groups)


def pmin(x: T, axis_name: Any, *, axis_index_groups: Sequence[Sequence[int]] | None = None) -> T:
    """The least over the lanes of a named axis; NaN wins. Lanes that tie share its derivative equally.

    >>> vmap(lambda x: pmin(x, "i"), axis_name="i")(np.array([1, 3, 2]))
    Array([1, 1, 1], dtype=int64)
    """
    return _extreme(rows.pmin_p, x, axis_name, axis_index_groups)


def all_gather(
    x: T,
    axis_name: Any,
    *,
    axis_index_groups: Sequence[Sequence[int]] | None = None,
    axis: int = 0,
    tiled: bool = False,
) -> T:
    """The values of all lanes of a named axis, stacked along a new `axis`, or concatenated along `axis` if `tiled`.

    >>> vmap(lambda x: all_gather(x, "i")[::-1], axis_name="i")(np.arange(2))
    Array([[1, 0],
           [1, 0]], dtype=int64)
    """
    axes = _some_axes("all_gather", axis_name)
    groups = _equal_groups("all_gather", axes, axis_index_groups)

    def of_leaf(leaf: Any) -> Value:
        value = convert.operand("all_gather", "x", leaf)
        place = check.canonical_axis("all_gather", axis, value.ndim + (not tiled))
        if groups is not None:
            return _apply(rows.all_gather_p, value, rows.AxisParams(axes, groups, place, tiled))
        # Along one axis after the other, the last one first: then all lanes share the result.
        for k, named in enumerate(reversed(axes)):
            params = rows.AxisParams((named,), None, place, tiled)
            value = _apply(rows.all_gather_p, value, params)
            value = rows.join(value, place) if k and not tiled else value
        return value

    return pytree.tree_map(of_leaf, x)


def psum_scatter(
    x: T,
    axis_name: Any,
    *,
    scatter_dimension: int = 0,
    axis_index_groups: Sequence[Sequence[int]] | None = None,
    tiled: bool = False,
) -> T:
    """The sum over the lanes of a named axis, of which each lane gets its own slice along `scatter_dimension`.

    That axis must have the size of the named one, and is removed. If `tiled`, its size is a multiple, and it is split
    into blocks.

    >>> vmap(lambda x: psum_scatter(x, "i"), axis_name="i")(np.array([[1, 2], [10, 20]]))
    Array([11, 22], dtype=int64)
    """
    axes = _some_axes("psum_scatter", axis_name)
    groups = _equal_groups("psum_scatter", axes, axis_index_groups)

    def of_leaf(leaf: Any) -> Value:
        value = convert.counted(convert.operand("psum_scatter", "x", leaf))
        place = check.canonical_axis(
            "psum_scatter", scatter_dimension, value.ndim, "scatter_dimension"
        )
        return _apply(rows.psum_scatter_p, value, rows.AxisParams(axes, groups, place, tiled))

    return pytree.tree_map(of_leaf, x)


def all_to_all(
    x: T,
    axis_name: Any,
    split_axis: int,
    concat_axis: int,
    *,
    axis_index_groups: Sequence[Sequence[int]] | None = None,
    tiled: bool = False,
) -> T:
    """Each lane sends a slice along `split_axis` to each lane, and stacks the slices it receives along `concat_axis`.

    The split axis must have the size of the named one, and is removed. If `tiled`, its size is a multiple, it is
    split into blocks, and the blocks that a lane receives are concatenated.

    >>> vmap(lambda x: all_to_all(x, "i", 0, 0), axis_name="i")(np.array([[1, 2], [10, 20]]))
    Array([[ 1, 10],
           [ 2, 20]], dtype=int64)
    """
    axes = _some_axes("all_to_all", axis_name)
    groups = _equal_groups("all_to_all", axes, axis_index_groups)

    def of_leaf(leaf: Any) -> Value:
        value = convert.operand("all_to_all", "x", leaf)
        split = check.canonical_axis("all_to_all", split_axis, value.ndim, "split_axis")
        concat = check.canonical_axis("all_to_all", concat_axis, value.ndim, "concat_axis")
        return _apply(
            rows.all_to_all_p, value, rows.AllToAllParams(axes, groups, split, concat, tiled)
        )

    return pytree.tree_map(of_leaf, x)


def ppermute(x: T, axis_name: Any, perm: Iterable[tuple[int, int]]) -> T:
    """Send from lane to lane: `perm` has pairs (source, destination); a lane that gets nothing has zeros.

    >>> vmap(lambda x: ppermute(x, "i", [(0, 1), (1, 2)]), axis_name="i")(np.array([1, 2, 3]))
    Array([0, 1, 2], dtype=int64)
    """
    axes = _some_axes("ppermute", axis_name)
    pairs = _pairs(axes, perm)
    p = rows.PermuteParams(axes, None, pairs)
    of_leaf = lambda leaf: _apply(rows.ppermute_p, convert.operand("ppermute", "x", leaf), p)
    return pytree.tree_map(of_leaf, x)


def pshuffle(x: T, axis_name: Any, perm: Sequence[int]) -> T:
    """Lane k gets the value of lane `perm[k]`; `perm` lists every lane once.

    >>> vmap(lambda x: pshuffle(x, "i", [2, 0, 1]), axis_name="i")(np.array([1, 2, 3]))
    Array([3, 1, 2], dtype=int64)
    """
    sources = [_lane("pshuffle", k) for k in perm]
    lanes = axis_size(axis_name)
    if sorted(sources) != list(range(lanes)):
        check.bad_value(
            f"pshuffle: expected `perm` to have each lane of {lanes} once, got {list(perm)}"
        )
    return ppermute(x, axis_name, [(source, k) for k, source in enumerate(sources)])


def pswapaxes(
    x: T, axis_name: Any, axis: int, *, axis_index_groups: Sequence[Sequence[int]] | None = None
) -> T:
    """The named axis and an axis of the value change places.

    >>> vmap(lambda x: pswapaxes(x, "i", 0), axis_name="i")(np.array([[1, 2], [10, 20]]))
    Array([[ 1, 10],
           [ 2, 20]], dtype=int64)
    """
    return all_to_all(x, axis_name, axis, axis, axis_index_groups=axis_index_groups)


def _apply(prim: ir.Primitive[Any], x: Value, params: Any) -> Value:
    """The collective of a value; where the axis is bound no equation is made, so its type is checked here."""
    rules.abstract_eval_rules[prim]([x.aval], params)
    return trace.bind1(prim, x, params=params)


def _reduce(prim: ir.Primitive[Any], x: Value, axes: rows.Axes, groups: rows.Groups) -> Value:
    return _apply(prim, x, rows.CollectiveParams(axes, groups)) if axes else x


def _extreme(prim: ir.Primitive[rows.CollectiveParams], x: T, axis_name: Any, given: Any) -> T:
    axes = _axes(prim.name, axis_name)
    groups = _groups(prim.name, axes, given)
    return pytree.tree_map(
        lambda leaf: _reduce(prim, convert.operand(prim.name, "x", leaf), axes, groups), x
    )


# arguments


def _axes(fun: str, axis_name: Any) -> tuple[ir.NamedAxis, ...]:
    """The bound axes of one name or several."""
    names = tuple(axis_name) if isinstance(axis_name, (tuple, list)) else (axis_name,)
    for name in names:
        if name is None or isinstance(name, int) or not isinstance(name, Hashable):
            check.bad_type(
                f"{fun}: expected the name of an axis, such as 'i', got {name!r}; axes of an array are reduced by "
                f"`sum(axis)` and its kin"
            )
    if len(set(names)) != len(names):
        check.bad_value(f"{fun}: expected each axis name once, got {list(names)}")
    return tuple(trace.find_axis(fun, name) for name in names)


def _some_axes(fun: str, axis_name: Any) -> tuple[ir.NamedAxis, ...]:
    axes = _axes(fun, axis_name)
    if not axes:
        check.bad_value(f"{fun}: expected the name of an axis, or several, got none")
    return axes


def _groups(fun: str, axes: Sequence[ir.NamedAxis], given: Any) -> rows.Groups:
    """Groups of lanes as tuples, after a check that they cut the axis into parts."""
    if given is None:
        return None
    groups = tuple(tuple(_lane(fun, k, "axis_index_groups") for k in group) for group in given)
    lanes = rows.lanes_of(axes)
    if sorted(k for group in groups for k in group) != list(range(lanes)) or () in groups:
        check.bad_value(
            f"{fun}: expected `axis_index_groups` to name each lane from 0 to {lanes - 1} once, "
            f"got {[list(group) for group in groups]}"
        )
    return groups


def _equal_groups(fun: str, axes: Sequence[ir.NamedAxis], given: Any) -> rows.Groups:
    groups = _groups(fun, axes, given)
    if groups is not None and len({*map(len, groups)}) != 1:
        check.bad_value(
            f"{fun}: expected groups of one size, since the result has an axis of that size, got "
            f"{[list(group) for group in groups]}"
        )
    return groups


def _pairs(axes: Sequence[ir.NamedAxis], perm: Any) -> tuple[tuple[int, int], ...]:
    try:
        listed = [(source, destination) for source, destination in perm]
    except (TypeError, ValueError):
        _bad_perm(f"expected `perm` to hold pairs (source, destination), got {perm!r}")
    pairs = tuple((_lane("ppermute", s), _lane("ppermute", d)) for s, d in listed)
    lanes = rows.lanes_of(axes)
    if any(not 0 <= k < lanes for pair in pairs for k in pair):
        _bad_perm(f"expected lanes from 0 to {lanes - 1} in `perm`, got {list(pairs)}")
    for what, ends in (("source", [s for s, _ in pairs]), ("destination", [d for _, d in pairs])):
        if len(set(ends)) != len(ends):
            _bad_perm(f"expected each lane at most once as a {what} in `perm`, got {list(pairs)}")
    return pairs


def _bad_perm(message: str) -> NoReturn:
    raise ValueError(f"ppermute: {message}{errors.at_source(trace.current_source())}") from None


def _lane(fun: str, k: Any, what: str = "perm") -> int:
    try:
        return operator.index(k)
    except TypeError:
        check.bad_type(f"{fun}: expected `{what}` to hold the numbers of lanes, got {k!r}")
