"""The pass `plan`: the planning steps that come after all derivatives, for each loop, the inner ones first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from operator import is_

from fiveloop.core import Jaxpr
from fiveloop.core.extend import Eqn, Pass, dce, jaxprs_in, new_eqn, register_pass, with_jaxprs
from fiveloop.loops.analysis.around import Around, around
from fiveloop.loops.options import STEPS
from fiveloop.loops.plan.branch import branch
from fiveloop.loops.plan.carry import carry
from fiveloop.loops.plan.fold import fold
from fiveloop.loops.plan.fuse import fuse
from fiveloop.loops.plan.hoist import hoist
from fiveloop.loops.plan.operands import operands_of, with_operands
from fiveloop.loops.plan.promote import promote_carried
from fiveloop.loops.plan.sink import sink
from fiveloop.loops.plan.unroll import unroll
from fiveloop.loops.primitives.for_loop import for_p
from fiveloop.loops.primitives.while_loop import while_p
from fiveloop.loops.record import OFF, Decision, Planned

_STEPS: tuple[tuple[str, Callable[[Eqn, Around], Planned]], ...] = (
    ("fold", lambda eqn, _: fold(eqn)),
    ("hoist", lambda eqn, _: hoist(eqn)),
    ("carry", lambda eqn, _: carry(eqn)),
    ("sink", sink),
    ("fuse", fuse),
    ("branch", branch),
)
"""The steps by name, in order."""


def plan(jaxpr: Jaxpr) -> Jaxpr:
    """The jaxpr with its loops planned, in nested jaxprs too; itself if there is nothing to do."""
    return jaxpr.remember("planned", lambda: _plan(jaxpr))


def is_changed(jaxpr: Jaxpr) -> bool:
    """Whether there is something to plan."""
    return plan(jaxpr) is not jaxpr


def _plan(jaxpr: Jaxpr) -> Jaxpr:
    where = around(jaxpr)
    eqns = [new for eqn in jaxpr.eqns for new in _planned(eqn, where)]
    planned = jaxpr
    if len(eqns) != len(jaxpr.eqns) or not all(map(is_, eqns, jaxpr.eqns)):
        # A step may have taken the use of a Ref that was only read back, or of what the loop was given.
        made = Jaxpr(jaxpr.invars, eqns, jaxpr.outvars, jaxpr.name)
        planned = dce(made, [True] * len(jaxpr.outvars))[0]
    turned = [_with_turns(eqn) for eqn in planned.eqns]
    return planned if all(map(is_, turned, planned.eqns)) else planned.replace(eqns=turned)


def _with_turns(eqn: Eqn) -> Eqn:
    """A loop with several steps to a turn, chosen when all else is done, and what has no use is gone."""
    if eqn.primitive is not for_p or "unroll" in eqn.params.off:
        return eqn
    done = unroll(eqn)
    p = done.loop.params
    if not p.record.tells:
        return done.loop
    return done.loop.replace(params=replace(p, record=p.record.with_decisions(done.told)))


def _planned(eqn: Eqn, where: Around) -> list[Eqn]:
    if eqn.primitive is while_p:
        return [
            _told_while(new) if new.primitive is while_p else new for new in promote_carried(eqn)
        ]
    eqn = _with_bodies(eqn)
    return _loop(eqn, where).eqns if eqn.primitive is for_p else [eqn]


def _told_while(eqn: Eqn) -> Eqn:
    """A `while` with its nested jaxprs planned, and what is told of it."""
    params = with_operands(eqn.params)
    return _with_bodies(eqn if params is eqn.params else eqn.replace(params=params))


def _with_bodies(eqn: Eqn) -> Eqn:
    """An equation with its nested jaxprs planned."""
    if any(map(is_changed, jaxprs_in(eqn.params))):
        params = with_jaxprs(eqn.params, plan)
        return new_eqn(eqn.primitive, eqn.invars, params, eqn.outvars, eqn.source)
    return eqn


def _loop(eqn: Eqn, where: Around) -> Planned:
    """A loop after all steps that are on for it."""
    done = Planned(eqn)
    for name, step in _STEPS:
        if name not in eqn.params.off:
            new = step(done.loop, where)
            where = where.and_then(new.after)
            done = Planned(
                new.loop,
                [*done.before, *new.before],
                [*new.after, *done.after],
                [*done.told, *new.told],
            )
    return _told(done) if eqn.params.record.tells else done


def _told(done: Planned) -> Planned:
    """The loop with all that is told of it, once."""
    p = done.loop.params
    if p.record.operands or p.num_carry:
        return done
    off = [Decision(name, "", False, OFF) for name in STEPS if name in p.off]
    record = p.record.with_decisions([*done.told, *off])
    loop = done.loop.replace(params=replace(p, record=replace(record, operands=operands_of(p))))
    return replace(done, loop=loop)


register_pass(Pass("plan", after=("dce",), applies=is_changed, run=plan))
