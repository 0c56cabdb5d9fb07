"""On condition: reads, and writes that write what was there if the condition does not hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fiveloop.core import Value
from fiveloop.core.extend import bind, bind1, select, zeros_of
from fiveloop.state.monoids import MONOIDS
from fiveloop.state.predicate.engine import Guard, define_predicate
from fiveloop.state.primitives.common import (
    AccumulateParams,
    IndexParams,
    SwapParams,
    accumulate_p,
    addupdate_p,
    get_p,
    swap_p,
)


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


define_predicate(get_p, _get)
define_predicate(swap_p, _swap)
define_predicate(addupdate_p, _addupdate)
define_predicate(accumulate_p, _accumulate)
