"""Partial evaluation of a loop with a few saved states: the known loop unchanged, and a `replay` of its steps.

Elements that a step alone reads, and cotangents of its outputs, stay where they are: the saved states are values
that a step changes and a later step reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from fiveloop.core import Jaxpr, Value, arrays, ir, prims, rules, trace, transforms, util
from fiveloop.core.primitives import convert
from fiveloop.loops.primitives.for_loop import INDEX, ForParams, first_step, is_state, without_end
from fiveloop.loops.primitives.replay import ReplayParams
from fiveloop.loops.primitives.slots import COUNT
from fiveloop.loops.primitives.while_loop import WhileParams, while_p
from fiveloop.loops.record import LINEAR
from fiveloop.loops.replay.staged import Staged, acts, may_save
from fiveloop.loops.schedules.binomial import Binomial
from fiveloop.state import api


def split_again(
    eqn: ir.Eqn,
    p: ForParams,
    known: list[ir.Eqn],
    count: ir.Atom | None,
    unknown: Sequence[bool],
    inst: Sequence[bool],
    saves: bool,
) -> rules.EqnSplit:
    """The known loop, and its steps again for what is not known.

    `p` has the step of the loop, `count` is how many of them it takes, if that is computed, and `unknown` are the
    operands that are unknown in some step. If it `saves`, the known loop saves the states that its schedule says.
    """
    states = is_state(p, eqn.invars)
    late = tuple(util.select_by(states, unknown))
    loop = eqn.replace(
        outvars=[v if u else ir.Var(v.aval) for v, u in zip(eqn.outvars, late, strict=True)]
    )
    after: list[ir.Eqn] = []
    if count is None:
        steps: ir.Atom = ir.Literal(arrays.as_value(np.int64(p.nsteps)))
    else:
        after = [rules.new_eqn(prims.convert_p, [count], convert.ConvertParams(COUNT.dtype))]
        steps = after[0].outvars[0]
    staged = Staged(loop, {a for a, u in zip(eqn.invars, unknown, strict=True) if u})
    changed = tuple(
        k + 1 in ir.mutated_positions(p.body.effects) for k in range(p.num_consts, len(eqn.invars))
    )
    at_hand = {a for a, given in zip(eqn.invars, inst, strict=True) if given}
    staged.make(steps, _steps(p, changed), changed, at_hand, late, saves)
    if staged.kept:
        *before, last = known
        known = [*before, _saving(last, dict(zip(eqn.outvars, loop.outvars, strict=True)), staged)]
    eqns = staged.eqns
    if any(map(transforms.happens_once, known)):
        eqns = [again for e in eqns for again in (transforms.replayed(e) or (e,))[:1]]
    return rules.EqnSplit([*staged.before, *known, *after], eqns, late)


def saves(plan: transforms.SavingPlan, eqn: ir.Eqn, verdict: rules.Verdict) -> bool:
    """Whether a loop saves states in the forward pass, by a schedule that the user has chosen, or a verdict says."""
    slots = eqn.params.slots
    told = isinstance(verdict, rules.Slots) and not plan.cuts
    return (
        isinstance(slots, Binomial)
        and slots.sweeps
        and (may_save(plan, eqn) or (told and not acts(eqn)))
    )


def _saving(eqn: ir.Eqn, names: Mapping[ir.Atom, ir.Var], staged: Staged) -> ir.Eqn:
    """The known loop as a `while`, which saves those of its states that the steps begin with.

    `names` has what the loop that is cut in two calls its results.
    """
    p: ForParams = eqn.params
    states = is_state(p, eqn.invars)
    consts, operands = util.split_list(eqn.invars, [p.num_consts])
    refs, values = util.partition(states[p.num_consts :], operands)
    zero = ir.Literal(arrays.as_value(np.int32(0)))
    loop = rules.new_eqn(
        while_p,
        [*consts, zero, *values, *refs],
        _as_while(p, states[p.num_consts :]),
        [ir.Var(INDEX), *eqn.outvars],
        eqn.source,
    )
    return staged.saving(loop, [*[names.get(v, v) for v in eqn.outvars], *refs])


def _as_while(p: ForParams, states: Sequence[bool]) -> WhileParams:
    """A loop with a number of steps as one with a condition; `states` says which operands after the constants are.

    cond, body : [*consts, k, *states, *Refs] -> [holds], [k, *states]
    """
    ends = without_end(p.body)
    step = p.body if ends is None else ends[0]
    numbered = numbered_body(replace(p, body=step), (True,) * len(states))
    _, *binders = p.body.invars
    consts, rest = util.split_list(binders, [p.num_consts])
    refs, values = util.partition(states, rest)
    flag = [values.index(p.body.invars[ends[1]])] if ends is not None else []

    def parts(args: Sequence[Value]) -> list[list[Value]]:
        return util.split_list(args, [len(consts), 1, len(values)])

    def holds(*args: Value) -> list[Value]:
        given, (k,), carried, _ = parts(args)
        more = k < (prims.minimum(p.nsteps, given[0]) if p.counted else p.nsteps)
        for at in flag:
            more = more & prims.bitwise_not(carried[at])
        return [more]

    def run(*args: Value) -> list[Value]:
        given, (k,), carried, refs = parts(args)
        held = [api.new_ref(x) for x in carried]
        number = prims.convert(k, COUNT.dtype)
        transforms.eval_jaxpr(numbered, [number, *given, *util.merge(states, refs, held)])
        return [k + 1, *map(api.freeze, held)]

    hints = [*[v.hint for v in consts], "steps", *[v.hint for v in (*values, *refs)]]
    held = [v.aval.inner for v in values]  # type: ignore[attr-defined]  # states are Refs to the body
    avals = [*[v.aval for v in consts], INDEX, *held, *[v.aval for v in refs]]
    cond = trace.stage_closed(holds, avals, p.body.name, hints)
    body = trace.stage_closed(run, avals, p.body.name, hints)
    record = p.record if p.counted or flag else replace(p.record, steps=p.nsteps)
    return WhileParams(cond, body, len(consts), slots=p.slots, counted=True, record=record)


NO_BODY = Jaxpr((), (), ())
"""A body for params that are looked for beside the jaxpr that they belong to."""


@ir.once_per(lambda p, changed: (p.body, replace(p, body=NO_BODY), changed))
def _steps(p: ForParams, changed: util.Mask) -> ReplayParams:
    """The steps of a loop as those of a replay."""
    forward = numbered_body(p, changed)
    num_consts = p.num_consts + len(changed) - sum(changed)
    record = p.record.moved(LINEAR)
    return ReplayParams(forward, forward, num_consts, p.slots, steps=p.nsteps, record=record)


def numbered_body(p: ForParams, changed: util.Mask) -> Jaxpr:
    """The body that is given the number of the step.

    p.body : [i, *consts, *refs]                        -> []
    made   : [k, *consts, *refs read, *refs changed]    -> []
    """
    binders = p.body.invars[1:]
    consts, refs = util.split_list(binders, [p.num_consts])
    moved = [*consts, *(v for part in util.partition(changed, refs) for v in part)]

    def run(k: Value, *args: Value) -> list[Value]:
        given = dict(zip(moved, args, strict=True))
        number = prims.convert(k, INDEX.dtype)
        first = first_step(p, given[consts[0]] if p.counted else number)
        at = first - number if p.reverse else first + number if p.starts_late else number
        transforms.eval_jaxpr(p.body, [at, *[given[v] for v in binders]])
        return []

    hints = ["", *[v.hint for v in moved]]
    return trace.stage_closed(run, [COUNT, *[v.aval for v in moved]], p.body.name, hints)
