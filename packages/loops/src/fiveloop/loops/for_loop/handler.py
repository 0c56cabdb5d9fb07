"""Handling an effect: the body works on one more Ref."""

from __future__ import annotations

from dataclasses import replace

from fiveloop.core import Jaxpr, Value, ad, trace, transforms
from fiveloop.loops.primitives.for_loop import ForParams, for_p, step_number
from fiveloop.state.handlers import Handling


def for_handler(handling: Handling, ref: Value, operands: ad.Values, p: ForParams) -> list[Value]:
    """Loop with the Ref in front of the others."""
    first = p.first_ref
    key = ("handled", handling, first, p.reverse, p.nsteps, p.counted, p.lanes)
    body = p.body.remember(key, lambda: _handled(handling, p))
    operands = [*operands[:first], ref, *operands[first:]]
    return trace.bind(for_p, *operands, params=replace(p, body=body))


def _handled(handling: Handling, p: ForParams) -> Jaxpr:
    """The body with the Ref, to which the effect may do something of its own in each step.

    threaded : [ref, i, *consts, *carry, *refs] -> [*carry]
    body     : [i, *consts, *carry, ref, *refs] -> [*carry]
    """
    threaded = handling.thread(p.body)
    at = 1 + p.first_ref

    def run(*args: Value) -> list[Value]:
        ref, i = args[at], args[0]
        ins = [*args[:at], *args[at + 1 :]]
        step = lambda: transforms.eval_jaxpr(threaded, [ref, *ins])
        if p.lanes is not None:
            return handling.effect.in_lane(ref, i, p.lanes, step)
        return handling.effect.in_step(ref, step_number(p, i, args[1]), step)

    ref, *binders = threaded.invars
    binders = [*binders[:at], ref, *binders[at:]]
    hints = [v.hint for v in binders]
    return trace.stage_closed(run, [v.aval for v in binders], p.body.name, hints)
