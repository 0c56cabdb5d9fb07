"""Calls that take Refs, as the equations that they call: only so are their reads and writes seen one by one."""

from __future__ import annotations

from fiveloop.core import Jaxpr, ir
from fiveloop.core.closed_call.primitive import closed_call_p
from fiveloop.state.avals import AbstractRef


def with_calls_inlined(jaxpr: Jaxpr) -> Jaxpr:
    """The jaxpr with what it calls with Refs in the place of the calls; itself if there are none.

    A call gives back all that its Refs hold, and XLA copies that where something else of the step reads it. So the body
    of a loop, and a branch, have none.
    """
    return jaxpr.remember("calls inlined", lambda: _inlined(jaxpr))


def _inlined(jaxpr: Jaxpr) -> Jaxpr:
    return ir.replaced(jaxpr, _called) if any(map(_takes_refs, jaxpr.eqns)) else jaxpr


def _takes_refs(eqn: ir.Eqn) -> bool:
    return eqn.primitive is closed_call_p and any(
        isinstance(a.aval, AbstractRef) for a in eqn.invars
    )


def _called(eqn: ir.Eqn) -> tuple[list[ir.Eqn], list[ir.Atom]] | None:
    """The equations that a call with Refs stands for, and their results."""
    if not _takes_refs(eqn):
        return None
    return ir.inlined(with_calls_inlined(eqn.params.jaxpr), eqn.invars)
