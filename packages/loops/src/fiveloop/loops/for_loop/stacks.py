"""Equations for arrays with a slot for each step of a loop."""

from __future__ import annotations

from fiveloop.core import Jaxpr
from fiveloop.core.engine import At, Indexer, Span
from fiveloop.core.extend import Aval, Dim, Eqn, Var, new_eqn, stage_closed, zeros_of
from fiveloop.state.engine import SwapParams, swap_p


def zeros_eqn(aval: Aval) -> Eqn:
    """An equation that makes an array of zeros, to be filled."""
    made: Jaxpr = stage_closed(lambda: [zeros_of(aval)], [])
    (eqn,) = made.eqns
    return eqn


def slot_indexer(stack: Aval, axis: int = 0) -> Indexer:
    """The index of a step's slot along an axis, whose number is an operand."""
    spans = [Span(0, n) for n in stack.shape]
    return Indexer((*spans[:axis], At(None), *spans[axis + 1 :]))


def slot_axis(indexer: object, stack: Aval, steps: Dim) -> int | None:
    """The axis of so many steps along which an index names a slot, if it does."""
    axes = [k for k, n in enumerate(stack.shape) if n == steps]
    return next((k for k in axes if indexer == slot_indexer(stack, k)), None)


def write_slot(stack: Var, i: Var, x: Var) -> Eqn:
    """An equation that writes to slot `i` of a Ref."""
    params = SwapParams(slot_indexer(stack.aval), returns_old=False)
    return new_eqn(swap_p, [stack, x, i], params, ())
