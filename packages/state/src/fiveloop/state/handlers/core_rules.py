"""How core's higher-order primitives hand the Ref of an effect on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from fiveloop.core import Value
from fiveloop.core.engine import CustomRuleParams, custom_rule_p
from fiveloop.core.extend import Primitive, Tangent, bind, closed_call_p, eval_jaxpr
from fiveloop.state.handlers.thread import Handling, define_handler
from fiveloop.state.staged_rule import LedRule, staged_jvp, with_lead


def call_handler(
    prim: Primitive[Any], handling: Handling, ref: Value, operands: Sequence[Value], p: Any
) -> list[Value]:
    """Call the jaxpr with the Ref as its first operand; for any primitive that calls `p.jaxpr`.

    As a cell: `define_handler(prim, partial(call_handler, prim))`.

    >>> p = ClosedCallParams(make_jaxpr(lambda x: check(x > 0, "not positive"))(1.0))
    >>> ref = new_ref(CheckEffect.initial(p.jaxpr.effects))
    >>> handling = Handling(CheckEffect, ref.aval.inner)
    >>> outs = call_handler(closed_call_p, handling, ref, [as_value(-1.0)], p)
    >>> CheckEffect.at_return(ref[...])
    Traceback (most recent call last):
    fiveloop.state.checks.site.CheckError: not positive
      at ...
    """
    return bind(prim, ref, *operands, params=replace(p, jaxpr=handling.thread(p.jaxpr)))


def custom_rule_handler(
    handling: Handling, ref: Value, operands: Sequence[Value], p: CustomRuleParams
) -> list[Value]:
    """Call the jaxpr with the Ref, and the rule with it where it is differentiated."""
    assert p.jaxpr is not None, "unreachable: what is given by its rule alone has no effect"
    params = with_lead(p, handling.thread(p.jaxpr), HandledRule(p, handling))
    return bind(custom_rule_p, ref, *operands, params=params)


class HandledRule(LedRule):
    """The rule of an equation whose effect is handled: what the user's rule does of it is done to the Ref, too."""

    def __init__(self, inner: CustomRuleParams, handling: Handling) -> None:
        super().__init__(inner)
        self.handling = handling

    def jvp(
        self, p: CustomRuleParams, primals: Sequence[Value], tangents: Sequence[Tangent]
    ) -> tuple[list[Value], list[Tangent]]:
        """What the rule gives, from a jaxpr of it through which the Ref goes."""
        ref, *values = primals
        staged = staged_jvp(self.inner, values, tangents[1:])
        threaded = self.handling.thread(staged.jaxpr)
        return staged.apart(eval_jaxpr(threaded, [ref, *staged.args]))


define_handler(closed_call_p, partial(call_handler, closed_call_p))
define_handler(custom_rule_p, custom_rule_handler)
