"""Equations for arrays with a slot for each step of a loop."""

from __future__ import annotations

from fiveloop.core import Jaxpr
from fiveloop.core.engine import At, Indexer, Span
from fiveloop.core.extend import Aval, Eqn, Var, new_eqn, stage_closed, zeros_of
from fiveloop.state.engine import SwapParams, swap_p


def zeros_eqn(aval: Aval) -> Eqn:
    """An equation that makes an array of zeros, to be filled."""
    made: Jaxpr = stage_closed(lambda: [zeros_of(aval)], [])
    (eqn,) = made.eqns
    return eqn


def slot_indexer(stack: Aval) -> Indexer:
    """The index of a step's slot, whose number is an operand."""
    return Indexer((At(None), *[Span(0, n) for n in stack.shape[1:]]))


def write_slot(stack: Var, i: Var, x: Var) -> Eqn:
    """An equation that writes to slot `i` of a Ref."""
    params = SwapParams(slot_indexer(stack.aval), returns_old=False)
    return new_eqn(swap_p, [stack, x, i], params, ())
