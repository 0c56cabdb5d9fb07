"""On a condition: a loop that runs no step if the condition is false."""

from __future__ import annotations

from dataclasses import replace

from fiveloop.core import Value, ad, prims, trace
from fiveloop.loops.common import with_inputs
from fiveloop.loops.primitives.while_loop import WhileParams, while_p
from fiveloop.state import predicate


def while_predicate(
    pred: Value, operands: ad.Values, guard: predicate.Guard, p: WhileParams
) -> list[Value]:
    """Loop with the condition as a constant; also without Refs, or a loop run in vain might never end.

    p.cond : [*ins]       -> [pred]
    cond   : [pred, *ins] -> [pred]
    """

    def holds(pred: Value, *args: Value) -> list[Value]:
        return [prims.bitwise_and(pred, *predicate.eval_predicated(pred, p.cond, args, guard))]

    cond = trace.stage_closed(holds, [predicate.PREDICATE, *p.cond.in_avals], p.cond.name)
    body = with_inputs(p.body, [predicate.PREDICATE], 0)
    body.invars[0].hint = "branch taken"
    params = replace(p, cond=cond, body=body, num_consts=p.num_consts + 1)
    return trace.bind(while_p, pred, *operands, params=params)
