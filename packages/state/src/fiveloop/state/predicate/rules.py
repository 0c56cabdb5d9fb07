"""The predicate cells of core's and of state's primitives.

A write writes what was there if it does not hold.
"""

from __future__ import annotations

from dataclasses import replace

from fiveloop.core import Value, ad, prims, trace, transforms, util
from fiveloop.core.custom_rule.primitive import CustomRuleParams, custom_rule_p
from fiveloop.state import lead, primitives
from fiveloop.state.predicate.engine import Guard, define_predicate, eval_predicated, predicated


def custom_rule_predicate(
    pred: Value, operands: ad.Values, guard: Guard, p: CustomRuleParams
) -> list[Value]:
    """Call the jaxpr on condition, and the rule on condition where it is differentiated."""
    if p.jaxpr is None:
        return trace.bind(custom_rule_p, *operands, params=p)

    def run_jvp(
        pred: Value, staged: trace.Staged, args: ad.Values, nonzero: util.Mask
    ) -> list[Value]:
        # A tangent is guarded as its value is.
        refs, own = ((*m, *util.select_by(nonzero, m)) for m in (guard.refs, guard.own))
        inner = replace(guard, refs=refs, own=own).after(len(staged.captured))
        return eval_predicated(pred, staged.jaxpr, args, inner)

    return lead.bind_led_rule(p, pred, operands, predicated(p.jaxpr, guard), run_jvp)


def _get(pred: Value, operands: ad.Values, guard: Guard, p: primitives.IndexParams) -> list[Value]:
    out = trace.bind1(primitives.get_p, *operands, params=p)
    return [guard.read(pred, out)]


def _swap(pred: Value, operands: ad.Values, guard: Guard, p: primitives.SwapParams) -> list[Value]:
    ref, x, *index = operands
    old = trace.bind1(primitives.get_p, ref, *index, params=primitives.IndexParams(p.indexer))
    new = prims.select(pred, x, old)
    trace.bind(primitives.swap_p, ref, new, *index, params=replace(p, returns_old=False))
    return [guard.read(pred, old)] if p.returns_old else []


def _addupdate(
    pred: Value, operands: ad.Values, guard: Guard, p: primitives.IndexParams
) -> list[Value]:
    ref, x, *index = operands
    return trace.bind(
        primitives.addupdate_p,
        ref,
        prims.select(pred, x, transforms.zeros_of(x.aval)),
        *index,
        params=p,
    )


def _accumulate(
    pred: Value, operands: ad.Values, guard: Guard, p: primitives.AccumulateParams
) -> list[Value]:
    ref, x, *index = operands
    share = prims.select(pred, x, prims.MONOIDS[p.monoid].neutral(x.aval))
    return trace.bind(primitives.accumulate_p, ref, share, *index, params=p)


define_predicate(custom_rule_p, custom_rule_predicate)
define_predicate(primitives.get_p, _get)
define_predicate(primitives.swap_p, _swap)
define_predicate(primitives.addupdate_p, _addupdate)
define_predicate(primitives.accumulate_p, _accumulate)
