"""The planning steps over the body of a loop while it is traced, before any derivative."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fiveloop.core import Jaxpr, ir, transforms, util
from fiveloop.core.trace.tracer import is_eager
from fiveloop.loops.plan import constants, fold, hoist, promote
from fiveloop.loops.record import Decision
from fiveloop.loops.tracing import BODY_PASSES, BodyPass, TracedBody


def _rewriting(step: Callable[[Jaxpr], tuple[Jaxpr, list[Decision]]]) -> BodyPass:
    """A pass that changes the equations of a body, and none of its inputs."""

    def run(traced: TracedBody, nsteps: int, tells: bool) -> TracedBody:
        body, told = step(traced.jaxpr)
        return replace(traced, jaxpr=body, told=[*traced.told, *told])

    return run


def _hoisted(traced: TracedBody, nsteps: int, tells: bool) -> TracedBody:
    """The body with what no step changes computed here, and among its constants; those that it needs no more are gone.

    Outside of traces that is left to the pass `plan`, so that one program does it all.
    """
    if nsteps < 2 or is_eager():
        return traced
    i, *binders = traced.jaxpr.invars
    num_consts, num = len(traced.consts), len(traced.consts) + len(traced.refs)
    changed = ir.mutated_positions(traced.jaxpr.effects)
    read = [v for k, v in enumerate(binders[:num]) if k >= num_consts and k + 1 not in changed]
    found = hoist.invariant_part(traced.jaxpr, binders[:num_consts], read)
    traced = replace(traced, told=[*traced.told, *found.told])
    if not found.results:
        return traced
    before = Jaxpr(binders[:num], found.eqns, found.results, traced.jaxpr.name)
    values = transforms.eval_jaxpr(before, [*traced.consts, *traced.refs])
    used = {a for e in found.rest for a in ir.used_vars(e.invars)} | ir.used_vars(
        traced.jaxpr.outvars
    )
    kept = [v in used for v in binders[:num_consts]]
    consts = [*util.select_by(kept, binders[:num_consts]), *found.results]
    invars = [i, *consts, *binders[num_consts:]]
    body = Jaxpr(invars, found.rest, traced.jaxpr.outvars, traced.jaxpr.name)
    return replace(traced, jaxpr=body, consts=[*util.select_by(kept, traced.consts), *values])


def _with_promoted(traced: TracedBody, nsteps: int, tells: bool) -> TracedBody:
    """The body with its constants that are read at indices as Refs."""
    body, mask = constants.promote_constants(traced.jaxpr, len(traced.consts), len(traced.refs))
    # Which lane is whose is not for the user to say.
    told = constants.decisions(traced.jaxpr, mask) if tells and not traced.called.kind else []
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
