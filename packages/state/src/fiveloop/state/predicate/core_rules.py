"""On condition: core's higher-order primitives take the condition as their first operand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from fiveloop.core import Value
from fiveloop.core.engine import CustomRuleParams, custom_rule_p
from fiveloop.core.extend import Primitive, Tangent, Zero, bind, closed_call_p
from fiveloop.state.predicate.engine import Guard, define_predicate, eval_predicated, predicated
from fiveloop.state.staged_rule import LedRule, staged_jvp, with_lead


def call_predicate(
    prim: Primitive[Any], pred: Value, operands: Sequence[Value], guard: Guard, p: Any
) -> list[Value]:
    """Call the jaxpr on condition; for any primitive that calls `p.jaxpr`.

    The condition becomes the first operand. As a cell: `define_predicate(prim, partial(call_predicate, prim))`.

    >>> def store(r, x):
    ...     r[...] = x
    >>> p, r = ClosedCallParams(make_jaxpr(store)(new_ref(0.0), 1.0)), new_ref(0.0)
    >>> guard = Guard(refs=(True, False), own=(True, False))
    >>> for pred, x in [(True, 5.0), (False, 7.0)]:
    ...     outs = call_predicate(closed_call_p, as_value(pred), [r, as_value(x)], guard, p)
    >>> r[...].item()
    5.0
    """
    return bind(prim, pred, *operands, params=replace(p, jaxpr=predicated(p.jaxpr, guard)))


def custom_rule_predicate(
    pred: Value, operands: Sequence[Value], guard: Guard, p: CustomRuleParams
) -> list[Value]:
    """Call the jaxpr on condition, and the rule on condition where it is differentiated."""
    if p.jaxpr is None:
        return bind(custom_rule_p, *operands, params=p)
    params = with_lead(p, predicated(p.jaxpr, guard), PredicatedRule(p, guard))
    return bind(custom_rule_p, pred, *operands, params=params)


class PredicatedRule(LedRule):
    """The rule of an equation that runs on condition: what the user's rule does is done on condition, too."""

    def __init__(self, inner: CustomRuleParams, guard: Guard) -> None:
        super().__init__(inner)
        self.guard = guard

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
        guard = replace(self.guard, refs=refs, own=own).after(len(staged.captured))
        return staged.apart(eval_predicated(pred, staged.jaxpr, staged.args, guard))


define_predicate(closed_call_p, partial(call_predicate, closed_call_p))
define_predicate(custom_rule_p, custom_rule_predicate)
