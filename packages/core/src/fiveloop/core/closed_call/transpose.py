"""Transposition: call the transposed jaxpr."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fiveloop.core import ad, ir, transforms
from fiveloop.core.closed_call.bind import bind_call


def call_transpose(
    prim: ir.Primitive[Any], cts: ad.Tangents, operands: ad.Operands, p: Any
) -> ad.Cotangents:
    """Call the transpose on the values, the accumulators and the nonzero cotangents; for any that calls `p.jaxpr`.

    Gives a cotangent for each linear operand (an `UndefinedPrimal` or an `Accumulator`), and None for each other.
    As a cell: `partial(call_transpose, prim)`.

    >>> p = ClosedCallParams(make_jaxpr(lambda x, y: x * y)(1.0, 1.0))
    >>> x = UndefinedPrimal(ShapedArray((), np.float32))
    >>> call_transpose(closed_call_p, [as_value(2.0)], [x, as_value(3.0)], p)
    [Array(6., dtype=float32), None]
    """
    linear = tuple(transforms.is_linear(x) for x in operands)
    # p.jaxpr : [*ins]                                        -> [*outs]
    # jaxpr_t : [*values and accumulators, *nonzero cts]      -> [*nonzero in cts]
    jaxpr_t, in_nonzero = transforms.transpose_jaxpr(
        p.jaxpr, linear, transforms.nonzero_mask(cts), operands
    )
    args = [x for x in map(transforms.passed, operands) if x is not None]
    args += [ct for ct in cts if not isinstance(ct, ad.Zero)]
    results = iter(bind_call(prim, args, replace(p, jaxpr=jaxpr_t)))
    return [
        (next(results) if nz else ad.Zero(x.aval)) if lin else None
        for x, lin, nz in zip(operands, linear, in_nonzero, strict=True)
    ]
