"""The predicate cells of the primitives on Refs.

A write writes what was there if it does not hold.
"""

from __future__ import annotations

from fiveloop.core import Value, ad, prims, trace, transforms
from fiveloop.state import primitives
from fiveloop.state.predicate.engine import Guard, define_predicate


def _get(pred: Value, operands: ad.Values, guard: Guard, p: primitives.IndexParams) -> list[Value]:
    return trace.bind(primitives.get_p, *operands, params=p)


def _swap(pred: Value, operands: ad.Values, guard: Guard, p: primitives.SwapParams) -> list[Value]:
    ref, x, *index = operands
    old = primitives.read(ref, p.indexer, index)
    primitives.write(ref, prims.select(pred, x, old), p.indexer, index)
    return [old] if p.returns_old else []


def _addupdate(
    pred: Value, operands: ad.Values, guard: Guard, p: primitives.IndexParams
) -> list[Value]:
    ref, x, *index = operands
    share = prims.select(pred, x, transforms.zeros_of(x.aval))
    return trace.bind(primitives.addupdate_p, ref, share, *index, params=p)


def _accumulate(
    pred: Value, operands: ad.Values, guard: Guard, p: primitives.AccumulateParams
) -> list[Value]:
    ref, x, *index = operands
    share = prims.select(pred, x, prims.MONOIDS[p.monoid].neutral(x.aval))
    return trace.bind(primitives.accumulate_p, ref, share, *index, params=p)


define_predicate(primitives.get_p, _get)
define_predicate(primitives.swap_p, _swap)
define_predicate(primitives.addupdate_p, _addupdate)
define_predicate(primitives.accumulate_p, _accumulate)
