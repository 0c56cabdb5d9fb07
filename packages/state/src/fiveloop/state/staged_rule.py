"""The derivative that a custom rule gives, as a jaxpr: for rules that change what it does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from fiveloop.core import Jaxpr, Value
from fiveloop.core.engine import (
    AxisScope,
    CustomRuleParams,
    Masked,
    Operand,
    Rule,
    rule_jvp,
    rule_transpose,
)
from fiveloop.core.extend import Tangent, stage


@dataclass(frozen=True)
class StagedJvp:
    """`jaxpr : [*captured, *values, *nonzero dots] -> [*outs, *nonzero outs_dot]`, and `args` for it."""

    jaxpr: Jaxpr
    captured: Sequence[Value]
    args: Sequence[Value]
    flat: Masked

    def apart(self, results: Sequence[Value]) -> tuple[list[Value], list[Tangent]]:
        """Results and tangents, from what a form of the jaxpr has given."""
        outs, outs_dot = self.flat.apart(results)
        return outs, [t for t in outs_dot if t is not None]


def staged_jvp(
    p: CustomRuleParams, values: Sequence[Value], tangents: Sequence[Tangent]
) -> StagedJvp:
    """What the rule of an equation computes at these values and tangents."""
    flat = Masked(partial(rule_jvp, p), len(values), tangents)
    args = [*values, *flat.dots]
    staged = stage(flat, [x.aval for x in args], p.name)
    return StagedJvp(staged.jaxpr, staged.captured, [*staged.captured, *args], flat)


class LedRule(Rule):
    """The rule of an equation that is given one more operand, in front: what another rule does, and more."""

    def __init__(self, inner: CustomRuleParams) -> None:
        self.inner = inner
        self.kind = inner.rule.kind
        self.transposes = inner.rule.transposes
        self.ignores_closed = inner.rule.ignores_closed

    def transpose(
        self, p: CustomRuleParams, cts: Sequence[Tangent], operands: Sequence[Operand]
    ) -> list[Tangent | None]:
        """The rule's transpose; the operand in front has no cotangent."""
        return [None, *rule_transpose(self.inner, cts, operands[1:])]


def with_lead(p: CustomRuleParams, jaxpr: Jaxpr, rule: LedRule) -> CustomRuleParams:
    """The params of the equation with one more operand: its jaxpr, and its rule."""
    return replace(
        p, jaxpr=jaxpr, rule=rule, num_closed=p.num_closed + 1, scope=AxisScope(p.axes, p.axes)
    )
