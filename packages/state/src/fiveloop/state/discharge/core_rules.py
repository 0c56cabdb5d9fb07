"""Discharge of core's higher-order primitives: a call takes Refs as their contents and gives new contents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from fiveloop.core import Value
from fiveloop.core.engine import (
    AxisScope,
    CustomRuleParams,
    Mask,
    Rule,
    custom_rule_p,
    primal_jaxpr,
    rule_jvp,
    select_by,
)
from fiveloop.core.extend import (
    ClosedCallParams,
    Primitive,
    Tangent,
    Zero,
    bind,
    bind1,
    closed_call_p,
    instantiate,
    mutated_positions,
    zero_like,
)
from fiveloop.state.avals import AbstractRef
from fiveloop.state.discharge.engine import discharge_jaxpr
from fiveloop.state.discharge.table import Cell, DischargeContext, define_discharge
from fiveloop.state.primitives.lifetime import NewRefParams, freeze_p, new_ref_p


def call_discharge(
    prim: Primitive[Any], ctx: DischargeContext, operands: Sequence[Value | Cell], p: Any
) -> list[Value]:
    """Call the discharged jaxpr, and assign the contents that it changed; for any primitive that calls.

    p.jaxpr    : [*ins]                            -> [*outs]
    discharged : [*ins, Refs as their contents]    -> [*outs, *contents changed]

    As a cell: `define_discharge(prim, partial(call_discharge, prim))`.

    >>> @jit
    ... def double(r):
    ...     r[...] = 2.0 * r[...]
    >>> print(discharge_state(make_jaxpr(double)(new_ref(1.0))))
    { lambda a:f32[] ; let
        b:f32[] = closed_call[name=double] a
          jaxpr { lambda c:f32[] ; let
              d:f32[] = mul 2.0 c
            in (d,) }
      in (b,) }
    """
    which, results = _cells(operands, p)
    jaxpr = discharge_jaxpr(p.jaxpr, which, results, once=ctx.once)
    return _call(prim, ctx, operands, replace(p, jaxpr=jaxpr), results)


def _cells(operands: Sequence[Value | Cell], p: Any) -> tuple[Mask, Mask]:
    """Which operands are Cells, and which of those change."""
    changed = mutated_positions(p.jaxpr.effects)
    which = tuple(isinstance(x, Cell) for x in operands)
    return which, tuple(w and k in changed for k, w in enumerate(which))


def _call(
    prim: Primitive[Any],
    ctx: DischargeContext,
    operands: Sequence[Value | Cell],
    p: Any,
    results: Mask,
) -> list[Value]:
    outs = bind(prim, *ctx.values(operands), params=p)
    num_outs = len(outs) - sum(results)
    cells = [x for x, r in zip(operands, results, strict=True) if r and isinstance(x, Cell)]
    for cell, contents in zip(cells, outs[num_outs:], strict=True):
        ctx.assign(cell, contents)
    return outs[:num_outs]


def custom_rule_discharge(
    ctx: DischargeContext, operands: Sequence[Value | Cell], p: CustomRuleParams
) -> list[Value]:
    """Call the discharged jaxpr, with the rule on contents; what is given by its transpose alone becomes a call."""
    if p.jaxpr is None:
        avals = [AbstractRef(x.contents.aval) if isinstance(x, Cell) else x.aval for x in operands]
        called = ClosedCallParams(primal_jaxpr(p, avals), p.name)
        return call_discharge(closed_call_p, ctx, operands, called)
    which, results = _cells(operands, p)
    params = replace(
        p,
        jaxpr=discharge_jaxpr(p.jaxpr, which, results),
        rule=DischargedRule(p, which, results),
        scope=AxisScope(p.axes, p.axes),
    )
    return _call(custom_rule_p, ctx, operands, params, results)


class DischargedRule(Rule):
    """The rule of an equation whose Refs are values: it makes Refs, runs the rule, and gives what they hold."""

    def __init__(self, inner: CustomRuleParams, which: Mask, results: Mask) -> None:
        self.inner = inner
        self.which = which
        self.results = results
        self.kind = inner.rule.kind
        self.ignores_closed = inner.rule.ignores_closed

    def jvp(
        self, p: CustomRuleParams, primals: Sequence[Value], tangents: Sequence[Tangent]
    ) -> tuple[list[Value], list[Tangent]]:
        """The rule on Refs, and then the contents of those that it changes."""
        refs = [
            bind1(new_ref_p, x, params=NewRefParams()) if w else x
            for x, w in zip(primals, self.which, strict=True)
        ]
        perturbed = any(not isinstance(t, Zero) for t in tangents)
        dots = [
            _tangent_ref(t) if w and x.aval.differentiable and perturbed else t
            for x, t, w in zip(primals, tangents, self.which, strict=True)
        ]
        outs, outs_dot = rule_jvp(self.inner, refs, dots)
        changed = select_by(self.results, list(zip(refs, dots, strict=True)))
        contents = [bind1(freeze_p, ref) for ref, _ in changed]
        ends = [
            zero_like(x) if isinstance(dot, Zero) else bind1(freeze_p, dot)
            for x, (_, dot) in zip(contents, changed, strict=True)
        ]
        return [*outs, *contents], [*outs_dot, *ends]


def _tangent_ref(t: Tangent) -> Value:
    """A Ref for a tangent: what a Ref holds may come to depend on what is differentiated."""
    return bind1(new_ref_p, instantiate(t), params=NewRefParams(holds_tangent=True))


define_discharge(closed_call_p, partial(call_discharge, closed_call_p))
define_discharge(custom_rule_p, custom_rule_discharge)
