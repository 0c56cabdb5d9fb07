"""Partial evaluation: a loop of what is known, which counts its steps, and as many steps of the whole for the rest.

Nothing is kept of a step: the staged half is a `replay`, which begins where the loop began.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fiveloop.core import Jaxpr, Value, arrays, errors, ir, prims, rules, trace, transforms, util
from fiveloop.core.dataclass import dataclass, field, replace
from fiveloop.core.ir import indexer
from fiveloop.loops.analysis.accesses import read_whole
from fiveloop.loops.primitives.replay import ReplayParams, replay_p
from fiveloop.loops.primitives.slots import (
    COUNT,
    cache_avals,
    contracts,
    default_slots,
    taped_steps,
)
from fiveloop.loops.primitives.while_loop import WhileParams, parts
from fiveloop.loops.record import KNOWN, LINEAR, shown_aval
from fiveloop.loops.replay.dce import replay_dce
from fiveloop.loops.while_loop.dce import while_dce
from fiveloop.loops.while_loop.handler import counting
from fiveloop.state import AbstractRef, primitives


def while_split(
    plan: transforms.SavingPlan, unknown: Sequence[bool], inst: Sequence[bool], eqn: ir.Eqn
) -> rules.EqnSplit:
    """Cut the loop in two; nothing is known if the condition is unknown, or if both halves do what must happen once."""
    verdict = plan.verdict(eqn)
    if isinstance(verdict, rules.Slots):
        eqn = eqn.replace(params=replace(eqn.params, slots=verdict.slots))
    p: WhileParams = eqn.params
    # Nothing is kept of a step, so that there is nothing to choose.
    found = _split_body(plan.plainly(), tuple(unknown), p)
    if found is None:
        return rules.EqnSplit([], [eqn], (True,) * len(eqn.outvars))
    cut, cond = found
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
    staged = _Staged(again, known_eqn.outvars[0], late)
    at_hand = {a for a, i in zip(eqn.invars, inst, strict=True) if i}
    staged.make(at_hand, saves=_may_save(plan, p) and not _is_taped(p, cut.unknown_in))
    states = [*outvars, *parts(p, eqn.invars)[2]]
    known_eqn = _saving(known_eqn, staged, util.select_by(known[p.num_consts :], states))
    out_unknown = (*[not k for k in carry], *[False] * len(eqn.outvars[p.num_carry :]))
    return rules.EqnSplit([*staged.reads, known_eqn], staged.eqns, out_unknown)


def _may_save(plan: transforms.SavingPlan, p: WhileParams) -> bool:
    """Whether states are saved on the way forward.

    They are not if the number of steps is known when the loop begins, nor in another loop, nor where a policy decides,
    nor if the loop has a bar or does something else that must happen once: it is compiled as several.
    """
    acts = transforms.happens_once(p.body) or transforms.happens_once(p.cond)
    tops = not plan.cuts and transforms.may_weigh(plan.policy)
    return tops and not (p.kept or acts or p.counted) and p.slots != 1


def _is_taped(p: WhileParams, unknown: util.Mask) -> bool:
    """Whether steps are taped together on the way back: it begins anew then, from states between these."""
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


def _saving(eqn: ir.Eqn, staged: _Staged, states: Sequence[ir.Atom]) -> ir.Eqn:
    """The loop of what is known, which saves those of its states that the staged half begins with."""
    kept = tuple(x in staged.kept for x in states)
    if not any(kept):
        return eqn
    params = replace(eqn.params, kept=(False, *kept), slots=staged.slots)
    cache = [*staged.stored, *[staged.kept[x] for x in states if x in staged.kept]]
    return rules.new_eqn(eqn.primitive, eqn.invars, params, [*eqn.outvars, *cache], eqn.source)


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


@dataclass(slots=True)
class _Staged:
    """The steps again, for what is not known: `reads` come before the loop, `eqns` are the staged half.

    The Refs that the loop works on are states of the replay: read before it, and those of the `late` ones that it
    changes written after it. `kept` are the slots of the known states that the replay takes, by result or Ref, and
    `stored` says what is in them.
    """

    loop: ir.Eqn
    count: ir.Var
    late: set[ir.Atom]
    reads: list[ir.Eqn] = field(default_factory=list)
    eqns: list[ir.Eqn] = field(default_factory=list)
    kept: dict[ir.Atom, ir.Var] = field(default_factory=dict)
    stored: list[ir.Var] = field(default_factory=list)
    slots: int | None = None

    def make(self, at_hand: set[ir.Atom], saves: bool) -> None:
        """Write the equations down."""
        p: WhileParams = self.loop.params
        consts, carry, refs = parts(p, self.loop.invars)
        changed = ir.changed_refs(self.loop)
        held = {ref: self._contents(ref, at_hand - changed) for ref in refs}
        read, written = [r for r in refs if r not in changed], [r for r in refs if r in changed]
        operands = [
            self.count,
            *consts,
            *[held[r] for r in read],
            *carry,
            *[held[r] for r in written],
        ]
        outs = [*self.loop.outvars, *[ir.Var(held[r].aval) for r in written]]
        params = _replayed(p, tuple(r in changed for r in refs))
        states = [*self.loop.outvars, *written]
        late = [x in self.late for x in states]
        if saves and not all(late):
            params, cache = self._cached(
                params, [None if u else x for x, u in zip(states, late, strict=True)]
            )
            operands += cache
        whole = rules.new_eqn(replay_p, operands, params, outs, self.loop.source)
        smaller = replay_dce(late, whole)[1]
        if smaller is None:
            self.kept = {}
            return
        self.kept = {x: v for x, v in self.kept.items() if v in smaller.invars}
        self.eqns.append(smaller)
        final = zip(written, outs[len(carry) :], strict=True)
        self.eqns += [_written(r, x, self.loop.source) for r, x in final if r in self.late]

    def _cached(
        self, params: ReplayParams, states: Sequence[ir.Atom | None]
    ) -> tuple[ReplayParams, list[ir.Var]]:
        """The steps from states that are saved on the way forward, and the cache; None is in the place of late ones."""
        avals = [shown_aval(x.aval) for x in states if x is not None]
        self.slots = default_slots(avals) if params.slots is None else params.slots
        cache = [ir.Var(a) for a in cache_avals(avals, self.slots)]
        self.stored, slots = cache[:2], cache[2:]
        self.kept = dict(zip([x for x in states if x is not None], slots, strict=True))
        cached = tuple(x is not None for x in states)
        return replace(params, slots=self.slots, cached=cached), cache

    def _contents(self, ref: ir.Atom, at_hand: set[ir.Atom]) -> ir.Var:
        """What a Ref holds before the loop; if it is known and not at hand later, it is kept."""
        read = read_whole(ref, source=self.loop.source)
        later = ref in self.late or ref in at_hand
        (self.eqns if later else self.reads).append(read)
        return read.outvars[0]


def _written(ref: ir.Atom, x: ir.Var, source: ir.Source | None) -> ir.Eqn:
    """An equation that replaces all that a Ref holds."""
    whole = primitives.SwapParams(indexer.whole_indexer(ref.aval.shape), returns_old=False)
    return rules.new_eqn(primitives.swap_p, [ref, x], whole, source=source)


def _replayed(p: WhileParams, changed: util.Mask) -> ReplayParams:
    """The steps of a `while` as those of a replay."""

    def made() -> ReplayParams:
        forward = _counted_body(p, changed)
        backward = Jaxpr(forward.invars, (), (), p.body.name)
        num_consts = p.num_consts + len(changed) - sum(changed)
        record = p.record.moved(LINEAR)
        return ReplayParams(
            forward, backward, num_consts, p.slots, by_default=p.slots is None, record=record
        )

    return p.body.remember(("replayed", p.num_consts, p.slots, changed), made)


def _counted_body(p: WhileParams, changed: util.Mask) -> Jaxpr:
    """The body with its carried values as states.

    p.body : [*consts, *carry, *refs]                              -> [*carry]
    made   : [k, *consts, *refs read, *carried refs, *refs written] -> []
    """
    consts, carry, refs = parts(p, p.body.invars)
    read, written = util.partition(changed, refs)
    binders = [*consts, *read, *carry, *written]

    def run(k: Value, *args: Value) -> list[Value]:
        given = dict(zip(binders, args, strict=True))
        states = [given[v] for v in carry]
        values = {v: ref[...] for v, ref in zip(carry, states, strict=True)}
        outs = transforms.eval_jaxpr(p.body, [values.get(v, given[v]) for v in p.body.invars])
        for ref, out in zip(states, outs, strict=True):
            ref[...] = out
        return []

    avals = [AbstractRef(v.aval) if v in carry else v.aval for v in binders]
    return trace.stage_closed(run, [COUNT, *avals], p.body.name, ["", *[v.hint for v in binders]])


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
