"""References of collectives: what a lane gets, from what the lanes of its group have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np

from fiveloop.core.ir.axes import NamedAxis
from fiveloop.testing.core.lanes import this_lane
from fiveloop.testing.core.oracle import define_reference

_Array = np.ndarray[Any, Any]
_Rows = Sequence[_Array]
# What one lane gets: from all rows, the numbers of its group's rows, and its place among those.
_OneLane = Callable[[_Rows, Sequence[int], int, Any], Any]


def _axis_index(values: Sequence[_Array], p: Any) -> list[_Array]:
    everyone, here = this_lane(p.axes)
    return [np.asarray(here[everyone.axes.index(p.axes[0])], np.int32)]


def _collective(one_lane: _OneLane) -> Any:
    """A lane's result; where lanes are an axis of the operand, one for each of those too."""

    def reference(values: Sequence[_Array], p: Any) -> list[_Array]:
        (x,) = values
        everyone, here = this_lane([a for a in p.axes if isinstance(a, NamedAxis)])
        offers = everyone.exchange(here, p, x)
        sizes = [a.size if isinstance(a, NamedAxis) else a for a in p.axes]
        rows: list[_Array] = []
        mine: list[int] = []
        for place in product(*map(range, sizes)):
            lane, inside = list(here), list[int]()
            for axis, k in zip(p.axes, place, strict=True):
                if isinstance(axis, NamedAxis):
                    lane[everyone.axes.index(axis)] = k
                else:
                    inside.append(k)
            if tuple(lane) == here:
                mine.append(len(rows))
            rows.append(offers[tuple(lane)][tuple(inside)])
        groups = p.groups or (tuple(range(len(rows))),)
        outs = []
        for number in mine:
            group = next(g for g in groups if number in g)
            outs.append(np.asarray(one_lane(rows, group, group.index(number), p)))
        own = [a for a in p.axes if not isinstance(a, NamedAxis)]
        return [np.stack(outs).reshape((*own, *outs[0].shape)).astype(x.dtype)]

    return reference


def _sum(rows: _Rows, group: Sequence[int], at: int, p: Any) -> Any:
    return np.sum([rows[k] for k in group], axis=0)


def _greatest(rows: _Rows, group: Sequence[int], at: int, p: Any) -> Any:
    return np.max([rows[k] for k in group], axis=0)


def _least(rows: _Rows, group: Sequence[int], at: int, p: Any) -> Any:
    return np.min([rows[k] for k in group], axis=0)


def _gathered(rows: _Rows, group: Sequence[int], at: int, p: Any) -> Any:
    join = np.concatenate if p.tiled else np.stack
    return join([rows[k] for k in group], p.axis)


def _part(x: _Array, count: int, at: int, axis: int, tiled: bool) -> _Array:
    return np.split(x, count, axis)[at] if tiled else np.take(x, at, axis)


def _scattered(rows: _Rows, group: Sequence[int], at: int, p: Any) -> Any:
    return _part(_sum(rows, group, at, p), len(group), at, p.axis, p.tiled)


def _exchanged(rows: _Rows, group: Sequence[int], at: int, p: Any) -> Any:
    parts = [_part(rows[k], len(group), at, p.split_axis, p.tiled) for k in group]
    return np.concatenate(parts, p.concat_axis) if p.tiled else np.stack(parts, p.concat_axis)


def _permuted(rows: _Rows, group: Sequence[int], at: int, p: Any) -> Any:
    senders = [source for source, destination in p.perm if destination == at]
    return rows[senders[0]] if senders else np.zeros_like(rows[0])


define_reference("axis_index", _axis_index)
define_reference("psum", _collective(_sum))
define_reference("pmax", _collective(_greatest))
define_reference("pmin", _collective(_least))
define_reference("all_gather", _collective(_gathered))
define_reference("psum_scatter", _collective(_scattered))
define_reference("all_to_all", _collective(_exchanged))
define_reference("ppermute", _collective(_permuted))
