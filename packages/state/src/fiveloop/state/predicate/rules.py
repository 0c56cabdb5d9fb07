"""The predicate cells of core's and of state's primitives.

What calls a jaxpr takes the condition in front of its operands. A write writes what was there if it does not hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from fiveloop.core import Value
from fiveloop.core.engine import CustomRuleParams, Mask, Staged, custom_rule_p, select_by
from fiveloop.core.extend import Primitive, bind, bind1, closed_call_p, select, zeros_of
from fiveloop.state.monoids import MONOIDS
from fiveloop.state.predicate.engine import Guard, define_predicate, eval_predicated, predicated
from fiveloop.state.primitives.common import (
    AccumulateParams,
    IndexParams,
    SwapParams,
    accumulate_p,
    addupdate_p,
    get_p,
    swap_p,
)
from fiveloop.state.staged_rule import bind_led


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

    def run_jvp(pred: Value, staged: Staged, args: Sequence[Value], nonzero: Mask) -> list[Value]:
        # A tangent is guarded as its value is.
        refs, own = ((*m, *select_by(nonzero, m)) for m in (guard.refs, guard.own))
        inner = replace(guard, refs=refs, own=own).after(len(staged.captured))
        return eval_predicated(pred, staged.jaxpr, args, inner)

    return bind_led(p, pred, operands, predicated(p.jaxpr, guard), run_jvp)


def _get(pred: Value, operands: Sequence[Value], guard: Guard, p: IndexParams) -> list[Value]:
    out = bind1(get_p, *operands, params=p)
    return [guard.read(pred, out)]


def _swap(pred: Value, operands: Sequence[Value], guard: Guard, p: SwapParams) -> list[Value]:
    ref, x, *index = operands
    old = bind1(get_p, ref, *index, params=IndexParams(p.indexer))
    new = select(pred, x, old)
    bind(swap_p, ref, new, *index, params=replace(p, returns_old=False))
    return [guard.read(pred, old)] if p.returns_old else []


def _addupdate(pred: Value, operands: Sequence[Value], guard: Guard, p: IndexParams) -> list[Value]:
    ref, x, *index = operands
    return bind(addupdate_p, ref, select(pred, x, zeros_of(x.aval)), *index, params=p)


def _accumulate(
    pred: Value, operands: Sequence[Value], guard: Guard, p: AccumulateParams
) -> list[Value]:
    ref, x, *index = operands
    share = select(pred, x, MONOIDS[p.monoid].neutral(x.aval))
    return bind(accumulate_p, ref, share, *index, params=p)


define_predicate(closed_call_p, partial(call_predicate, closed_call_p))
define_predicate(custom_rule_p, custom_rule_predicate)
define_predicate(get_p, _get)
define_predicate(swap_p, _swap)
define_predicate(addupdate_p, _addupdate)
define_predicate(accumulate_p, _accumulate)
