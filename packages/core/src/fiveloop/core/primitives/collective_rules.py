"""The primitives over named axes, and their rules.

Each lane has a value, the operand of a collective. Batching over one of its named axes brings the lanes of the axis
together: the operand gets an axis in front, and in the params a size replaces the name. A collective without names is
ordinary operations on rows, one for each lane.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Self

import numpy as np

from fiveloop.core import ad, arrays, ir, rules, trace
from fiveloop.core.arrays import Value
from fiveloop.core.dataclass import dataclass, replace
from fiveloop.core.ir.indexer import Indexer, Pick, Span
from fiveloop.core.primitives import broadcast, check, elementwise, monoids, take
from fiveloop.core.primitives.reduce import reduce_max, reduce_min
from fiveloop.core.primitives.shape import concatenate, iota, stack

Groups = tuple[tuple[int, ...], ...] | None
Axes = tuple[ir.NamedAxis | int, ...]
INT32 = np.dtype(np.int32)


@dataclass(frozen=True)
class IndexParams:
    """The axis whose lanes are numbered."""

    axes: tuple[ir.NamedAxis]


@dataclass(frozen=True)
class CollectiveParams:
    """The axes that a collective goes over, as one axis in row-major order, and the groups that it is cut into.

    Where an axis is an int, its lanes are here: they are an axis of that size in front of the operand and of the
    result. The other numbers of axes among the params count without those.
    """

    axes: Axes
    groups: Groups = None

    @property
    def num_here(self) -> int:
        """How many axes in front of the operand hold lanes."""
        return sum(isinstance(axis, int) for axis in self.axes)

    @property
    def num_in_group(self) -> int:
        """How many lanes talk among themselves."""
        return lanes_of(self.axes) if self.groups is None else len(self.groups[0])

    def carrying(self) -> Self:
        """The same for values with one more axis in front."""
        return self

    def turned(self) -> Self:
        """The same the other way round."""
        return self


@dataclass(frozen=True)
class AxisParams(CollectiveParams):
    """The axis of the parts of the lanes: an axis of its own, or, if `tiled`, the axis along which they are joined.

    A gather gives it to the result, and a scatter takes it from the operand.
    """

    axis: int = 0
    tiled: bool = False

    def carrying(self) -> Self:
        return replace(self, axis=self.axis + 1)


@dataclass(frozen=True)
class AllToAllParams(CollectiveParams):
    """The axis that is cut into parts, and the axis of the result along which the parts that come in are."""

    split_axis: int = 0
    concat_axis: int = 0
    tiled: bool = False

    def carrying(self) -> Self:
        return replace(self, split_axis=self.split_axis + 1, concat_axis=self.concat_axis + 1)

    def turned(self) -> Self:
        return replace(self, split_axis=self.concat_axis, concat_axis=self.split_axis)


@dataclass(frozen=True)
class PermuteParams(CollectiveParams):
    """Pairs of lanes: the value goes from the first to the second."""

    perm: tuple[tuple[int, int], ...] = ()

    def turned(self) -> Self:
        return replace(self, perm=tuple((destination, source) for source, destination in self.perm))


axis_index_p: ir.Primitive[IndexParams] = ir.Primitive("axis_index")
psum_p: ir.Primitive[CollectiveParams] = ir.Primitive("psum")
pmax_p: ir.Primitive[CollectiveParams] = ir.Primitive("pmax")
pmin_p: ir.Primitive[CollectiveParams] = ir.Primitive("pmin")
all_gather_p: ir.Primitive[AxisParams] = ir.Primitive("all_gather")
psum_scatter_p: ir.Primitive[AxisParams] = ir.Primitive("psum_scatter")
all_to_all_p: ir.Primitive[AllToAllParams] = ir.Primitive("all_to_all")
ppermute_p: ir.Primitive[PermuteParams] = ir.Primitive("ppermute")


def lanes_of(axes: Sequence[ir.NamedAxis | int]) -> int:
    """The number of lanes of several axes together."""
    count = 1
    for axis in axes:
        count *= axis.size if isinstance(axis, ir.NamedAxis) else axis
    return count


# rows: one a lane, in front


def _take(rows: Value, which: Sequence[int]) -> Value:
    """Some of the rows, in the given order."""
    if tuple(which) == tuple(range(rows.shape[0])):
        return rows
    at = arrays.to_array(arrays.as_value(np.asarray(which, np.int32)))
    whole = [Span(0, n) for n in rows.shape[1:]]
    return take.take(rows, Indexer((Pick(), *whole), at.shape), [at])


def _grouped(rows: Value, groups: Groups) -> Value:
    """Rows in groups of one size: [lanes, ...] -> [groups, lanes of a group, ...]."""
    if groups is None:
        return broadcast.reshape(rows, (1, *rows.shape))
    flat = _take(rows, [k for group in groups for k in group])
    return broadcast.reshape(flat, (len(groups), len(groups[0]), *rows.shape[1:]))


def _ungrouped(grouped: Value, groups: Groups) -> Value:
    """Rows out of their groups: [groups, lanes of a group, ...] -> [lanes, ...]."""
    rows = broadcast.reshape(grouped, (grouped.shape[0] * grouped.shape[1], *grouped.shape[2:]))
    if groups is None:
        return rows
    order = [k for group in groups for k in group]
    return _take(rows, np.argsort(order).tolist())


def _to_each_lane(of_groups: Value, groups: Groups, lanes: int) -> Value:
    """For each lane the row of its group."""
    if groups is None:
        return _take(of_groups, [0] * lanes)
    group_of = {k: g for g, group in enumerate(groups) for k in group}
    return _take(of_groups, [group_of[k] for k in range(lanes)])


def join(x: Value, axis: int) -> Value:
    """Two neighbouring axes as one."""
    return broadcast.reshape(
        x, (*x.shape[:axis], x.shape[axis] * x.shape[axis + 1], *x.shape[axis + 2 :])
    )


def _cut(x: Value, axis: int, parts: int) -> Value:
    """An axis as two, the first of which has the given size."""
    size = x.shape[axis] // parts
    return broadcast.reshape(x, (*x.shape[:axis], parts, size, *x.shape[axis + 1 :]))


def _reduce_rows(reduce: Callable[[Value, int], Value], rows: Value, p: CollectiveParams) -> Value:
    groups = p.groups or (tuple(range(rows.shape[0])),)
    if len({*map(len, groups)}) == 1:
        of_groups = reduce(_grouped(rows, p.groups), 1)
    else:
        of_groups = stack([reduce(_take(rows, group), 0) for group in groups])
    return _to_each_lane(of_groups, p.groups, rows.shape[0])


def _gather_rows(rows: Value, p: AxisParams) -> Value:
    # [lanes, ...] -> [groups, *result] -> [lanes, *result]
    of_groups = _stacked(_grouped(rows, p.groups), p)
    return _to_each_lane(of_groups, p.groups, rows.shape[0])


def _stacked(grouped: Value, p: AxisParams) -> Value:
    """The lanes of each group along an axis: [groups, lanes, ...] -> [groups, ..., lanes, ...]."""
    moved = broadcast.move_axis(grouped, 1, 1 + p.axis)
    return join(moved, 1 + p.axis) if p.tiled else moved


def _scatter_rows(rows: Value, p: AxisParams) -> Value:
    # [groups, ..., parts, ...] -> [groups, parts, ...] -> [lanes, ...]
    total = broadcast.reduce_sum(_grouped(rows, p.groups), 1)
    if p.tiled:
        total = _cut(total, 1 + p.axis, p.num_in_group)
    return _ungrouped(broadcast.move_axis(total, 1 + p.axis, 1), p.groups)


def _exchange_rows(rows: Value, p: AllToAllParams) -> Value:
    # [groups, senders, ..., parts, ...] -> [groups, receivers, senders, ...] -> [groups, receivers, ..., senders, ...]
    x = _grouped(rows, p.groups)
    if p.tiled:
        x = _cut(x, 2 + p.split_axis, p.num_in_group)
    x = broadcast.move_axis(x, 2 + p.split_axis, 1)
    x = broadcast.move_axis(x, 2, 2 + p.concat_axis)
    if p.tiled:
        x = join(x, 2 + p.concat_axis)
    return _ungrouped(x, p.groups)


def _permute_rows(rows: Value, p: PermuteParams) -> Value:
    source = {destination: source for source, destination in p.perm}
    lanes = rows.shape[0]
    if len(source) < lanes:
        rows = concatenate([rows, broadcast.zeros((1, *rows.shape[1:]), rows.dtype)], 0)
    return _take(rows, [source.get(k, lanes) for k in range(lanes)])


# batching

Rows = Callable[[Value, Any], Value]


def _collective_batch(
    prim: ir.Primitive[Any],
    of_rows: Rows,
    size: int,
    operands: ad.Values,
    dims: ad.BatchAxes,
    p: Any,
) -> ad.Batched:
    (x,), (d,) = operands, dims
    axis = ir.batch_axis(size)
    if axis in p.axes:
        out, dim = _over_batch(prim, of_rows, x, d, p, p.axes.index(axis))
        return [out], [dim]
    assert d is not None, "unreachable: the trace handles what is not batched"
    # Another axis than those of the collective goes along, in front of each lane's value.
    moved = broadcast.move_axis(x, d, p.num_here)
    return trace.bind(prim, moved, params=p.carrying()), [p.num_here]


def _over_batch(
    prim: ir.Primitive[Any], of_rows: Rows, x: Value, d: int | None, p: Any, k: int
) -> tuple[Value, int | None]:
    """Bring the lanes of axis `k`, which are along `d`, together with those that are here."""
    axis = p.axes[k]
    short = _without_rows(prim, x, d, p, k)
    if short is not None:
        return short, None
    place = sum(isinstance(a, int) for a in p.axes[:k])
    here = replace(p, axes=(*p.axes[:k], axis.size, *p.axes[k + 1 :]))
    x = broadcast.bdim_at(x, d, axis.size, place)
    if here.num_here < len(here.axes):
        return trace.bind1(prim, x, params=here), place
    sizes, lane = x.shape[: here.num_here], x.shape[here.num_here :]
    rows = of_rows(broadcast.reshape(x, (lanes_of(here.axes), *lane)), here)
    return broadcast.reshape(rows, (*sizes, *rows.shape[1:])), place


def _without_rows(prim: ir.Primitive[Any], x: Value, d: int | None, p: Any, k: int) -> Value | None:
    """The result where all lanes get the same, which then is not batched; None where they do not."""
    if prim is psum_p and d is None and p.groups is not None:
        sizes = {*map(len, p.groups)}
        return elementwise.mul(x, sizes.pop()) if len(sizes) == 1 and not p.num_here else None
    if p.groups is not None:
        return None
    if prim in _REDUCTIONS:
        over = x  # all lanes have the same, or theirs are along `d`
        if d is not None:
            over = _REDUCTIONS[prim](x, d)
        elif prim is psum_p:
            over = elementwise.mul(x, p.axes[k].size)
        rest = (*p.axes[:k], *p.axes[k + 1 :])
        return trace.bind1(prim, over, params=replace(p, axes=rest)) if rest else over
    if prim is all_gather_p and len(p.axes) == 1:
        grouped = broadcast.bdim_at(x, d, p.axes[k].size, 0)
        stacked = _stacked(broadcast.reshape(grouped, (1, *grouped.shape)), p)
        return broadcast.reshape(stacked, stacked.shape[1:])
    return None


_REDUCTIONS = {psum_p: broadcast.reduce_sum, pmax_p: reduce_max, pmin_p: reduce_min}


# types

LaneShape = Callable[[str, ir.ShapedArray, Any], tuple[int, ...]]


def _collective_aval(name: str, kinds: str, shape: LaneShape, avals: ir.Avals, p: Any) -> ir.Typing:
    (x,) = check.array_avals(name, avals, 1)
    check.check_kind(name, x, kinds)
    here = p.num_here
    lane = x.update(shape=x.shape[here:])
    return [x.update(shape=(*x.shape[:here], *shape(name, lane, p)))], _effects(p)


def _effects(p: Any) -> ir.Effects:
    return frozenset(ir.NamedAxisEffect(axis) for axis in ir.axes_in(p))


def _with_parts(part: ir.Shape, axis: int, p: Any) -> tuple[int, ...]:
    """The shape of as many parts as there are lanes, along an axis."""
    shape = list(part)
    if p.tiled:
        shape[axis] *= p.num_in_group
    else:
        shape.insert(axis, p.num_in_group)
    return tuple(shape)


def _without_parts(name: str, what: str, x: ir.ShapedArray, axis: int, p: Any) -> tuple[int, ...]:
    """The shape of one part of a value, cut along an axis into as many as there are lanes."""
    parts, size = p.num_in_group, x.shape[axis]
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    if p.tiled:
        if size % parts:
            check.bad_value(
                f"{name}: expected `{what}` to name an axis whose size is a multiple of {parts}, the number of "
                f"lanes, got axis {axis} of {x}"
            )
        return (*before, size // parts, *after)
    if size != parts:
        check.bad_value(
            f"{name}: expected `{what}` to name an axis of size {parts}, the number of lanes, got axis {axis} of "
            f"{x}; for blocks of several elements use tiled=True"
        )
    return (*before, *after)


# derivatives


def _extreme_tangent(t: Value, out: Value, x: Value, p: CollectiveParams) -> Value:
    """The mean of the tangents of the lanes that have the extreme."""
    return monoids.mean_of_winners(x, out, t, lambda z: trace.bind1(psum_p, z, params=p))


# rows of the table


def _unbound_impl(name: str, values: ad.Values, p: Any) -> list[Value]:
    raise ir.unbound(name, ir.axes_in(p))


NO_LOWERING = rules.Refusal(
    "its axis is bound by no `vmap`; use it within one that has that axis_name"
)


def _define(
    prim: ir.Primitive[Any],
    kinds: str,
    shape: LaneShape,
    of_rows: Rows,
    back: ir.Primitive[Any] | None = None,
) -> None:
    """Fill the row of a collective: one that is linear goes `back` by a collective of the params turned round."""
    jvp = broadcast.jvp_of_one(prim, _extreme_tangent)
    transpose: rules.Transpose | rules.Refusal = rules.NOT_LINEAR
    if back is not None:
        jvp = broadcast.linear_jvp(prim)
        transpose = broadcast.linear_transpose(
            lambda ct, aval, p: trace.bind1(back, ct, params=p.turned())
        )
    rules.define(
        prim,
        abstract_eval=partial(_collective_aval, prim.name, kinds, shape),
        lower=NO_LOWERING,
        jvp=jvp,
        transpose=transpose,
        batch=partial(_collective_batch, prim, of_rows),
        impl=partial(_unbound_impl, prim.name),
    )


# The shape of a lane's result from the name, a lane's operand and the params, for each row.
_same: LaneShape = lambda name, x, p: x.shape
_gathered: LaneShape = lambda name, x, p: _with_parts(x.shape, p.axis, p)
_scattered: LaneShape = lambda name, x, p: _without_parts(name, "scatter_dimension", x, p.axis, p)
_exchanged: LaneShape = lambda name, x, p: _with_parts(
    _without_parts(name, "split_axis", x, p.split_axis, p), p.concat_axis, p
)
_define(psum_p, "iufc", _same, partial(_reduce_rows, broadcast.reduce_sum), psum_p)
_define(pmax_p, "biuf", _same, partial(_reduce_rows, reduce_max))
_define(pmin_p, "biuf", _same, partial(_reduce_rows, reduce_min))
_define(all_gather_p, "biufc", _gathered, _gather_rows, psum_scatter_p)
_define(psum_scatter_p, "iufc", _scattered, _scatter_rows, all_gather_p)
_define(all_to_all_p, "biufc", _exchanged, _exchange_rows, all_to_all_p)
_define(ppermute_p, "biufc", _same, _permute_rows, ppermute_p)
rules.define(
    axis_index_p,
    abstract_eval=lambda avals, p: ([ir.ShapedArray((), INT32)], _effects(p)),
    lower=NO_LOWERING,
    jvp=broadcast.zero_jvp(axis_index_p),
    batch=lambda size, operands, dims, p: ([iota(INT32, (size,))], [0]),
    impl=partial(_unbound_impl, "axis_index"),
)
