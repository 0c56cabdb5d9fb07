"""Batching: one loop for all lanes, as long as the longest; a lane that has ended does not change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fiveloop.core import Jaxpr, Value, ad, ir, prims, trace, transforms, util
from fiveloop.loops.common import reached
from fiveloop.loops.primitives.replay import ReplayParams, replay_p
from fiveloop.loops.primitives.slots import COUNT
from fiveloop.state import AbstractRef, predicate


def replay_batch(size: int, operands: ad.Values, dims: ad.BatchAxes, p: ReplayParams) -> ad.Batched:
    """Run both passes once for the whole batch; the states are saved for all lanes together."""
    num = p.num_operands
    if any(d is not None for d in dims[num : num + 2]):
        # The lanes have saved their states at steps of their own.
        p, operands = p.without_cache(operands)
        dims = dims[:num]
    if dims[0] is not None:
        longest = prims.reduce_max(operands[0]) if size else transforms.zeros_of(COUNT)
        own = tuple(d is not None for d in dims[1 : 1 + p.num_consts])
        return replay_batch(size, [longest, *operands], [None, *dims], _masked(p, own))
    batched = _batched(size, p, [d is not None for d in dims[1:num]])
    own = (*[False] * (1 + p.num_consts), *[True] * (p.num_forward + p.num_backward))

    def over_lanes(body: Jaxpr) -> Jaxpr:
        num = len(body.invars)
        return transforms.batch_jaxpr(body, size, (False, *batched[: num - 1]), own=own[:num])[0]

    moved = transforms.in_front(size, operands[:num], dims[:num], (False, *batched))
    params = replace(p, forward=over_lanes(p.forward), backward=over_lanes(p.backward))
    cache = _cache(size, p, operands[num:], dims[num:], batched)
    outs = trace.bind(replay_p, *moved, *cache, params=params)
    return outs, [0 if b else None for b in batched[p.num_consts :]]


def _cache(
    size: int, p: ReplayParams, cache: ad.Values, dims: ad.BatchAxes, batched: util.Mask
) -> list[Value]:
    """What is saved already, with the batch axis behind the slots."""
    ahead = p.parts(batched)[1]
    of_lanes = [b for b, c in zip(ahead, p.cached, strict=False) if c]
    return [
        *cache[:2],
        *[
            transforms.move_batch(x, size, d, 1) if b else x
            for x, d, b in zip(cache[2:], dims[2:], of_lanes, strict=True)
        ],
    ]


def _batched(size: int, p: ReplayParams, given: Sequence[bool]) -> util.Mask:
    """Which operands after the number of steps are batched in some step."""
    find = lambda body, seeds, fixed: transforms.batched_vars(body, size, seeds, fixed)
    consts, ahead, back = p.parts(given)
    states = [k >= p.num_consts for k in range(len(given))]
    forward = reached(p.forward, [*consts, *ahead], states[: len(given) - len(back)], find)
    return reached(p.backward, [*forward, *back], states, find)


def _masked(p: ReplayParams, own: util.Mask) -> ReplayParams:
    """The loop of one lane among others, which has its own of some constants: its number of steps is the first."""
    states = (True,) * (p.num_forward + p.num_backward)
    shares = predicate.shares(p.backward, (True, *own, *states))
    return replace(
        p,
        forward=_masked_body(p.forward, shares),
        backward=_masked_body(p.backward, shares),
        num_consts=p.num_consts + 1,
        lane_counts=p.lane_counts + 1,
    )


@ir.once_per_jaxpr
def _masked_body(body: Jaxpr, shares: bool) -> Jaxpr:
    """A body that changes nothing in steps that the lane does not make.

    body   : [k, *consts, *states]     -> []
    masked : [k, n, *consts, *states]  -> []
    """
    refs = tuple(isinstance(a, AbstractRef) for a in body.in_avals)
    guard = predicate.Guard(refs, (True,) * len(refs), shares, late=True)

    def run(k: Value, n: Value, *rest: Value) -> list[Value]:
        return predicate.eval_predicated(k < n, body, [k, *rest], guard)

    avals, hints = body.in_avals[1:], body.hints[1:]
    named = ["", "steps of the lane", *hints]
    return trace.stage_closed(run, [COUNT, COUNT, *avals], body.name, named)
