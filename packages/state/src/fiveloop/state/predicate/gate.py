"""`gate`: an identity that passes a derivative only where a condition is true; linear in its value."""

from __future__ import annotations

from typing import Any

from fiveloop.core import Value, ad, ir, prims, rules, trace, transforms
from fiveloop.core.backend import hlo

gate_p: ir.Primitive[ir.NoParams] = ir.Primitive("gate")
"""`gate pred x other`: `x` where `pred` holds, elsewhere `other`, a constant; `pred` has the first axes of `x`."""


def gate(pred: Value, x: Value, other: Value | None = None) -> Value:
    """The same value, through which a derivative flows only if the condition is true.

    What is computed from it in vain may be infinite; the zero cotangent that comes back is then not a number,
    and is stopped here. Where the condition does not hold, the value is that of `other`, if given.

    >>> def inverse(x):
    ...     return select(x != 0, 1.0 / gate(x != 0, x), 0.0)
    >>> grad(inverse)(2.0).item(), grad(inverse)(0.0).item()
    (-0.25, 0.0)
    """
    other = x if other is None else other
    if other is x and not x.aval.differentiable:
        return x
    return trace.bind1(gate_p, pred, x, other, params=ir.NO_PARAMS)


def opened(pred: Value, x: Value) -> Value:
    """A tangent or a cotangent where the condition holds, zero elsewhere."""
    wide = prims.broadcast_in_dim(pred, x.shape, range(pred.ndim)) if pred.ndim else pred
    return prims.select(wide, x, transforms.zeros_of(x.aval))


def _gate_aval(avals: ir.Avals, p: ir.NoParams) -> list[ir.Aval]:
    return [avals[1]]


def _gate_lower(ctx: Any, operands: hlo.IRValues, p: ir.NoParams) -> list[hlo.IRValue]:
    pred, x, other = operands
    if other is x:
        return [x]
    axes = range(len(pred.shape))
    wide = hlo.broadcast_in_dim(ctx.b, pred, x.shape, axes) if axes else pred
    return [hlo.select(ctx.b, wide, x, other)]


def _gate_jvp(primals: ad.Values, tangents: ad.Tangents, p: ir.NoParams) -> ad.Duals:
    dot = tangents[1]
    tangent = dot if isinstance(dot, ad.Zero) else opened(primals[0], dot)
    return [trace.bind1(gate_p, *primals, params=p)], [tangent]


def _gate_transpose(cts: ad.Tangents, operands: ad.Operands, p: ir.NoParams) -> ad.Cotangents:
    (ct,), pred = cts, operands[0]
    assert isinstance(pred, Value), "unreachable: a condition is never linear"
    return [None, ct if isinstance(ct, ad.Zero) else opened(pred, ct), None]


def _gate_batch(size: int, operands: ad.Values, dims: ad.BatchAxes, p: ir.NoParams) -> ad.Batched:
    pred, x, other = operands
    if dims[0] is not None or pred.ndim:
        pred = transforms.move_batch(pred, size, dims[0])
    wide = transforms.move_batch(x, size, dims[1])
    rest = wide if other is x else transforms.move_batch(other, size, dims[2])
    return [trace.bind1(gate_p, pred, wide, rest, params=p)], [0]


rules.define(
    gate_p,
    abstract_eval=rules.pure(_gate_aval),
    lower=_gate_lower,
    jvp=_gate_jvp,
    transpose=_gate_transpose,
    batch=_gate_batch,
)
