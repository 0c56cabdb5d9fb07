"""Forward mode: the branches of values and tangents; a tangent is there if any branch gives it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fiveloop.core import Value
from fiveloop.core.engine import split_list
from fiveloop.core.extend import Tangent, Zero, bind, jvp_jaxpr, nonzero_mask, zero_like
from fiveloop.loops.primitives.cond import CondParams, cond_p


def cond_jvp(
    primals: Sequence[Value], tangents: Sequence[Tangent], p: CondParams
) -> tuple[list[Value], list[Tangent]]:
    """Choose once, for values and those tangents that may be nonzero."""
    nonzero = nonzero_mask(tangents[1:])
    found = [jvp_jaxpr(b, nonzero)[1] for b in p.branches]
    out_nonzero = [any(masks) for masks in zip(*found, strict=True)]
    # branch     : [*ins]                    -> [*outs]
    # branch_jvp : [*ins, *nonzero in_dots]  -> [*outs, *nonzero out_dots]
    branches = tuple(jvp_jaxpr(b, nonzero, out_nonzero)[0] for b in p.branches)
    dots = [t for t in tangents if not isinstance(t, Zero)]
    results = bind(cond_p, *primals, *dots, params=replace(p, branches=branches))
    outs, outs_dot = split_list(results, [len(out_nonzero)])
    rest = iter(outs_dot)
    return outs, [
        next(rest) if nz else zero_like(x) for nz, x in zip(out_nonzero, outs, strict=True)
    ]
