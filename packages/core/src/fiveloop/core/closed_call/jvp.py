"""Forward mode: call the jaxpr of values and tangents."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fiveloop.core import ad, ir, transforms, util
from fiveloop.core.arrays import Value
from fiveloop.core.closed_call.bind import bind_call


def call_jvp(
    prim: ir.Primitive[Any], primals: ad.Values, tangents: ad.Tangents, p: Any
) -> ad.Duals:
    """Call once, for values and those tangents that may be nonzero; for any primitive that calls `p.jaxpr`.

    A tangent is a value or `Zero`, and so are those given back. As a cell: `partial(call_jvp, prim)`.

    >>> p = ClosedCallParams(make_jaxpr(lambda x, y: (x * x, y))(1.0, 1.0))
    >>> x, y = as_value(3.0), as_value(4.0)
    >>> outs, tangents = call_jvp(closed_call_p, [x, y], [as_value(1.0), zero_like(y)], p)
    >>> [out.item() for out in outs], tangents[0].item(), tangents[1]
    ([9.0, 4.0], 6.0, Zero(aval=f32[]))
    """
    return jvp_of(
        p.jaxpr, primals, tangents, lambda j, args: bind_call(prim, args, replace(p, jaxpr=j))
    )


def jvp_of(
    jaxpr: ir.Jaxpr,
    primals: ad.Values,
    tangents: ad.Tangents,
    run: Callable[[ir.Jaxpr, ad.Values], list[Value]] = transforms.eval_jaxpr,
) -> ad.Duals:
    """Results and tangents of a jaxpr; `run` runs the jaxpr of both."""
    # jaxpr     : [*ins]                    -> [*outs]
    # jaxpr_jvp : [*ins, *nonzero in_dots]  -> [*outs, *nonzero out_dots]
    jaxpr_jvp, out_nonzero = transforms.jvp_jaxpr(jaxpr, transforms.nonzero_mask(tangents))
    dots = [t for t in tangents if not isinstance(t, ad.Zero)]
    outs, outs_dot = util.split_list(run(jaxpr_jvp, [*primals, *dots]), [len(out_nonzero)])
    return outs, transforms.with_zeros(out_nonzero, outs_dot, [x.aval for x in outs])
