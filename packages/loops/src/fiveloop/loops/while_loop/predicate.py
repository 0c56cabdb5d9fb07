"""On condition: a loop that makes no step if the condition does not hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fiveloop.core import Value
from fiveloop.core.extend import bind, bitwise_and, stage_closed
from fiveloop.loops.common import with_inputs
from fiveloop.loops.primitives.while_loop import WhileParams, while_p
from fiveloop.state.extend import PREDICATE, Guard, eval_predicated


def while_predicate(
    pred: Value, operands: Sequence[Value], guard: Guard, p: WhileParams
) -> list[Value]:
    """Loop with the condition as a constant; also without Refs, or a loop run in vain might never end.

    p.cond : [*ins]       -> [pred]
    cond   : [pred, *ins] -> [pred]
    """

    def holds(pred: Value, *args: Value) -> list[Value]:
        return [bitwise_and(pred, *eval_predicated(pred, p.cond, args, guard))]

    cond = stage_closed(holds, [PREDICATE, *p.cond.in_avals], p.cond.name)
    body = with_inputs(p.body, [PREDICATE], 0)
    body.invars[0].hint = "branch taken"
    params = replace(p, cond=cond, body=body, num_consts=p.num_consts + 1)
    return bind(while_p, pred, *operands, params=params)
