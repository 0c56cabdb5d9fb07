"""Partial evaluation: both passes over the known values, and both passes over all values for the rest.

No residual of a step is saved: the staged half takes the initial states, and recomputes the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fiveloop.core import Jaxpr, ir, rules, transforms, util
from fiveloop.loops.primitives.replay import ReplayParams
from fiveloop.loops.record import KNOWN, LINEAR
from fiveloop.loops.replay.dce import replay_dce


def replay_split(
    plan: transforms.SavingPlan, unknown: Sequence[bool], inst: Sequence[bool], eqn: ir.Eqn
) -> rules.EqnSplit:
    """Cut the loop in two; nothing is known if the number of steps is not."""
    p: ReplayParams = eqn.params
    if unknown[0]:
        return rules.EqnSplit([], [eqn], (True,) * len(eqn.outvars))
    if any(unknown[p.num_operands :]):
        p, operands = p.without_cache(eqn.invars)
        eqn = eqn.replace(invars=operands, params=p)
    late = unknown_states(p, unknown[1 : p.num_operands])[p.num_consts :]
    known = _known(eqn, (*unknown[1 : 1 + p.num_consts], *late)) if not all(late) else None
    # The states that are known are computed again on the way, under other names.
    outvars = [v if u else ir.Var(v.aval) for v, u in zip(eqn.outvars, late, strict=True)]
    staged = replay_dce(
        late, eqn.replace(outvars=outvars, params=replace(p, record=p.record.moved(LINEAR)))
    )[1]
    if known is not None and staged is not None and transforms.happens_once(known):
        (staged,) = transforms.replayed(staged) or (staged,)
    return rules.EqnSplit(
        [known] if known is not None else [], [staged] if staged is not None else [], late
    )


def _known(eqn: ir.Eqn, unknown: util.Mask) -> ir.Eqn:
    """The loop of what is known."""
    p: ReplayParams = eqn.params
    p, operands = p.without_cache(eqn.invars)
    params = replace(
        p,
        forward=known_step(p.forward, unknown[: len(p.forward.invars) - 1]),
        backward=known_step(p.backward, unknown),
        num_consts=unknown[: p.num_consts].count(False),
        lane_counts=0,
        record=p.record.moved(KNOWN),
    )
    operands = util.partition((False, *unknown), operands)[0]
    outvars = util.partition(unknown[p.num_consts :], eqn.outvars)[0]
    return rules.new_eqn(eqn.primitive, operands, params, outvars, eqn.source)


def unknown_states(p: ReplayParams, unknown: Sequence[bool]) -> util.Mask:
    """Which operands after the number of steps are unknown in some step."""
    consts, ahead, back = p.parts(unknown)
    found = _grown(p.forward, [*consts, *ahead])
    return _grown(p.backward, [*found, *back])


def _grown(body: Jaxpr, unknown: Sequence[bool]) -> util.Mask:
    """The same of the operands of one body: a state that receives an unknown value is unknown."""
    mask = tuple(unknown)
    while any(late := cut(body, mask).ref_unknown):
        mask = tuple(u or r for u, r in zip(mask, late[1:], strict=True))
    return mask


def cut(body: Jaxpr, unknown: util.Mask) -> transforms.Split:
    """A step cut in two, both halves of which are to run one after the other."""
    num = len(body.invars)
    return transforms.split(body, (False, *unknown), (True,) * num, transforms.DEFAULT_PLAN)


def known_step(body: Jaxpr, unknown: util.Mask) -> Jaxpr:
    """The known half of a step.

    body  : [k, *operands]        -> []
    known : [k, *known operands]  -> []
    """
    known = cut(body, unknown).known
    return transforms.dce(known, (False,) * len(known.outvars))[0]
