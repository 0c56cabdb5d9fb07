"""The pass `plan`: the planning steps that come after differentiation, for each loop, inner loops first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from operator import is_

from fiveloop.core import Jaxpr, ir, passes, rules, trace, transforms, util
from fiveloop.core.closed_call import closed_call_p
from fiveloop.core.custom_rule import has_bwd
from fiveloop.loops.analysis import operands
from fiveloop.loops.analysis.accesses import Around, around, element_added_to
from fiveloop.loops.analysis.array_life import promote_carried
from fiveloop.loops.options import STEPS
from fiveloop.loops.plan import branch, carry, fold, fuse, hoist, promote, scalars, sink, unroll
from fiveloop.loops.plan.masked import masked
from fiveloop.loops.plan.rows import in_rows
from fiveloop.loops.primitives import for_loop, while_loop
from fiveloop.loops.primitives.cond import cond_p
from fiveloop.loops.record import OFF, Decision, Planned
from fiveloop.loops.tracing import BODY_PASSES, BodyPass, TracedBody


def _rewriting(step: Callable[[Jaxpr], tuple[Jaxpr, list[Decision]]]) -> BodyPass:
    """A pass that changes the equations of a body, and none of its inputs."""

    def run(traced: TracedBody, nsteps: int, tells: bool) -> TracedBody:
        body, told = step(traced.jaxpr)
        return replace(traced, jaxpr=body, told=[*traced.told, *told])

    return run


def _hoisted(traced: TracedBody, nsteps: int, tells: bool) -> TracedBody:
    """The body, with invariant values computed before the loop and passed as constants; unused constants are removed.

    What has a bwd stays: the loop may be differentiated yet, and then that has to run once for each step. Outside of
    traces the pass `plan` does this, so that one program computes everything.
    """
    if nsteps < 2 or trace.is_eager():
        return traced
    i, *binders = traced.jaxpr.invars
    num_consts, num = len(traced.consts), len(traced.consts) + len(traced.refs)
    found = hoist.invariant_part(traced.jaxpr, num_consts, len(traced.refs), has_bwd)
    traced = replace(traced, told=[*traced.told, *found.told])
    if not found.results:
        return traced
    before = Jaxpr(binders[:num], found.eqns, found.results, traced.jaxpr.name)
    values = transforms.eval_jaxpr(before, [*traced.consts, *traced.refs])
    used = ir.used_by(found.rest, traced.jaxpr.outvars)
    kept = [v in used for v in binders[:num_consts]]
    consts = [*util.select_by(kept, binders[:num_consts]), *found.results]
    invars = [i, *consts, *binders[num_consts:]]
    body = Jaxpr(invars, found.rest, traced.jaxpr.outvars, traced.jaxpr.name)
    return replace(traced, jaxpr=body, consts=[*util.select_by(kept, traced.consts), *values])


def _with_promoted(traced: TracedBody, nsteps: int, tells: bool) -> TracedBody:
    """The body with its constants that are read at indices as Refs."""
    body, mask = promote.promote_constants(traced.jaxpr, len(traced.consts), len(traced.refs))
    # Which lane is whose is not for the user to say.
    told = promote.decisions(traced.jaxpr, mask) if tells and not traced.called.kind else []
    consts, promoted = util.partition(mask, traced.consts)
    refs = [*traced.refs, *promoted]
    told = [*traced.told, *told]
    return TracedBody(body, consts, refs, traced.fun, traced.called, len(promoted), told)


BODY_PASSES.update(
    promote=_rewriting(promote.promote),
    fold=_rewriting(fold.fold_writes),
    hoist=_hoisted,
    constants=_with_promoted,
)


_chooses = ir.holding(cond_p)


def _branch(eqn: ir.Eqn, where: Around) -> Planned:
    return branch.branch(eqn, where) if _chooses(eqn.params.body) else Planned(eqn)


_enters = ir.holding(cond_p, closed_call_p)


def _scalars(eqn: ir.Eqn, _: Around) -> Planned:
    body = eqn.params.body
    adds = _enters(body) or any(map(element_added_to, body.eqns))
    return scalars.scalars(eqn) if adds else Planned(eqn)


_STEPS: tuple[tuple[str, Callable[[ir.Eqn, Around], Planned]], ...] = (
    ("fold", lambda eqn, _: fold.fold(eqn)),
    ("hoist", lambda eqn, _: hoist.hoist(eqn)),
    ("carry", lambda eqn, _: carry.carry(eqn)),
    ("scalars", _scalars),
    ("sink", sink.sink),
    ("fuse", fuse.fuse),
    ("branch", _branch),
)
"""The steps by name, in order."""


def is_changed(jaxpr: Jaxpr) -> bool:
    """Whether there is something to plan."""
    return plan(jaxpr) is not jaxpr


def plan(jaxpr: Jaxpr) -> Jaxpr:
    """The jaxpr with its loops planned, in nested jaxprs too; itself if there is nothing to do."""
    planned = _plan(jaxpr)
    bodies = [body for eqn in planned.eqns for body in ir.jaxprs_in(eqn.params)]
    return in_rows(planned) if any(map(_loops, bodies)) else planned


_loops = ir.holding(for_loop.for_p)


@ir.once_per_jaxpr
def _plan(jaxpr: Jaxpr) -> Jaxpr:
    """The jaxpr with all steps that look at one loop done, inner loops first."""
    where = around(jaxpr)
    eqns = [new for eqn in jaxpr.eqns for new in _planned(eqn, where)]
    # A step may have taken the use of a Ref that was only read back, or of what the loop was given.
    planned = transforms.with_equations(jaxpr, eqns)
    where = around(planned)
    turned = [_with_turns(eqn, where) for eqn in planned.eqns]
    return planned if all(map(is_, turned, planned.eqns)) else planned.replace(eqns=turned)


def _with_turns(eqn: ir.Eqn, where: Around) -> ir.Eqn:
    """A loop with several steps to a turn, chosen when all else is done, and what has no use is gone."""
    if eqn.primitive is not for_loop.for_p or "unroll" in eqn.params.off:
        return eqn
    may_end = _chooses(eqn.params.body)
    done = (masked(eqn, where) if may_end else None) or unroll.unroll(eqn)
    p = done.loop.params
    if not p.record.tells:
        return done.loop
    return done.loop.replace(params=replace(p, record=p.record.with_decisions(done.told)))


def _planned(eqn: ir.Eqn, where: Around) -> list[ir.Eqn]:
    if eqn.primitive is while_loop.while_p:
        return [
            _told_while(new) if new.primitive is while_loop.while_p else new
            for new in promote_carried(eqn)
        ]
    eqn = rules.with_bodies(eqn, _plan)
    return _loop(eqn, where).eqns if eqn.primitive is for_loop.for_p else [eqn]


def _told_while(eqn: ir.Eqn) -> ir.Eqn:
    """A `while` with its nested jaxprs planned, and what is told of it."""
    params = operands.with_operands(eqn.params)
    return rules.with_bodies(eqn if params is eqn.params else eqn.replace(params=params), _plan)


def _loop(eqn: ir.Eqn, where: Around) -> Planned:
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
    loop = done.loop.replace(
        params=replace(p, record=replace(record, operands=operands.operands_of(p)))
    )
    return replace(done, loop=loop)


passes.register_pass(
    passes.Pass("plan", after=("dce", "replay", "checkpoints"), applies=is_changed, run=plan)
)
