"""Forward mode: the states followed by the tangents that may be nonzero, in both passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fiveloop.core import ad, trace, transforms, util
from fiveloop.loops import common
from fiveloop.loops.primitives.replay import ReplayParams, replay_p


def replay_jvp(primals: ad.Values, tangents: ad.Tangents, p: ReplayParams) -> ad.Duals:
    """Run both passes once, over values and tangents; of tangents nothing is saved yet."""
    num = p.num_operands
    p, primals = p.without_cache(primals)
    nonzero = _nonzero(p, transforms.nonzero_mask(tangents[1:num]))
    dots = [transforms.instantiate(t) for t, nz in zip(tangents[1:num], nonzero, strict=True) if nz]
    sizes, counts = [p.num_consts, p.num_forward], [sum(mask) for mask in p.parts(nonzero)]
    n, *values = primals
    # body : [k, *consts, *forward, *backward]
    # made : [k, *consts, *const_dots, *forward, *forward_dots, *backward, *backward_dots]
    params = replace(
        p,
        forward=common.body_with_dots(p.forward, 1, sizes, nonzero),
        backward=common.body_with_dots(p.backward, 1, sizes, nonzero),
        num_consts=p.num_consts + counts[0],
        lane_counts=0,
        record=p.record.pushed(),
    )
    operands = common.dots_behind(sizes, nonzero, values, dots)
    results = trace.bind(replay_p, n, *operands, params=params)
    sizes = [p.num_forward, counts[1], p.num_backward]
    forward, forward_dots, backward, backward_dots = util.split_list(results, sizes)
    outs = [*forward, *backward]
    out_dots = transforms.with_zeros(
        nonzero[p.num_consts :], [*forward_dots, *backward_dots], [x.aval for x in outs]
    )
    return outs, out_dots


def _nonzero(p: ReplayParams, seeds: Sequence[bool]) -> util.Mask:
    """Which operands after the number of steps may have a tangent in some step."""
    consts, forward, backward = p.parts(seeds)
    states = [k >= p.num_consts for k in range(len(seeds))]
    num = len(consts) + len(forward)
    ahead = common.with_tangents(p.forward, [*consts, *forward], states[:num])
    return common.with_tangents(p.backward, [*ahead, *backward], states)
