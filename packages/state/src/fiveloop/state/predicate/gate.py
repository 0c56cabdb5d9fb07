"""Identities that pass a derivative only where a condition is true: `gate`, linear in its value, and `follow`.

`follow`: under `vmap`, lanes whose condition is false use the operands of a lane whose condition is true. What such a
lane computes in vain from its own values may be infinite or NaN, and zero times that is a NaN in the cotangents of
values that the lanes share. A gate keeps it from the lane's own values, but a shared value would have to be copied for
each lane to have a gate for each. So the lane takes the values of a lane whose condition is true instead. If there is
none, no cotangent flows back to the shared values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from fiveloop.core import ArrayLike, Value, ad, arrays, ir, prims, rules, trace, transforms
from fiveloop.core.backend import hlo
from fiveloop.core.dataclass import dataclass

P = TypeVar("P")
gate_p: ir.Primitive[ir.NoParams] = ir.Primitive("gate")
"""`gate pred x other`: `x` where `pred` holds, elsewhere `other`, a constant; `pred` has the first axes of `x`."""


def gate(pred: Value, x: Value, other: Value | None = None) -> Value:
    """The same value, through which a derivative flows only if the condition is true.

    Where the condition is false, results that are computed from the value may be infinite; their zero cotangents then
    become NaN in the backward pass, and the gate stops them. Where the condition does not hold, the value is that of
    `other`, if given.

    >>> def inverse(x):
    ...     return select(x != 0, 1.0 / gate(x != 0, x), 0.0)
    >>> grad(inverse)(2.0).item(), grad(inverse)(0.0).item()
    (-0.25, 0.0)
    """
    other = x if other is None else other
    if other is x and not x.aval.differentiable:
        return x
    return trace.bind1(gate_p, pred, x, other, params=ir.NO_PARAMS)


def wide(pred: Value, x: Value, axes: Sequence[int] = ()) -> Value:
    """The condition for each element of a value, which has the condition's axes at `axes`, or first."""
    if not pred.ndim:
        return pred
    axes = axes or range(pred.ndim)
    turned = prims.transpose(pred, [axes.index(a) for a in sorted(axes)])
    return prims.broadcast_in_dim(turned, x.shape, sorted(axes))


def _gate_lower(ctx: Any, operands: hlo.IRValues, p: ir.NoParams) -> list[hlo.IRValue]:
    pred, x, other = operands
    if other is x:
        return [x]
    axes = range(len(pred.shape))
    wide = hlo.broadcast_in_dim(ctx.b, pred, x.shape, axes) if axes else pred
    return [hlo.select(ctx.b, wide, x, other)]


def _gate_batch(size: int, operands: ad.Values, dims: ad.BatchAxes, p: ir.NoParams) -> ad.Batched:
    pred, x, other = operands
    if dims[0] is not None or pred.ndim:
        pred = transforms.move_batch(pred, size, dims[0])
    wide = transforms.move_batch(x, size, dims[1])
    rest = wide if other is x else transforms.move_batch(other, size, dims[2])
    return [trace.bind1(gate_p, pred, wide, rest, params=p)], [0]


def define_identity(
    prim: ir.Primitive[P],
    batch: rules.Batch,
    axes: Callable[[P], Sequence[int] | None],
    **cells: Any,
) -> None:
    """The row of a primitive of a condition and a value, which it gives: derivatives flow where the condition holds.

    `axes` says which axes of the value are those of the condition, as `wide` takes them; None if all derivatives flow.
    """

    def opened(pred: Any, x: ad.Tangent, p: P) -> ad.Tangent:
        """A tangent or a cotangent where the condition, which is never linear, holds; zero elsewhere."""
        if isinstance(x, ad.Zero) or (of_pred := axes(p)) is None:
            return x
        return prims.select(wide(pred, x, of_pred), x, transforms.zeros_of(x.aval))

    def jvp(primals: ad.Values, tangents: ad.Tangents, p: P) -> ad.Duals:
        return [trace.bind1(prim, *primals, params=p)], [opened(primals[0], tangents[1], p)]

    def transpose(cts: ad.Tangents, operands: ad.Operands, p: P) -> ad.Cotangents:
        return [None, opened(operands[0], cts[0], p), *[None] * len(operands[2:])]

    types = rules.pure(lambda avals, p: [avals[1]])
    given = {"lower": lambda ctx, operands, p: [operands[1]], **cells}
    rules.define(prim, abstract_eval=types, jvp=jvp, transpose=transpose, batch=batch, **given)


define_identity(gate_p, _gate_batch, lambda p: (), lower=_gate_lower)


@dataclass(frozen=True)
class FollowParams:
    """Whether no derivative flows if the condition does not hold; if not, that has been seen to before."""

    gates: bool = True


follow_p: ir.Primitive[FollowParams] = ir.Primitive("follow")


def follow(pred: ArrayLike, x: ArrayLike) -> Value:
    """The same value if the condition is true, and a derivative flows to it only then; otherwise any value.

    In a batch that is the value of the first lane whose condition is true. A value that the lanes share stays one,
    and a derivative flows to it if the condition holds for some lane.

    >>> def share(x, w):
    ...     taken = x != 0
    ...     return select(taken, (follow(taken, w) / follow(taken, x)).sum(), 0.0)
    >>> total = lambda w: vmap(share, (0, None))(np.array([0.0, 2.0]), w).sum()
    >>> print(grad(total)(np.ones(2)))
    [0.5 0.5]
    """
    return trace.bind1(follow_p, arrays.as_value(pred), arrays.as_value(x), params=FollowParams())


def _follow_batch(
    size: int, operands: ad.Values, dims: ad.BatchAxes, p: FollowParams
) -> ad.Batched:
    """Fill the lanes whose condition is false; the remaining condition is for a batch around this batch, if any."""
    pred, x = operands
    if dims[0] is None:
        return [trace.bind1(follow_p, pred, x, params=p)], [dims[1]]
    some = prims.reduce_or(pred)
    if dims[1] is None:
        return [trace.bind1(follow_p, some, x, params=p)], [None]
    own = transforms.move_batch(x, size, dims[1])
    first = own[pred.argmax()]
    filled = gate(pred, own, prims.broadcast_in_dim(first, own.shape, range(1, own.ndim)))
    return [trace.bind1(follow_p, some, filled, params=FollowParams(gates=False))], [0]


define_identity(
    follow_p, _follow_batch, lambda p: () if p.gates else None, impl=lambda xs, p: [xs[1]]
)
