"""Forward mode: the states followed by the tangents that may be nonzero, on both ways."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fiveloop.core import Jaxpr, ad, trace, transforms, util
from fiveloop.loops.common import with_tangents
from fiveloop.loops.primitives.replay import ReplayParams, replay_p


def replay_jvp(primals: ad.Values, tangents: ad.Tangents, p: ReplayParams) -> ad.Duals:
    """Go both ways once, over values and tangents; of tangents nothing is saved yet."""
    num = p.num_operands
    p, primals = p.without_cache(primals)
    nonzero = _nonzero(p, transforms.nonzero_mask(tangents[1:num]))
    dots = [transforms.instantiate(t) for t, nz in zip(tangents[1:num], nonzero, strict=True) if nz]
    made = util.split_list(dots, [sum(mask) for mask in p.parts(nonzero)[:2]])
    n, *values = primals
    operands = [x for part, more in zip(p.parts(values), made, strict=True) for x in (*part, *more)]
    params = replace(
        p,
        forward=_with_dots(p, p.forward, nonzero),
        backward=_with_dots(p, p.backward, nonzero),
        num_consts=p.num_consts + len(made[0]),
        lane_counts=0,
        record=p.record.pushed(),
    )
    results = trace.bind(replay_p, n, *operands, params=params)
    sizes = [p.num_forward, len(made[1]), p.num_backward]
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
    ahead = with_tangents(p.forward, [*consts, *forward], states[:num])
    return with_tangents(p.backward, [*ahead, *backward], states)


def _with_dots(p: ReplayParams, body: Jaxpr, nonzero: util.Mask) -> Jaxpr:
    """A body on values and tangents, each part followed by its tangents.

    body     : [k, *consts, *forward, *backward]
    body_jvp : [k, *consts, *forward, *backward, *const_dots, *forward_dots, *backward_dots]
    made     : [k, *consts, *const_dots, *forward, *forward_dots, *backward, *backward_dots]
    """
    num = len(body.invars)
    mask = nonzero[: num - 1]
    body_jvp, _ = transforms.jvp_jaxpr(body, (False, *mask))
    k, *binders = body_jvp.invars[:num]
    sizes = [sum(m) for m in p.parts(mask)]
    dots = util.split_list(body_jvp.invars[num:], sizes[:2])
    parts = zip(p.parts(binders), dots, strict=True)
    return body_jvp.replace(invars=[k, *[v for part, more in parts for v in (*part, *more)]])
