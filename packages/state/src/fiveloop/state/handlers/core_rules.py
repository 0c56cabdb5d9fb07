"""How core's higher-order primitives hand the Ref of an effect on."""

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
    bind,
    closed_call_p,
    custom_rule_p,
    eval_jaxpr,
    rule_transpose,
)
from fiveloop.state.handlers.thread import Handling, define_handler
from fiveloop.state.staged_rule import staged_jvp


def call_handler(
    prim: Primitive[Any], handling: Handling, ref: Value, operands: Sequence[Value], p: Any
) -> list[Value]:
    """Call the jaxpr with the Ref as its first operand; for any primitive that calls `p.jaxpr`."""
    return bind(prim, ref, *operands, params=replace(p, jaxpr=handling.thread(p.jaxpr)))


def custom_rule_handler(
    handling: Handling, ref: Value, operands: Sequence[Value], p: CustomRuleParams
) -> list[Value]:
    """Call the jaxpr with the Ref, and the rule with it where it is differentiated."""
    assert p.jaxpr is not None, "unreachable: what is given by its rule alone has no effect"
    params = replace(
        p,
        jaxpr=handling.thread(p.jaxpr),
        rule=HandledRule(p, handling),
        num_closed=p.num_closed + 1,
        scope=AxisScope(p.axes, p.axes),
    )
    return bind(custom_rule_p, ref, *operands, params=params)


class HandledRule(Rule):
    """The rule of an equation whose effect is handled: what the user's rule does of it is done to the Ref, too."""

    def __init__(self, inner: CustomRuleParams, handling: Handling) -> None:
        self.inner = inner
        self.handling = handling
        self.kind = inner.rule.kind
        self.transposes = inner.rule.transposes
        self.ignores_closed = inner.rule.ignores_closed

    def jvp(
        self, p: CustomRuleParams, primals: Sequence[Value], tangents: Sequence[Tangent]
    ) -> tuple[list[Value], list[Tangent]]:
        """What the rule gives, from a jaxpr of it through which the Ref goes."""
        ref, *values = primals
        staged = staged_jvp(self.inner, values, tangents[1:])
        threaded = self.handling.thread(staged.jaxpr)
        return staged.apart(eval_jaxpr(threaded, [ref, *staged.args]))

    def transpose(
        self, p: CustomRuleParams, cts: Sequence[Tangent], operands: Sequence[Operand]
    ) -> list[Tangent | None]:
        """The rule's transpose; the Ref has no cotangent."""
        return [None, *rule_transpose(self.inner, cts, operands[1:])]


define_handler(closed_call_p, partial(call_handler, closed_call_p))
define_handler(custom_rule_p, custom_rule_handler)
