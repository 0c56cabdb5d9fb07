"""`live`: the values of a loop's lanes, which end one after the other.

An ended lane computes in vain until the last lane has ended, and its values may have infinite slopes. No derivative
flows from there to the lane's own values. But zero times infinity, a NaN, flows to values that the lanes share. So in
the backward pass an ended lane has to compute with the values of a running lane; in the forward pass it need not.
Therefore `live` stays an equation under `vmap`, and is lowered to its operand; a step is `filled` before it is
transposed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fiveloop.core import Jaxpr, Value, ad, ir, passes, prims, rules, trace, transforms, util
from fiveloop.core.dataclass import dataclass
from fiveloop.state.predicate.gate import define_identity, wide
from fiveloop.state.refs import AbstractRef, ReadEffect


@dataclass(frozen=True)
class LiveParams:
    """Whether ended lanes are filled in the backward pass; and which axes of the value are those of the condition."""

    fills: bool
    axes: tuple[int, ...] = ()


live_p: ir.Primitive[LiveParams] = ir.Primitive("live")


def live(pred: Value, x: Value, fills: bool) -> Value:
    """The same value, of use only if the condition is true, to which a derivative flows only then.

    With `fills` a backward pass gives lanes whose condition is false the value of a lane whose condition is true. A
    value that the lanes share is left as it is.
    """
    if not (fills or x.aval.differentiable):
        return x
    return trace.bind1(live_p, pred, x, params=LiveParams(fills))


def _live_batch(size: int, operands: ad.Values, dims: ad.BatchAxes, p: LiveParams) -> ad.Batched:
    """Lanes of the condition are lanes of the value, unless all share it; those of the value alone go on alike."""
    (pred, x), (of_pred, axis) = operands, dims
    if axis is None:
        if not p.axes:
            return [x], [None]
        x, axis = transforms.move_batch(x, size, None), 0
    axes = tuple(a + (a >= axis) for a in p.axes)
    if of_pred is not None:
        pred, axes = transforms.move_batch(pred, size, of_pred), (axis, *axes)
    return [trace.bind1(live_p, pred, x, params=LiveParams(p.fills, axes))], [axis]


define_identity(
    live_p,
    _live_batch,
    lambda p: p.axes,
    impl=lambda values, p: [values[1]],
    cost=lambda avals, p: rules.Cost(0, 0),
)


def shares(jaxpr: Jaxpr, own: util.Mask) -> bool:
    """Whether a derivative may flow from a jaxpr to what the lanes share: a value, or a Ref that is read.

    Where lanes communicate, each lane's own values count.
    """
    if ir.axes_of(jaxpr.effects):
        return False
    read = {e.position for e in jaxpr.effects if isinstance(e, ReadEffect)}
    used = ir.used_by(jaxpr.eqns)
    return any(
        (k in read and v.aval.inner.differentiable)
        if isinstance(v.aval, AbstractRef)
        else (v in used and v.aval.differentiable)
        for k, (v, is_own) in enumerate(zip(jaxpr.invars, own, strict=True))
        if not is_own
    )


def filled(jaxpr: Jaxpr) -> Jaxpr:
    """The jaxpr whose ended lanes compute with the values of a running lane, where derivatives need it."""

    def fill(eqn: ir.Eqn) -> Replaced:
        p: LiveParams = eqn.params
        if not (p.fills and p.axes):
            return [eqn], eqn.outvars
        run = lambda pred, x: [_fill(pred, x, p.axes)]
        return ir.inlined(trace.stage_closed(run, [a.aval for a in eqn.invars]), eqn.invars)

    return _with_lanes(jaxpr, "filled", fill)


def _fill(pred: Value, x: Value, axes: Sequence[int]) -> Value:
    """The value, in which ended lanes get the value of the first running lane.

    The last axis of the condition is the axis of the loop's lanes; axes before it are batched around the loop.
    """
    outer, *inner = axes
    if not inner:
        first = prims.expand_dims(x.take(pred.argmax(), outer), outer)
        return prims.select(wide(pred, x, axes), x, prims.broadcast_to(first, x.shape))
    size, within = pred.shape[0], [a - (a > outer) for a in inner]
    fill = lambda pred, x: [_fill(pred, x, within)]
    (out,), (axis,) = transforms.batch_flat(fill, size, [pred, x], [0, outer])
    return transforms.move_batch(out, size, axis, outer)


def without_live(jaxpr: Jaxpr) -> Jaxpr:
    """The jaxpr without `live`: a lowered program is never differentiated."""
    return _with_lanes(jaxpr, "without live", lambda eqn: ([], [eqn.invars[1]]))


Replaced = tuple[ir.Eqns, ir.Atoms]
_has_live = ir.holding(live_p)


@ir.once_per(lambda jaxpr, key, change: (jaxpr, key))
def _with_lanes(jaxpr: Jaxpr, key: str, change: Callable[[ir.Eqn], Replaced]) -> Jaxpr:
    """The jaxpr with something else in the place of each `live`, at any depth; remembered by the key."""

    def within(eqn: ir.Eqn) -> Replaced | None:
        if eqn.primitive is live_p:
            return change(eqn)
        new = rules.with_bodies(eqn, lambda j: _with_lanes(j, key, change))
        return None if new is eqn else ([new], eqn.outvars)

    return ir.replaced(jaxpr, within) if _has_live(jaxpr) else jaxpr


passes.register_pass(passes.Pass("live", after=("dce",), applies=_has_live, run=without_live))
