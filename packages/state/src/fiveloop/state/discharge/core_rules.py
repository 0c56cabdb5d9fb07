"""Discharge of core's higher-order primitives: a call takes Refs as their contents and gives new contents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from fiveloop.core import Value, ad, ir, trace, transforms, util
from fiveloop.core.closed_call.primitive import ClosedCallParams, closed_call_p
from fiveloop.core.custom_rule import primitive
from fiveloop.state import primitives
from fiveloop.state.avals import AbstractRef
from fiveloop.state.discharge import engine
from fiveloop.state.discharge.table import Cell, DischargeContext, define_discharge


def call_discharge(
    prim: ir.Primitive[Any], ctx: DischargeContext, operands: Sequence[Value | Cell], p: Any
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
    jaxpr = engine.discharge_jaxpr(p.jaxpr, which, results, once=ctx.once)
    return _call(prim, ctx, operands, replace(p, jaxpr=jaxpr), results)


def _cells(operands: Sequence[Value | Cell], p: Any) -> tuple[util.Mask, util.Mask]:
    """Which operands are Cells, and which of those change."""
    changed = ir.mutated_positions(p.jaxpr.effects)
    which = tuple(isinstance(x, Cell) for x in operands)
    return which, tuple(w and k in changed for k, w in enumerate(which))


def _call(
    prim: ir.Primitive[Any],
    ctx: DischargeContext,
    operands: Sequence[Value | Cell],
    p: Any,
    results: util.Mask,
) -> list[Value]:
    outs = trace.bind(prim, *ctx.values(operands), params=p)
    num_outs = len(outs) - sum(results)
    cells = [x for x, r in zip(operands, results, strict=True) if r and isinstance(x, Cell)]
    for cell, contents in zip(cells, outs[num_outs:], strict=True):
        ctx.assign(cell, contents)
    return outs[:num_outs]


def custom_rule_discharge(
    ctx: DischargeContext, operands: Sequence[Value | Cell], p: primitive.CustomRuleParams
) -> list[Value]:
    """Call the discharged jaxpr, with the rule on contents; what is given by its transpose alone becomes a call."""
    if p.jaxpr is None:
        avals = [AbstractRef(x.contents.aval) if isinstance(x, Cell) else x.aval for x in operands]
        called = ClosedCallParams(primitive.primal_jaxpr(p, avals), p.name)
        return call_discharge(closed_call_p, ctx, operands, called)
    which, results = _cells(operands, p)
    params = replace(
        p,
        jaxpr=engine.discharge_jaxpr(p.jaxpr, which, results),
        rule=DischargedRule(p, which, results),
        scope=trace.AxisScope(p.axes, p.axes),
    )
    return _call(primitive.custom_rule_p, ctx, operands, params, results)


class DischargedRule(primitive.Rule):
    """The rule of an equation whose Refs are values: it makes Refs, runs the rule, and gives what they hold."""

    def __init__(
        self, inner: primitive.CustomRuleParams, which: util.Mask, results: util.Mask
    ) -> None:
        self.inner = inner
        self.which = which
        self.results = results
        self.kind = inner.rule.kind
        self.ignores_closed = inner.rule.ignores_closed

    def jvp(
        self, p: primitive.CustomRuleParams, primals: ad.Values, tangents: ad.Tangents
    ) -> ad.Duals:
        """The rule on Refs, and then the contents of those that it changes."""
        refs = [
            trace.bind1(primitives.new_ref_p, x, params=primitives.NewRefParams()) if w else x
            for x, w in zip(primals, self.which, strict=True)
        ]
        perturbed = any(not isinstance(t, ad.Zero) for t in tangents)
        dots = [
            _tangent_ref(t) if w and x.aval.differentiable and perturbed else t
            for x, t, w in zip(primals, tangents, self.which, strict=True)
        ]
        outs, outs_dot = primitive.rule_jvp(self.inner, refs, dots)
        changed = util.select_by(self.results, list(zip(refs, dots, strict=True)))
        contents = [trace.bind1(primitives.freeze_p, ref) for ref, _ in changed]
        ends = [
            transforms.zero_like(x)
            if isinstance(dot, ad.Zero)
            else trace.bind1(primitives.freeze_p, dot)
            for x, (_, dot) in zip(contents, changed, strict=True)
        ]
        return [*outs, *contents], [*outs_dot, *ends]


def _tangent_ref(t: ad.Tangent) -> Value:
    """A Ref for a tangent: what a Ref holds may come to depend on what is differentiated."""
    return trace.bind1(
        primitives.new_ref_p,
        transforms.instantiate(t),
        params=primitives.NewRefParams(holds_tangent=True),
    )


define_discharge(closed_call_p, partial(call_discharge, closed_call_p))
define_discharge(primitive.custom_rule_p, custom_rule_discharge)
