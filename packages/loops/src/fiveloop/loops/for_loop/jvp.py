"""Forward mode: one loop over the Refs followed by the tangents that may become nonzero."""

from __future__ import annotations

from dataclasses import replace

from fiveloop.core import ad, trace, transforms, util
from fiveloop.loops.common import body_with_dots, dots_behind, with_tangents
from fiveloop.loops.primitives.for_loop import ForParams, for_p, is_state, stateful


def for_jvp(primals: ad.Values, tangents: ad.Tangents, p: ForParams) -> ad.Duals:
    """Loop once, over values and tangents."""
    p = stateful(p)
    states = is_state(p, primals)
    nonzero = with_tangents(p.body, transforms.nonzero_mask(tangents), states)
    dots = [transforms.instantiate(t) for t, nz in zip(tangents, nonzero, strict=True) if nz]
    sizes = [p.num_consts]
    # p.body : [i, *consts, *refs]                            -> []
    # body   : [i, *consts, *const_dots, *refs, *ref_dots]    -> []
    body = body_with_dots(p.body, 1, sizes, nonzero)
    num_consts = p.num_consts + sum(nonzero[: p.num_consts])
    params = replace(p, body=body, num_consts=num_consts, record=p.record.pushed())
    operands = dots_behind(sizes, nonzero, primals, dots)
    results = trace.bind(for_p, *operands, params=params)
    num_outs = sum(states)
    outs, rest = results[:num_outs], results[num_outs:]
    out_nonzero = util.select_by(states, nonzero)
    return outs, transforms.with_zeros(out_nonzero, rest, [x.aval for x in outs])
