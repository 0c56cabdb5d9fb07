"""Partial evaluation: a loop of the known values, which counts its steps, and as many steps of the whole body.

No residual of a step is saved: the staged half is a `replay` from the initial values of the loop.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fiveloop.core import Jaxpr, arrays, errors, ir, prims, rules, transforms, util
from fiveloop.core.closed_call import call_split, closed_call_p
from fiveloop.core.dataclass import replace
from fiveloop.loops import flat
from fiveloop.loops.primitives.for_loop import stateful_body
from fiveloop.loops.primitives.replay import ReplayParams
from fiveloop.loops.primitives.slots import COUNT, contracts, taped_steps
from fiveloop.loops.primitives.while_loop import WhileParams, parts
from fiveloop.loops.record import KNOWN, LINEAR
from fiveloop.loops.replay.staged import Staged, may_save, scheduled
from fiveloop.loops.schedules.binomial import Binomial
from fiveloop.loops.while_loop.dce import while_dce
from fiveloop.loops.while_loop.handler import counting


def while_split(
    plan: transforms.SavingPlan, unknown: Sequence[bool], inst: Sequence[bool], eqn: ir.Eqn
) -> rules.EqnSplit:
    """Cut the loop in two; nothing is known if the condition is unknown, or if both halves do what must happen once."""
    verdict = plan.outside().verdict(eqn)
    if isinstance(verdict, rules.Slots):
        eqn = scheduled(eqn, verdict)
    p: WhileParams = eqn.params
    call = None if p.kept else flat.call_on_refs(eqn)
    if call is not None:
        return call_split(plan, unknown, inst, call)
    # Nothing is kept of a step, so that there is nothing to choose.
    found = _split_body(plan.plainly(), tuple(unknown), p)
    if found is None:
        return rules.EqnSplit([], [eqn], (True,) * len(eqn.outvars))
    cut, cond = found
    kept = prims.bytes_of(v.aval for v in cut.residuals)
    if not p.kept:
        eqn = flat.flat_call(eqn, kept)
        if eqn.primitive is closed_call_p:
            return call_split(plan, unknown, inst, eqn)
        p = eqn.params
    known = [not u for u in cut.unknown_in]
    carry = parts(p, known)[1]
    if any(keep and not k for keep, k in zip(p.kept, known[p.num_consts :], strict=False)):
        return rules.EqnSplit([], [eqn], (True,) * len(eqn.outvars))
    known_eqn = _known(eqn, cut.known, cond, known)
    acts = transforms.happens_once(known_eqn)
    if acts and transforms.happens_once(cut.staged):
        return rules.EqnSplit([], [eqn], (True,) * len(eqn.outvars))
    outvars = [ir.Var(v.aval) if k else v for v, k in zip(eqn.outvars, carry, strict=False)]
    whole = eqn.replace(outvars=outvars, params=replace(p, kept=()))
    again = _again(whole, known=carry) if acts else whole
    late = {*util.select_by(cut.unknown_in, eqn.invars), *eqn.outvars}
    staged = Staged(again, late)
    at_hand = {a for a, i in zip(eqn.invars, inst, strict=True) if i}
    saves = _saves(plan, eqn, cut.unknown_in)
    steps, changed = _replayed(again)
    wanted = [v in late for v in again.outvars]
    staged.make(known_eqn.outvars[0], steps, changed, at_hand, wanted, saves)
    states = [*outvars, *parts(p, eqn.invars)[2]]
    known_eqn = staged.saving(known_eqn, util.select_by(known[p.num_consts :], states))
    out_unknown = (*[not k for k in carry], *[False] * len(eqn.outvars[p.num_carry :]))
    return rules.EqnSplit([*staged.before, known_eqn], staged.eqns, out_unknown)


def _saves(plan: transforms.SavingPlan, eqn: ir.Eqn, unknown: util.Mask) -> bool:
    """Whether states are saved in the forward pass: not if the number of steps is known when the loop begins."""
    p: WhileParams = eqn.params
    if p.kept or not may_save(plan, eqn):
        return False
    if isinstance(p.slots, Binomial):
        return p.slots.sweeps
    return not p.counted and p.slots != 1 and not _is_taped(p, unknown)


def _is_taped(p: WhileParams, unknown: util.Mask) -> bool:
    """Whether steps are taped together in the backward pass: it begins anew then, from states between these."""
    changed = ir.mutated(p.body)
    consts, carry, refs = parts(p, p.body.invars)
    at_hand = (*[True] * len(consts), *[False] * len(carry), *[v not in changed for v in refs])
    late = parts(p, unknown)[1]
    plan = transforms.DEFAULT_PLAN.at_boundary(transforms.body_work(p.body))
    cut = transforms.split(p.body, unknown, at_hand, plan, ensure_out_unknown=tuple(late))
    given = util.partition(unknown, list(zip(p.body.invars, at_hand, strict=True)))[0]
    state = prims.bytes_of(v.aval for v, there in given if not there)
    kept = prims.bytes_of(v.aval for v in cut.residuals)
    return taped_steps(state, kept, p.slots, contracts(p.body)) > 1


def _known(eqn: ir.Eqn, half: Jaxpr, cond: Jaxpr, known: Sequence[bool]) -> ir.Eqn:
    """The loop of what is known, and the number of its steps.

    half : [*known consts, *known carry, *known refs] -> [*known carry, *residuals]
    """
    p: WhileParams = eqn.params
    consts, carry, _ = parts(p, known)
    body, _ = transforms.dce(half, [k < sum(carry) for k in range(len(half.outvars))])
    record = p.record.moved(KNOWN)
    kept = tuple(x for x, k in zip(p.kept, known[p.num_consts :], strict=False) if k)
    half_params = replace(p, cond=cond, body=body, num_consts=sum(consts), kept=kept, record=record)
    params = counting(half_params, COUNT.dtype)
    operands: list[ir.Atom] = util.select_by(known, eqn.invars)
    operands.insert(sum(consts), ir.Literal(arrays.as_value(np.int64(0))))
    outs = [v for v, k in zip(eqn.outvars, carry, strict=False) if k]
    outvars = [ir.Var(COUNT), *outs, *eqn.outvars[p.num_carry :]]
    return rules.new_eqn(eqn.primitive, operands, params, outvars, eqn.source)


def _replayed(eqn: ir.Eqn) -> tuple[ReplayParams, util.Mask]:
    """The steps of a `while` as those of a replay; which operands after the constants a step changes."""
    p: WhileParams = eqn.params
    refs, mutated = parts(p, eqn.invars)[2], ir.changed_refs(eqn)
    changed = tuple(r in mutated for r in refs)

    def made() -> ReplayParams:
        forward = _counted_body(p, changed)
        num_consts = p.num_consts + changed.count(False)
        record = p.record.moved(LINEAR)
        return ReplayParams(
            forward, forward, num_consts, p.slots, by_default=p.slots is None, record=record
        )

    params = p.body.remember(("replayed", p.num_consts, p.slots, changed), made)
    return params, (*[True] * p.num_carry, *changed)


def _counted_body(p: WhileParams, changed: util.Mask) -> Jaxpr:
    """The body with its carried values as states.

    p.body : [*consts, *carry, *refs]                              -> [*carry]
    made   : [k, *consts, *refs read, *carried refs, *refs written] -> []
    """
    consts, carry, refs = parts(p, stateful_body(p.body, p.num_consts).invars)
    read, written = util.partition(changed, refs)
    binders = [ir.Var(COUNT), *consts, *read, *carry, *written]
    return stateful_body(p.body, p.num_consts).replace(invars=binders)


def _again(eqn: ir.Eqn, known: Sequence[bool]) -> ir.Eqn:
    """The loop as the staged half makes it, for what is not known: without effects that must not happen twice."""
    _, smaller = while_dce([not k for k in known], eqn)
    assert smaller is not None, "unreachable: a loop with such an effect stays"
    found = transforms.replayed(smaller)
    if found is None:
        raise errors.RuleError(
            "`while` cannot run a second time for its derivative: what a call in it gives, which must be made once, "
            "would be needed again, and how many steps there are to keep it for is not known; use `for_loop`, `scan` "
            f"or `fori_loop`{errors.at_source(eqn.source)}"
        )
    return found[0]


def _split_body(
    plan: transforms.SavingPlan, unknown: util.Mask, p: WhileParams
) -> tuple[transforms.Split, Jaxpr] | None:
    """The body cut with what is unknown in some step, and the condition if it is known."""
    while True:
        consts, carry, refs = parts(p, unknown)
        nothing = (False,) * len(unknown)
        cut = transforms.split(p.body, unknown, nothing, plan, ensure_out_unknown=tuple(carry))
        test = transforms.split(p.cond, unknown, nothing, plan)
        late = [a or b for a, b in zip(cut.ref_unknown, test.ref_unknown, strict=True)]
        grown = (
            *consts,
            *cut.out_unknown,
            *[r or n for r, n in zip(refs, parts(p, late)[2], strict=True)],
        )
        if test.out_unknown[0]:
            return None
        if grown == unknown:
            # test.known : [*known ins] -> [pred, *residuals]
            only_pred = [k == 0 for k in range(len(test.known.outvars))]
            return cut, transforms.dce(test.known, only_pred)[0]
        unknown = grown
