"""Forward mode: call the jaxpr of values and tangents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fiveloop.core.array import Value
from fiveloop.core.closed_call.bind import bind_call
from fiveloop.core.ir.jaxpr import Primitive
from fiveloop.core.rule_types import Zero
from fiveloop.core.transforms.jvp import jvp_jaxpr
from fiveloop.core.transforms.zeros import Tangent, nonzero_mask, zero_like
from fiveloop.core.util import split_list


def call_jvp(
    prim: Primitive[Any], primals: Sequence[Value], tangents: Sequence[Tangent], p: Any
) -> tuple[list[Value], list[Tangent]]:
    """Call once, for values and those tangents that may be nonzero; for any primitive that calls `p.jaxpr`."""
    nonzero = nonzero_mask(tangents)
    # p.jaxpr   : [*ins]                    -> [*outs]
    # jaxpr_jvp : [*ins, *nonzero in_dots]  -> [*outs, *nonzero out_dots]
    jaxpr_jvp, out_nonzero = jvp_jaxpr(p.jaxpr, nonzero)
    dots = [t for t in tangents if not isinstance(t, Zero)]
    results = bind_call(prim, [*primals, *dots], replace(p, jaxpr=jaxpr_jvp))
    outs, outs_dot = split_list(results, [len(out_nonzero)])
    rest = iter(outs_dot)
    return outs, [
        next(rest) if nz else zero_like(x) for nz, x in zip(out_nonzero, outs, strict=True)
    ]
