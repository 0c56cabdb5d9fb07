"""On condition: the same choice, of branches that change no Ref from outside if the condition does not hold."""

from __future__ import annotations

from dataclasses import replace

from fiveloop.core import Value, ad, trace
from fiveloop.loops.primitives.cond import CondParams, cond_p
from fiveloop.state import predicate


def cond_predicate(
    pred: Value, operands: ad.Values, guard: predicate.Guard, p: CondParams
) -> list[Value]:
    """Choose among branches that take the condition as their first operand."""
    index, *rest = operands
    # branch : [*ins] -> [*outs];  predicated : [pred, *ins] -> [*outs]
    branches = tuple(predicate.predicated(b, guard.without(1)) for b in p.branches)
    return trace.bind(cond_p, index, pred, *rest, params=replace(p, branches=branches))
