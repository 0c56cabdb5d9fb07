"""On condition: the same steps, of a body that changes no Ref from outside if the condition does not hold."""

from __future__ import annotations

from dataclasses import replace

from fiveloop.core import Value, ad, trace
from fiveloop.loops.primitives.for_loop import ForParams, for_p
from fiveloop.state import predicate


def for_predicate(
    pred: Value, operands: ad.Values, guard: predicate.Guard, p: ForParams
) -> list[Value]:
    """Loop with the condition as a constant.

    p.body     : [i, *consts, *rest]       -> [*carry]
    predicated : [pred, i, *consts, *rest] -> [*carry]
    body       : [i, pred, *consts, *rest] -> [*carry]
    """
    made = predicate.predicated(p.body, guard.after(1))
    holds, i, *rest = made.invars
    body = made.replace(invars=[i, holds, *rest])
    params = replace(p, body=body, num_consts=p.num_consts + 1)
    return trace.bind(for_p, pred, *operands, params=params)
