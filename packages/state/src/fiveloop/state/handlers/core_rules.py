"""How core's higher-order primitives hand the Ref of an effect on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from fiveloop.core import Value
from fiveloop.core.engine import CustomRuleParams, Staged, custom_rule_p
from fiveloop.core.extend import Primitive, bind, closed_call_p, eval_jaxpr
from fiveloop.state.handlers.thread import Handling, define_handler
from fiveloop.state.staged_rule import bind_led


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

    def run_jvp(
        ref: Value, staged: Staged, args: Sequence[Value], nonzero: Sequence[bool]
    ) -> list[Value]:
        return eval_jaxpr(handling.thread(staged.jaxpr), [ref, *args])

    return bind_led(p, ref, operands, handling.thread(p.jaxpr), run_jvp)


define_handler(closed_call_p, partial(call_handler, closed_call_p))
define_handler(custom_rule_p, custom_rule_handler)
