"""Calls that take Refs, as the equations that they call: only so are their reads and writes seen one by one."""

from __future__ import annotations

from fiveloop.core import Jaxpr
from fiveloop.core.engine import inlined, replaced
from fiveloop.core.extend import Atom, Eqn, closed_call_p
from fiveloop.state.avals import AbstractRef


def with_calls_inlined(jaxpr: Jaxpr) -> Jaxpr:
    """The jaxpr with what it calls with Refs in the place of the calls; itself if there are none.

    A call gives back all that its Refs hold, and XLA copies that where something else of the step reads it. So the body
    of a loop, and a branch, have none.
    """
    return jaxpr.remember("calls inlined", lambda: _inlined(jaxpr))


def _inlined(jaxpr: Jaxpr) -> Jaxpr:
    return replaced(jaxpr, _called) if any(map(_takes_refs, jaxpr.eqns)) else jaxpr


def _takes_refs(eqn: Eqn) -> bool:
    return eqn.primitive is closed_call_p and any(
        isinstance(a.aval, AbstractRef) for a in eqn.invars
    )


def _called(eqn: Eqn) -> tuple[list[Eqn], list[Atom]] | None:
    """The equations that a call with Refs stands for, and their results."""
    if not _takes_refs(eqn):
        return None
    return inlined(with_calls_inlined(eqn.params.jaxpr), eqn.invars)
