"""References of the primitives on Refs: a Ref is a Cell, and an index is followed axis by axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fiveloop.core.extend import NoParams
from fiveloop.core.ir.indexer import Indexer
from fiveloop.testing.core.oracle import Cell, OracleError, define_reference
from fiveloop.testing.core.reference_index import Places, dynamic_axes, places, put, taken
from fiveloop.testing.core.reference_running import cipher

_Array = np.ndarray[Any, Any]


def _places(indexer: Indexer, index: Sequence[_Array], shape: Sequence[int]) -> Places:
    """Where each element that an index of a Ref selects stands in the Ref."""
    sizes = [shape[k] for k in dynamic_axes(indexer)]
    pairs = [(np.asarray(i).astype(np.int64), n) for i, n in zip(index, sizes, strict=True)]
    return places(indexer, [np.where(i < 0, i + n, i) for i, n in pairs], shape)


def _live(ref: Any) -> Cell:
    if not isinstance(ref, Cell) or ref.frozen:
        raise OracleError(f"expected a live Ref, got {ref}")
    return ref


def _get(values: Sequence[Any], p: Any) -> list[Any]:
    ref, *index = values
    array = _live(ref).array
    return [taken(array, _places(p.indexer, index, array.shape))]


def _swap(values: Sequence[Any], p: Any) -> list[Any]:
    ref, new, *index = values
    old = _get([ref, *index], p)
    _combine(ref, new, index, p.indexer, "set")
    return old if p.returns_old else []


def _addupdate(values: Sequence[Any], p: Any) -> list[Any]:
    ref, share, *index = values
    _combine(ref, share, index, p.indexer, "add")
    return []


def _accumulate(values: Sequence[Any], p: Any) -> list[Any]:
    ref, share, *index = values
    _combine(ref, share, index, p.indexer, p.monoid)
    return []


def _combine(ref: Any, new: _Array, index: Sequence[_Array], indexer: Indexer, kind: str) -> None:
    array = _live(ref).array
    array[...] = put(array, new, _places(indexer, index, array.shape), kind)


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
define_reference("live", lambda values, p: [values[1]])
