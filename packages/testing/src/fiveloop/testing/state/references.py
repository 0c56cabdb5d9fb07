"""References of the primitives on Refs: a Ref is a Cell, and an index is followed element by element.

Only the dataclasses of the index's normal form are read; what they mean is written here anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fiveloop.core.extend import NoParams
from fiveloop.core.index.indexer import At, Indexer, Lane, Pick, Span
from fiveloop.testing.core.oracle import Cell, OracleError, define_reference
from fiveloop.testing.core.reference_running import cipher

_Array = np.ndarray[Any, Any]
_Place = tuple[int, ...]


def places(
    indexer: Indexer, index: Sequence[_Array], shape: Sequence[int]
) -> Iterator[tuple[_Place, _Place]]:
    """For each element of what an index selects: where it stands in the result, and where in the array.

    Of one that drops, those that lie in the array.
    """
    operands = _operands(indexer, index)
    spans = [axis for axis, e in enumerate(indexer.entries) if isinstance(e, Span)]
    names: list[Any] = [("span", axis) for axis in spans]
    names[indexer.pick_axis : indexer.pick_axis] = [
        ("pick", k) for k in range(len(indexer.pick_shape))
    ]
    for position in indexer.new_axes:
        names.insert(position, ("new", 0))
    names = [("lead", k) for k in range(len(indexer.lead))] + names
    sizes = [_size(indexer, name) for name in names]
    for place in np.ndindex(*sizes):
        where = dict(zip(names, place, strict=True))
        at = tuple(
            _coordinate(entry, axis, indexer, operands.get(axis), shape[axis], where)
            for axis, entry in enumerate(indexer.entries)
        )
        if not indexer.drops or all(0 <= i < n for i, n in zip(at, shape, strict=True)):
            yield place, at


def _operands(indexer: Indexer, index: Sequence[_Array]) -> dict[int, _Array]:
    given = iter(index)
    return {
        axis: next(given)
        for axis, e in enumerate(indexer.entries)
        if isinstance(e, Pick) or (isinstance(e, (At, Span)) and e.start is None)
    }


def _size(indexer: Indexer, name: tuple[str, int]) -> int:
    kind, k = name
    if kind == "lead":
        return indexer.lead[k]
    if kind == "pick":
        return indexer.pick_shape[k]
    entry = indexer.entries[k] if kind == "span" else None
    return entry.size if isinstance(entry, Span) else 1


def _coordinate(
    entry: Any,
    axis: int,
    indexer: Indexer,
    operand: _Array | None,
    size: int,
    where: dict[Any, int],
) -> int:
    lanes = tuple(where["lead", k] for k, paired in enumerate(indexer.paired) if paired)
    match entry:
        case Lane(lead):
            return where["lead", lead]
        case Pick():
            assert operand is not None
            picks = tuple(where["pick", k] for k in range(len(indexer.pick_shape)))
            return _position(int(operand[(*lanes, *picks)]), size, 1, indexer.drops)
        case At(int(start)):
            return start
        case At():
            assert operand is not None
            return _position(int(operand[lanes]), size, 1, indexer.drops)
    extent, start = (entry.size - 1) * abs(entry.stride) + 1, entry.start
    if operand is not None:
        start = _position(int(operand[lanes]), size, extent, indexer.drops)
    return int(start + where["span", axis] * entry.stride)


def _position(i: int, size: int, extent: int, drops: bool) -> int:
    """A run-time index: a negative one counts from the end; unless it drops, it is moved until the block fits."""
    i = i + size if i < 0 else i
    return i if drops else min(max(i, 0), size - extent)


def _live(ref: Any) -> Cell:
    if not isinstance(ref, Cell) or ref.frozen:
        raise OracleError(f"expected a live Ref, got {ref}")
    return ref


def _get(values: Sequence[Any], p: Any) -> list[Any]:
    ref, *index = values
    array = _live(ref).array
    out = np.zeros(p.indexer.result_shape, array.dtype)
    for place, source in places(p.indexer, index, array.shape):
        out[place] = array[source]
    return [out]


def _swap(values: Sequence[Any], p: Any) -> list[Any]:
    ref, new, *index = values
    old = _get([ref, *index], p)
    array = _live(ref).array
    for place, target in places(p.indexer, index, array.shape):
        array[target] = new[place]
    return old if p.returns_old else []


def _addupdate(values: Sequence[Any], p: Any) -> list[Any]:
    ref, share, *index = values
    array = _live(ref).array
    for place, target in places(p.indexer, index, array.shape):
        array[target] += share[place]
    return []


_COMBINE = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
}


def _accumulate(values: Sequence[Any], p: Any) -> list[Any]:
    ref, share, *index = values
    array = _live(ref).array
    for place, target in places(p.indexer, index, array.shape):
        array[target] = _COMBINE[p.monoid](array[target], share[place])
    return []


def _freeze(values: Sequence[Any], p: Any) -> list[Any]:
    ref = _live(values[0])
    ref.frozen = True
    return [ref.array]


def _next_key(values: Sequence[Any], p: Any) -> list[Any]:
    ref, *condition = values
    high, low, count = (int(word) for word in _live(ref).array)
    if not condition or condition[0]:
        ref.array[2] = (count + 1) % 2**32
    return [np.array(cipher(high, low, 0, count), np.uint32)]


def _check(values: Sequence[Any], p: Any) -> list[Any]:
    if not values[0].all():
        raise OracleError(f"a check has failed: {p.site.message}")
    return []


def _callback(values: Sequence[Any], p: Any) -> list[Any]:
    """A call of Python is made: in each lane, or on a stack of all."""
    token, rest = list(values[: p.has_token]), list(values[p.has_token :])
    if not p.stacked:
        return [*token, *_lane_by_lane(rest, p, p.batches)]
    full = [_repeated(x, [b.batched[k] for b in p.batches], p) for k, x in enumerate(rest)]
    lanes = full.pop(0) if p.conditional else np.ones(p.lead, bool)
    if p.conditional and not p.batches:
        return [*token, *_lane_by_lane(rest, p, ())]
    lead = (int(lanes.sum()),) if p.conditional else p.lead
    given = [x[lanes].reshape((*lead, *x.shape[len(p.lead) :])) for x in full]
    outs = [np.zeros((*p.lead, *a.shape), a.dtype) for a in p.avals]
    for out, made in zip(outs, p.call(given, lead) if lanes.any() else [], strict=False):
        out[lanes] = made.reshape((-1, *out.shape[len(p.lead) :]))
    return [*token, *outs]


def _lane_by_lane(values: Sequence[Any], p: Any, batches: Sequence[Any]) -> list[Any]:
    if batches:
        *inner, outer = batches
        outs = [
            np.zeros((outer.size, *(b.size for b in inner[::-1]), *a.shape), a.dtype)
            for a in p.avals
        ]
        for k in range(outer.size):
            lane = [x[k] if b else x for x, b in zip(values, outer.batched, strict=True)]
            for out, made in zip(outs, _lane_by_lane(lane, p, inner), strict=True):
                out[k] = made
        return outs
    if p.conditional and not values[0]:
        return [np.zeros(a.shape, a.dtype) for a in p.avals]
    return list(p.call(values[1:] if p.conditional else values))


def _repeated(x: Any, batched: Sequence[bool], p: Any) -> Any:
    """An array with an axis for each batch, innermost last."""
    for k, b in enumerate(reversed(batched)):
        if not b:
            x = np.expand_dims(x, k)
    return np.broadcast_to(x, (*p.lead, *x.shape[len(p.lead) :]))


def _gate(values: Sequence[Any], p: NoParams) -> list[Any]:
    pred, x, other = map(np.asarray, values)
    return [np.where(pred.reshape(pred.shape + (1,) * (x.ndim - pred.ndim)), x, other)]


define_reference("callback", _callback)
define_reference("get", _get)
define_reference("swap", _swap)
define_reference("addupdate", _addupdate)
define_reference("accumulate", _accumulate)
define_reference("new_ref", lambda values, p: [Cell(np.array(values[0]))])
define_reference("freeze", _freeze)
define_reference("check", _check)
define_reference("next_key", _next_key)
define_reference("follow", lambda values, p: [values[1]])
define_reference("gate", _gate)
