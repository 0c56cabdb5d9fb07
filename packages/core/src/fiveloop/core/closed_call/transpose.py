"""Transposition: call the transposed jaxpr."""

from __future__ import annotations

from typing import Any

from fiveloop.core import ad, ir, trace, transforms, util
from fiveloop.core.arrays import Value
from fiveloop.core.closed_call.bind import bind_call
from fiveloop.core.closed_call.bodies import changed_alike, num_choosing


def call_transpose(
    prim: ir.Primitive[Any], cts: ad.Tangents, operands: ad.Operands, p: Any
) -> ad.Cotangents:
    """Call the transpose on the values, the accumulators and the nonzero cotangents; for any that calls its jaxprs.

    Gives a cotangent for each linear operand (an `UndefinedPrimal` or an `Accumulator`), and None for each other.
    As a cell: `partial(call_transpose, prim)`.

    >>> p = ClosedCallParams(make_jaxpr(lambda x, y: x * y)(1.0, 1.0))
    >>> x = UndefinedPrimal(ShapedArray((), np.float32))
    >>> call_transpose(closed_call_p, [as_value(2.0)], [x, as_value(3.0)], p)
    [Array(6., dtype=float32), None]
    """
    first = num_choosing(p, operands)
    linear = tuple(transforms.is_linear(x) for x in operands)
    nonzero = transforms.nonzero_mask(cts)
    params, in_nonzero = changed_alike(
        p, lambda j, wanted: _transposed(j, linear[first:], nonzero, wanted, operands[first:])
    )
    args = [x for x in map(transforms.passed, operands) if x is not None]
    args += [ct for ct in cts if not isinstance(ct, ad.Zero)]
    results = iter(bind_call(prim, args, params))
    in_cts: ad.Cotangents = [
        (next(results) if nz else ad.Zero(x.aval)) if lin else None
        for x, lin, nz in zip(operands[first:], linear[first:], in_nonzero, strict=True)
    ]
    return [*[None] * first, *in_cts]


def _transposed(
    jaxpr: ir.Jaxpr,
    linear: util.Mask,
    nonzero: util.Mask,
    wanted: bool | util.Mask,
    operands: ad.Operands,
) -> tuple[ir.Jaxpr, util.Mask]:
    """The transpose of a jaxpr, with zeros for the cotangents of `wanted` that only other jaxprs give.

    jaxpr   : [*ins]                                    -> [*outs]
    jaxpr_t : [*values and accumulators, *nonzero cts]  -> [*nonzero in cts]
    """
    jaxpr_t, given = transforms.transpose_jaxpr(jaxpr, linear, nonzero, operands)
    if isinstance(wanted, bool) or wanted == given:
        return jaxpr_t, given

    def run(*args: Value) -> list[Value]:
        outs = iter(transforms.eval_jaxpr(jaxpr_t, args))
        masks = zip(given, wanted, jaxpr.in_avals, strict=True)
        return [next(outs) if g else transforms.zeros_of(a) for g, w, a in masks if w]

    key = ("with zeros", wanted)
    stage = lambda: trace.stage_closed(run, jaxpr_t.in_avals, jaxpr.name)
    return jaxpr_t.remember(key, stage), wanted
