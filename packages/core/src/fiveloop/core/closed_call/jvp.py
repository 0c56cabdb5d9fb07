"""Forward mode: call the jaxpr of values and tangents."""

from __future__ import annotations

from typing import Any

from fiveloop.core import ad, ir, transforms, util
from fiveloop.core.arrays import Value
from fiveloop.core.closed_call.bind import bind_call
from fiveloop.core.closed_call.bodies import changed_alike, num_choosing


def call_jvp(
    prim: ir.Primitive[Any], primals: ad.Values, tangents: ad.Tangents, p: Any
) -> ad.Duals:
    """Call once, for values and those tangents that may be nonzero; for any primitive that calls its jaxprs.

    A tangent is a value or `Zero`, and so are those given back. As a cell: `partial(call_jvp, prim)`.

    >>> p = ClosedCallParams(make_jaxpr(lambda x, y: (x * x, y))(1.0, 1.0))
    >>> x, y = as_value(3.0), as_value(4.0)
    >>> outs, tangents = call_jvp(closed_call_p, [x, y], [as_value(1.0), zero_like(y)], p)
    >>> [out.item() for out in outs], tangents[0].item(), tangents[1]
    ([9.0, 4.0], 6.0, Zero(aval=f32[]))
    """
    nonzero = transforms.nonzero_mask(tangents[num_choosing(p, primals) :])
    # jaxpr     : [*ins]                    -> [*outs]
    # jaxpr_jvp : [*ins, *nonzero in_dots]  -> [*outs, *nonzero out_dots]
    params, out_nonzero = changed_alike(p, lambda j, inst: transforms.jvp_jaxpr(j, nonzero, inst))
    return _called(out_nonzero, bind_call(prim, [*primals, *_dots(tangents)], params))


def jvp_of(jaxpr: ir.Jaxpr, primals: ad.Values, tangents: ad.Tangents) -> ad.Duals:
    """Results and tangents of a jaxpr, run operation by operation."""
    jaxpr_jvp, out_nonzero = transforms.jvp_jaxpr(jaxpr, transforms.nonzero_mask(tangents))
    return _called(out_nonzero, transforms.eval_jaxpr(jaxpr_jvp, [*primals, *_dots(tangents)]))


def _dots(tangents: ad.Tangents) -> list[Value]:
    return [t for t in tangents if not isinstance(t, ad.Zero)]


def _called(out_nonzero: util.Mask, results: ad.Values) -> ad.Duals:
    outs, dots = util.split_list(results, [len(out_nonzero)])
    return outs, transforms.with_zeros(out_nonzero, dots, [x.aval for x in outs])
