"""Transposition: call the transposed jaxpr."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fiveloop.core.closed_call.bind import bind_call
from fiveloop.core.ir.jaxpr import Primitive
from fiveloop.core.rules import Operand, Tangent, Zero
from fiveloop.core.transforms.transpose import is_linear, passed, transpose_jaxpr
from fiveloop.core.transforms.zeros import nonzero_mask


def call_transpose(
    prim: Primitive[Any], cts: Sequence[Tangent], operands: Sequence[Operand], p: Any
) -> list[Tangent | None]:
    """Call the transpose on the values, the accumulators and the nonzero cotangents; for any that calls `p.jaxpr`.

    Gives a cotangent for each linear operand (an `UndefinedPrimal` or an `Accumulator`), and None for each other.
    As a cell: `partial(call_transpose, prim)`.

    >>> p = ClosedCallParams(make_jaxpr(lambda x, y: x * y)(1.0, 1.0))
    >>> x = UndefinedPrimal(ShapedArray((), np.float32))
    >>> call_transpose(closed_call_p, [as_value(2.0)], [x, as_value(3.0)], p)
    [Array(6., dtype=float32), None]
    """
    linear = tuple(is_linear(x) for x in operands)
    # p.jaxpr : [*ins]                                        -> [*outs]
    # jaxpr_t : [*values and accumulators, *nonzero cts]      -> [*nonzero in cts]
    jaxpr_t, in_nonzero = transpose_jaxpr(p.jaxpr, linear, nonzero_mask(cts), operands)
    args = [x for x in map(passed, operands) if x is not None]
    args += [ct for ct in cts if not isinstance(ct, Zero)]
    results = iter(bind_call(prim, args, replace(p, jaxpr=jaxpr_t)))
    return [
        (next(results) if nz else Zero(x.aval)) if lin else None
        for x, lin, nz in zip(operands, linear, in_nonzero, strict=True)
    ]
