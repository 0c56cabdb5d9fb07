"""Forward mode: the branches of values and tangents; a tangent is there if any branch gives it."""

from __future__ import annotations

from dataclasses import replace

from fiveloop.core import ad, trace, transforms, util
from fiveloop.loops.primitives.cond import CondParams, cond_p


def cond_jvp(primals: ad.Values, tangents: ad.Tangents, p: CondParams) -> ad.Duals:
    """Choose once, for values and those tangents that may be nonzero."""
    nonzero = transforms.nonzero_mask(tangents[1:])
    found = [transforms.jvp_jaxpr(b, nonzero)[1] for b in p.branches]
    out_nonzero = [any(masks) for masks in zip(*found, strict=True)]
    # branch     : [*ins]                    -> [*outs]
    # branch_jvp : [*ins, *nonzero in_dots]  -> [*outs, *nonzero out_dots]
    branches = tuple(transforms.jvp_jaxpr(b, nonzero, out_nonzero)[0] for b in p.branches)
    dots = [t for t in tangents if not isinstance(t, ad.Zero)]
    results = trace.bind(cond_p, *primals, *dots, params=replace(p, branches=branches))
    outs, outs_dot = util.split_list(results, [len(out_nonzero)])
    rest = iter(outs_dot)
    return outs, [
        next(rest) if nz else transforms.zero_like(x)
        for nz, x in zip(out_nonzero, outs, strict=True)
    ]
