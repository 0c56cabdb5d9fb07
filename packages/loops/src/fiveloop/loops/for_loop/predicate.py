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
    body       : [i, *consts, pred, *rest] -> [*carry]
    """
    made = predicate.predicated(p.body, guard.after(1))
    num = p.num_consts
    holds, i, *rest = made.invars
    body = made.replace(invars=[i, *rest[:num], holds, *rest[num:]])
    params = replace(p, body=body, num_consts=num + 1)
    return trace.bind(for_p, *operands[:num], pred, *operands[num:], params=params)
