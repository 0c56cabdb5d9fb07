"""The cells of core's call and custom rules in the columns discharge, handler and predicate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from fiveloop.core import Jaxpr, Value, ad, ir, trace, transforms, util
from fiveloop.core.closed_call import ClosedCallParams, closed_call_p
from fiveloop.core.custom_rule import primitive
from fiveloop.state import handlers, predicate, primitives
from fiveloop.state.discharge import engine
from fiveloop.state.discharge.phases import DischargeContext
from fiveloop.state.discharge.table import Cell, Operands, define_discharge
from fiveloop.state.refs import AbstractRef


def call_discharge(
    prim: ir.Primitive[Any], ctx: DischargeContext, operands: Operands, p: Any
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


def _cells(operands: Operands, p: Any) -> tuple[util.Mask, util.Mask]:
    """Which operands are Cells, and which of those change."""
    changed = ir.mutated_positions(p.jaxpr.effects)
    which = tuple(isinstance(x, Cell) for x in operands)
    return which, tuple(w and k in changed for k, w in enumerate(which))


def _call(
    prim: ir.Primitive[Any], ctx: DischargeContext, operands: Operands, p: Any, results: util.Mask
) -> list[Value]:
    outs = trace.bind(prim, *ctx.values(operands), params=p)
    num_outs = len(outs) - sum(results)
    cells = [x for x, r in zip(operands, results, strict=True) if r and isinstance(x, Cell)]
    for cell, contents in zip(cells, outs[num_outs:], strict=True):
        ctx.assign(cell, contents)
    return outs[:num_outs]


def custom_rule_discharge(
    ctx: DischargeContext, operands: Operands, p: primitive.RuleParams
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


class DischargedRule(primitive.RuleAround):
    """The rule of an equation whose Refs are values: it makes Refs, runs the rule, and gives what they hold."""

    def __init__(self, inner: primitive.RuleParams, which: util.Mask, results: util.Mask) -> None:
        super().__init__(inner)
        self.which = which
        self.results = results

    def jvp(self, p: primitive.RuleParams, primals: ad.Values, tangents: ad.Tangents) -> ad.Duals:
        """The rule on Refs, followed by the contents of the Refs that it changes."""
        refs = [primitives.ref_of(x) if w else x for x, w in zip(primals, self.which, strict=True)]
        perturbed = any(transforms.nonzero_mask(tangents))
        dots = [
            # What a Ref holds may come to depend on what is differentiated.
            primitives.ref_of(transforms.instantiate(t), holds_tangent=True)
            if w and x.aval.differentiable and perturbed
            else t
            for x, t, w in zip(primals, tangents, self.which, strict=True)
        ]
        outs, outs_dot = primitive.by_rule(self.inner, self.inner.rule.jvp, refs, dots)
        changed = util.select_by(self.results, list(zip(refs, dots, strict=True)))
        contents = [trace.bind1(primitives.freeze_p, ref) for ref, _ in changed]
        ends = [
            transforms.zero_like(x)
            if isinstance(dot, ad.Zero)
            else trace.bind1(primitives.freeze_p, dot)
            for x, (_, dot) in zip(contents, changed, strict=True)
        ]
        return [*outs, *contents], [*outs_dot, *ends]

    def transpose(
        self, p: primitive.RuleParams, cts: ad.Tangents, operands: ad.Operands
    ) -> ad.Cotangents:
        """The rule's transpose, where Refs are made inside alone; else that of the jaxpr."""
        if not self.transposes or any(self.which):
            return super().transpose(p, cts, operands)
        return primitive.by_rule(self.inner, self.inner.rule.transpose, cts, operands)


def custom_rule_handler(
    handling: handlers.Handling, ref: Value, operands: ad.Values, p: primitive.RuleParams
) -> list[Value]:
    """Call the jaxpr with the Ref, and the rule with it where it is differentiated."""
    assert p.jaxpr is not None, "unreachable: what is given by its rule alone has no effect"

    def run_jvp(
        ref: Value, staged: trace.Staged, args: ad.Values, nonzero: Sequence[bool]
    ) -> list[Value]:
        return transforms.eval_jaxpr(handling.thread(staged.jaxpr), [ref, *args])

    return _bind_led(p, ref, operands, handling.thread(p.jaxpr), run_jvp)


def custom_rule_predicate(
    pred: Value, operands: ad.Values, guard: predicate.Guard, p: primitive.RuleParams
) -> list[Value]:
    """Call the jaxpr on condition, and the rule on condition where it is differentiated."""
    if p.jaxpr is None:
        return trace.bind(primitive.custom_rule_p, *operands, params=p)

    def run_jvp(
        pred: Value, staged: trace.Staged, args: ad.Values, nonzero: util.Mask
    ) -> list[Value]:
        # A tangent is guarded as its value is.
        refs, own = ((*m, *util.select_by(nonzero, m)) for m in (guard.refs, guard.own))
        inner = replace(guard, refs=refs, own=own).after(len(staged.captured))
        return predicate.eval_predicated(pred, staged.jaxpr, args, inner)

    return _bind_led(p, pred, operands, predicate.predicated(p.jaxpr, guard), run_jvp)


RunJvp = Callable[[Value, trace.Staged, ad.Values, util.Mask], list[Value]]
"""Run a staged derivative, with the operand in front, the jaxpr's other operands, and which tangents are not zero.

staged.jaxpr : [*captured, *values, *nonzero dots] -> [*outs, *nonzero outs_dot]
"""


class _LedRule(primitive.RuleAround):
    """The rule of an equation with one more operand in front: another rule, whose derivative `run_jvp` runs."""

    def __init__(self, inner: primitive.RuleParams, run_jvp: RunJvp) -> None:
        super().__init__(inner)
        self.run_jvp = run_jvp

    def jvp(self, p: primitive.RuleParams, primals: ad.Values, tangents: ad.Tangents) -> ad.Duals:
        """What the rule gives, from a jaxpr of it that takes the operand in front."""
        lead, *values = primals
        jvp = lambda *duals: primitive.by_rule(self.inner, self.inner.rule.jvp, *duals)
        flat = primitive.Masked(jvp, len(values), tangents[1:])
        args = [*values, *flat.dots]
        staged = trace.stage(flat, [x.aval for x in args], self.inner.name)
        nonzero = transforms.nonzero_mask(tangents[1:])
        results = self.run_jvp(lead, staged, [*staged.captured, *args], nonzero)
        outs, outs_dot = flat.apart(results)
        return outs, [t for t in outs_dot if t is not None]

    def transpose(
        self, p: primitive.RuleParams, cts: ad.Tangents, operands: ad.Operands
    ) -> ad.Cotangents:
        """The rule's transpose; the operand in front has no cotangent."""
        cts_in = primitive.by_rule(self.inner, self.inner.rule.transpose, cts, operands[1:])
        return [None, *cts_in]


def _bind_led(
    p: primitive.RuleParams, lead: Value, operands: ad.Values, jaxpr: Jaxpr, run_jvp: RunJvp
) -> list[Value]:
    """The equation with one more operand in front, which its jaxpr takes, and its derivative."""
    scope = trace.AxisScope(p.axes, p.axes)
    rule = _LedRule(p, run_jvp)
    params = replace(p, jaxpr=jaxpr, rule=rule, num_closed=p.num_closed + 1, scope=scope)
    return trace.bind(primitive.custom_rule_p, lead, *operands, params=params)


define_discharge(closed_call_p, partial(call_discharge, closed_call_p))
define_discharge(primitive.custom_rule_p, custom_rule_discharge)
handlers.define_handler(primitive.custom_rule_p, custom_rule_handler)
predicate.define_predicate(primitive.custom_rule_p, custom_rule_predicate)
