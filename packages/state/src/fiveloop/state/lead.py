"""Equations with one more operand, which their bodies take, too: the Ref of an effect, or a condition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from fiveloop.core import Jaxpr, Value, ad, ir, trace, util
from fiveloop.core.closed_call.bodies import num_choosing
from fiveloop.core.custom_rule import masked, primitive

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


RunJvp = Callable[[Value, trace.Staged, ad.Values, util.Mask], list[Value]]
"""Run a staged derivative, with the operand in front, the jaxpr's other operands, and which tangents are not zero.

staged.jaxpr : [*captured, *values, *nonzero dots] -> [*outs, *nonzero outs_dot]
"""


class LedRule(primitive.Rule):
    """The rule of an equation with one more operand in front: another rule, whose derivative `run_jvp` runs."""

    def __init__(self, inner: primitive.CustomRuleParams, run_jvp: RunJvp) -> None:
        self.inner = inner
        self.run_jvp = run_jvp
        self.kind = inner.rule.kind
        self.transposes = inner.rule.transposes
        self.ignores_closed = inner.rule.ignores_closed

    def jvp(
        self, p: primitive.CustomRuleParams, primals: ad.Values, tangents: ad.Tangents
    ) -> ad.Duals:
        """What the rule gives, from a jaxpr of it that takes the operand in front."""
        lead, *values = primals
        flat = masked.Masked(partial(primitive.rule_jvp, self.inner), len(values), tangents[1:])
        args = [*values, *flat.dots]
        staged = trace.stage(flat, [x.aval for x in args], self.inner.name)
        nonzero = tuple(not isinstance(t, ad.Zero) for t in tangents[1:])
        results = self.run_jvp(lead, staged, [*staged.captured, *args], nonzero)
        outs, outs_dot = flat.apart(results)
        return outs, [t for t in outs_dot if t is not None]

    def transpose(
        self, p: primitive.CustomRuleParams, cts: ad.Tangents, operands: ad.Operands
    ) -> ad.Cotangents:
        """The rule's transpose; the operand in front has no cotangent."""
        return [None, *primitive.rule_transpose(self.inner, cts, operands[1:])]


def bind_led_rule(
    p: primitive.CustomRuleParams, lead: Value, operands: ad.Values, jaxpr: Jaxpr, run_jvp: RunJvp
) -> list[Value]:
    """The equation with one more operand in front, which its jaxpr takes, and its derivative."""
    scope = trace.AxisScope(p.axes, p.axes)
    rule = LedRule(p, run_jvp)
    params = replace(p, jaxpr=jaxpr, rule=rule, num_closed=p.num_closed + 1, scope=scope)
    return trace.bind(primitive.custom_rule_p, lead, *operands, params=params)
