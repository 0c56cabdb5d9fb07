"""The pass that handles all effects of a program: each gets a Ref, whose contents in the end are a result."""

from __future__ import annotations

from fiveloop.core import Jaxpr
from fiveloop.core.extend import NO_PARAMS, Pass, new_eqn, register_pass, stage_closed
from fiveloop.state.handlers.effect import HandledEffect, handled_kinds
from fiveloop.state.handlers.thread import thread_effect
from fiveloop.state.primitives.lifetime import NewRefParams, freeze_p, new_ref_p


def handle_all(jaxpr: Jaxpr) -> Jaxpr:
    """The program without effects that are handled."""
    for kind in handled_kinds(jaxpr.effects):
        jaxpr = _handle(jaxpr, kind)
    return jaxpr


def _handle(jaxpr: Jaxpr, kind: type[HandledEffect]) -> Jaxpr:
    """The program with a Ref of its own for the effects of one type.

    jaxpr    : [*ins]      -> [*outs]
    threaded : [ref, *ins] -> [*outs]
    handled  : [*ins]      -> [*outs, what the Ref holds in the end, if the effect takes it]
    """
    effects = [e for e in jaxpr.effects if type(e) is kind]
    # What is computed is computed in the program: an array would be one more argument of each call.
    initial = stage_closed(lambda: [kind.initial(effects)], [])
    threaded = thread_effect(jaxpr, kind, initial.out_avals[0])
    ref, *invars = threaded.invars
    made = new_eqn(new_ref_p, initial.outvars, NewRefParams(), [ref])
    eqns, outs = [*initial.eqns, made, *threaded.eqns], list(threaded.outvars)
    if kind.returns:
        eqns.append(new_eqn(freeze_p, [ref], NO_PARAMS))
        outs += eqns[-1].outvars
    return Jaxpr(invars, eqns, outs, jaxpr.name)


def _is_handled(jaxpr: Jaxpr) -> bool:
    return bool(handled_kinds(jaxpr.effects))


register_pass(Pass("handle", after=("dce", "plan"), applies=_is_handled, run=handle_all))
