"""On condition: core's higher-order primitives take the condition as their first operand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from fiveloop.core import (
    AxisScope,
    CustomRuleParams,
    Operand,
    Primitive,
    Rule,
    Tangent,
    Value,
    Zero,
    bind,
    closed_call_p,
    custom_rule_p,
    rule_transpose,
)
from fiveloop.state.predicate.engine import Guard, define_predicate, eval_predicated, predicated
from fiveloop.state.staged_rule import staged_jvp


def call_predicate(
    prim: Primitive[Any], pred: Value, operands: Sequence[Value], guard: Guard, p: Any
) -> list[Value]:
    """Call the jaxpr on condition; for any primitive that calls `p.jaxpr`."""
    return bind(prim, pred, *operands, params=replace(p, jaxpr=predicated(p.jaxpr, guard)))


def custom_rule_predicate(
    pred: Value, operands: Sequence[Value], guard: Guard, p: CustomRuleParams
) -> list[Value]:
    """Call the jaxpr on condition, and the rule on condition where it is differentiated."""
    if p.jaxpr is None:
        return bind(custom_rule_p, *operands, params=p)
    params = replace(
        p,
        jaxpr=predicated(p.jaxpr, guard),
        rule=PredicatedRule(p, guard),
        num_closed=p.num_closed + 1,
        scope=AxisScope(p.axes, p.axes),
    )
    return bind(custom_rule_p, pred, *operands, params=params)


class PredicatedRule(Rule):
    """The rule of an equation that runs on condition: what the user's rule does is done on condition, too."""

    def __init__(self, inner: CustomRuleParams, guard: Guard) -> None:
        self.inner = inner
        self.guard = guard
        self.kind = inner.rule.kind
        self.transposes = inner.rule.transposes
        self.ignores_closed = inner.rule.ignores_closed

    def jvp(
        self, p: CustomRuleParams, primals: Sequence[Value], tangents: Sequence[Tangent]
    ) -> tuple[list[Value], list[Tangent]]:
        """What the rule gives, from a jaxpr of it that is run on condition; a tangent is guarded as its value is."""
        pred, *values = primals
        staged = staged_jvp(self.inner, values, tangents[1:])
        nonzero = [not isinstance(t, Zero) for t in tangents[1:]]
        refs, own = (
            (*mask, *[m for m, nz in zip(mask, nonzero, strict=True) if nz])
            for mask in (self.guard.refs, self.guard.own)
        )
        guard = Guard(refs, own).after(len(staged.captured))
        return staged.apart(eval_predicated(pred, staged.jaxpr, staged.args, guard))

    def transpose(
        self, p: CustomRuleParams, cts: Sequence[Tangent], operands: Sequence[Operand]
    ) -> list[Tangent | None]:
        """The rule's transpose; the condition has no cotangent."""
        return [None, *rule_transpose(self.inner, cts, operands[1:])]


define_predicate(closed_call_p, partial(call_predicate, closed_call_p))
define_predicate(custom_rule_p, custom_rule_predicate)
