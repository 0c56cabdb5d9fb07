"""Handling an effect: the body takes one more Ref."""

from __future__ import annotations

from fiveloop.core import Jaxpr, Value, ad, ir, trace, transforms
from fiveloop.loops.primitives.for_loop import ForParams, for_p, step_number
from fiveloop.state import handlers
from fiveloop.state.handlers import Handling


def for_handler(handling: Handling, ref: Value, operands: ad.Values, p: ForParams) -> list[Value]:
    """Loop with the Ref in front of the others."""
    return handlers.bind_led(for_p, ref, operands, p, lambda body: _handled(handling, p))


@ir.once_per(lambda h, p: (p.body, h, p.first_ref, p.reverse, p.nsteps, p.counted, p.lanes))
def _handled(handling: Handling, p: ForParams) -> Jaxpr:
    """The body with the Ref, to which the effect may do something of its own in each step.

    threaded, handled : [ref, i, *consts, *carry, *refs] -> [*carry]
    """
    threaded = handling.thread(p.body)

    def run(ref: Value, i: Value, *args: Value) -> list[Value]:
        step = lambda: transforms.eval_jaxpr(threaded, [ref, i, *args])
        if p.lanes is not None:
            return handling.effect.in_lane(ref, i, p.lanes, step)
        count = args[0] if p.counted else i
        return handling.effect.in_step(ref, step_number(p, i, count), step)

    return trace.stage_closed(run, threaded.in_avals, p.body.name, threaded.hints)
