"""The predicate cells of the primitives on Refs.

If the predicate is false, a write writes the old contents back.
"""

from __future__ import annotations

from fiveloop.core import Value, ad, prims, trace
from fiveloop.state import primitives
from fiveloop.state.predicate.engine import Guard, define_predicate


def _swap(pred: Value, operands: ad.Values, guard: Guard, p: primitives.SwapParams) -> list[Value]:
    ref, x, *index = operands
    old = primitives.read(ref, p.indexer, index)
    primitives.write(ref, prims.select(pred, x, old), p.indexer, index)
    return [old] if p.returns_old else []


def _combine(
    pred: Value, operands: ad.Values, guard: Guard, p: primitives.IndexParams
) -> list[Value]:
    ref, x, *index = operands
    name = primitives.name_of_monoid(p)
    share = prims.select(pred, x, prims.MONOIDS[name].neutral(x.aval))
    primitives.combine(ref, share, p.indexer, index, name)
    return []


define_predicate(
    primitives.get_p, lambda pred, xs, guard, p: trace.bind(primitives.get_p, *xs, params=p)
)
define_predicate(primitives.swap_p, _swap)
define_predicate(primitives.addupdate_p, _combine)
define_predicate(primitives.accumulate_p, _combine)
