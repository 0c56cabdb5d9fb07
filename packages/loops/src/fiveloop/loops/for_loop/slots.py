"""Partial evaluation of a loop with a few saved states: the known loop unchanged, and a `replay` of its steps.

What a step reads of its own, and the cotangents of what it gives, stay where they are: the states that are saved are
those that a step changes and a later one reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fiveloop.core import Jaxpr, Value, arrays, ir, prims, rules, trace, transforms, util
from fiveloop.core.primitives import convert
from fiveloop.loops.primitives.for_loop import INDEX, ForParams, first_step, is_state
from fiveloop.loops.primitives.replay import ReplayParams
from fiveloop.loops.primitives.slots import COUNT
from fiveloop.loops.record import LINEAR
from fiveloop.loops.replay.staged import Staged


def split_again(
    eqn: ir.Eqn,
    p: ForParams,
    known: list[ir.Eqn],
    count: ir.Atom | None,
    unknown: Sequence[bool],
    inst: Sequence[bool],
) -> rules.EqnSplit:
    """The known loop, and its steps again for what is not known.

    `p` has the step of the loop, `count` is how many of them it takes, if that is computed, and `unknown` are the
    operands that are unknown in some step.
    """
    states = is_state(p, [a.aval for a in eqn.invars])
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
    staged.make(steps, _steps(p, changed), changed, at_hand, late)
    eqns = staged.eqns
    if any(map(transforms.happens_once, known)):
        eqns = [again for e in eqns for again in (transforms.replayed(e) or (e,))[:1]]
    return rules.EqnSplit([*staged.before, *known, *after], eqns, late)


def _steps(p: ForParams, changed: util.Mask) -> ReplayParams:
    """The steps of a loop as those of a replay."""

    def made() -> ReplayParams:
        forward = numbered_body(p, changed)
        num_consts = p.num_consts + len(changed) - sum(changed)
        record = p.record.moved(LINEAR)
        return ReplayParams(forward, forward, num_consts, p.slots, steps=p.nsteps, record=record)

    return p.body.remember(("replayed", replace(p, body=_NO_BODY), changed), made)


_NO_BODY = Jaxpr((), (), ())


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
