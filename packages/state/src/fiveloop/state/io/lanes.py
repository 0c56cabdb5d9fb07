"""The calls of one equation under `vmap`: one per lane, in the order of the lanes, or one for all, stacked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fiveloop.core import trace, util
from fiveloop.state.io.host import HostArray
from fiveloop.state.io.primitive import CallbackParams


def make_calls(p: CallbackParams, operands: Sequence[HostArray]) -> list[HostArray]:
    """The results of an equation on NumPy arrays; a token comes out as it went in."""
    token, rest = util.split_list(operands, [int(p.has_token)])
    if not p.batches and not p.conditional:
        return [*token, *_called(p, rest)]
    calls = _one_stacked if p.stacked and p.batches else _one_a_lane
    return [*token, *calls(p, rest)]


def _called(
    p: CallbackParams, arrays: Sequence[HostArray], lead: tuple[int, ...] = ()
) -> list[HostArray]:
    """One call; it is made once also where a mode runs the program again."""
    if p.kind == "pure":
        return p.call(arrays, lead)
    results = p.call.results
    return trace.made_once((results.what, results.source), arrays, lambda: p.call(arrays, lead))


def _one_a_lane(p: CallbackParams, operands: Sequence[HostArray]) -> list[HostArray]:
    outs = _zeros(p)
    for lane in np.ndindex(*p.lead):
        mine = [x[_place(p, k, lane)] for k, x in enumerate(operands)]
        if p.conditional and not mine.pop(0):
            continue
        for out, result in zip(outs, _called(p, mine), strict=True):
            out[lane] = result
    return outs


def _place(p: CallbackParams, k: int, lane: Sequence[int]) -> tuple[int, ...]:
    """Where an operand has what belongs to a lane."""
    return tuple(i for i, b in zip(lane, reversed(p.batches), strict=True) if b.batched[k])


def _one_stacked(p: CallbackParams, operands: Sequence[HostArray]) -> list[HostArray]:
    """One call on the lanes whose condition holds, if there are any; with a condition they are in one axis."""
    full = [_in_all_lanes(p, k, x) for k, x in enumerate(operands)]
    if not p.conditional:
        return _called(p, full, p.lead)
    taken, outs = full.pop(0), _zeros(p)
    count = int(taken.sum())
    if count:
        results = _called(p, [x[taken] for x in full], (count,))
        for out, result in zip(outs, results, strict=True):
            out[taken] = result
    return outs


def _in_all_lanes(p: CallbackParams, k: int, x: HostArray) -> HostArray:
    """An operand with the axes of all batches, those that it does not have repeated."""
    has = [b.batched[k] for b in reversed(p.batches)]
    index = tuple(slice(None) if h else None for h in has)
    return np.broadcast_to(x[index], (*p.lead, *x.shape[sum(has) :]))


def _zeros(p: CallbackParams) -> list[HostArray]:
    return [np.zeros((*p.lead, *a.shape), a.dtype) for a in p.avals]
