"""Custom rules of equations with one more operand in front, which a form of the rule's derivative takes, too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from fiveloop.core import Jaxpr, Value, trace, util
from fiveloop.core.custom_rule import masked, primitive
from fiveloop.core.rules import Operand, Tangent, Zero

RunJvp = Callable[[Value, trace.Staged, Sequence[Value], util.Mask], list[Value]]
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
        self, p: primitive.CustomRuleParams, primals: Sequence[Value], tangents: Sequence[Tangent]
    ) -> tuple[list[Value], list[Tangent]]:
        """What the rule gives, from a jaxpr of it that takes the operand in front."""
        lead, *values = primals
        flat = masked.Masked(partial(primitive.rule_jvp, self.inner), len(values), tangents[1:])
        args = [*values, *flat.dots]
        staged = trace.stage(flat, [x.aval for x in args], self.inner.name)
        nonzero = tuple(not isinstance(t, Zero) for t in tangents[1:])
        results = self.run_jvp(lead, staged, [*staged.captured, *args], nonzero)
        outs, outs_dot = flat.apart(results)
        return outs, [t for t in outs_dot if t is not None]

    def transpose(
        self, p: primitive.CustomRuleParams, cts: Sequence[Tangent], operands: Sequence[Operand]
    ) -> list[Tangent | None]:
        """The rule's transpose; the operand in front has no cotangent."""
        return [None, *primitive.rule_transpose(self.inner, cts, operands[1:])]


def bind_led(
    p: primitive.CustomRuleParams,
    lead: Value,
    operands: Sequence[Value],
    jaxpr: Jaxpr,
    run_jvp: RunJvp,
) -> list[Value]:
    """The equation with one more operand in front, which its jaxpr takes, and its derivative."""
    scope = trace.AxisScope(p.axes, p.axes)
    rule = LedRule(p, run_jvp)
    params = replace(p, jaxpr=jaxpr, rule=rule, num_closed=p.num_closed + 1, scope=scope)
    return trace.bind(primitive.custom_rule_p, lead, *operands, params=params)
