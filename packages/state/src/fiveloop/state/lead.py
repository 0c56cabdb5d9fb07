"""Equations with one more operand for their bodies: the Ref of an effect, or a condition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fiveloop.core import Jaxpr, Value, ad, ir, trace
from fiveloop.core.closed_call import num_choosing

Led = Callable[[Jaxpr], Jaxpr]
"""From a body, `[*ins] -> [*outs]`, to one that takes the operand in front: `[lead, *ins] -> [*outs]`."""


def bind_led(
    prim: ir.Primitive[Any], lead: Value, operands: ad.Values, p: Any, led: Led
) -> list[Value]:
    """Bind a primitive that only runs its bodies with one more operand, which all of them take.

    It comes before the operands that the bodies take, or where the params say with `place_of`.
    """
    at, params = max(0, num_choosing(p, operands)), p
    if hasattr(p, "place_of"):
        at, params = p.place_of(lead.aval)

    def body(jaxpr: Jaxpr) -> Jaxpr:
        return lead_at(led(jaxpr), at + len(jaxpr.invars) - len(operands))

    params = ir.with_jaxprs(params, body)
    return trace.bind(prim, *operands[:at], lead, *operands[at:], params=params)


def lead_at(jaxpr: Jaxpr, at: int) -> Jaxpr:
    """The jaxpr with its first binder further back.

    jaxpr   : [lead, *ins]                -> [*outs]
    lead_at : [*ins[:at], lead, *ins[at:]] -> [*outs]
    """
    lead, *ins = jaxpr.invars
    return jaxpr.replace(invars=[*ins[:at], lead, *ins[at:]]) if at else jaxpr
