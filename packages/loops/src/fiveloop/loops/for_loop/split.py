"""Partial evaluation: a loop of the known values, which saves residuals in each step, and a loop of the rest.

Values that depend on constants alone are computed once, outside. A Ref that the body only reads is read again
by the staged loop. The plan says which of the other known values become residuals. A residual that a state holds when
the loop is over is read from the state; any other is written to slot `i` of a Ref of its own. The residuals are a
minimum cut unless a policy decides, and never more than all values that the staged loop uses.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from fiveloop.core import Jaxpr, Value, arrays, ir, prims, rules, trace, transforms, util
from fiveloop.core.closed_call import call_split, closed_call_p
from fiveloop.core.dataclass import dataclass, replace
from fiveloop.loops import flat
from fiveloop.loops.analysis import accesses, integers
from fiveloop.loops.analysis.slots import Carried, Found, Held, cut_from, find_held, kept_again
from fiveloop.loops.for_loop import slots
from fiveloop.loops.for_loop.residuals import Passed
from fiveloop.loops.primitives import for_loop
from fiveloop.loops.record import KNOWN, LINEAR, Record, Saved, shown_type
from fiveloop.loops.replay.staged import scheduled
from fiveloop.state import AbstractRef

TAKEN = "steps taken"


def for_split(
    plan: transforms.SavingPlan, unknown: Sequence[bool], inst: Sequence[bool], eqn: ir.Eqn
) -> rules.EqnSplit:
    """Cut the loop in two under the plan; residuals are a minimum cut, if the plan leaves the choice to a cut."""
    if eqn.params.counted and unknown[0]:
        return rules.EqnSplit([], [eqn], (True,) * len(eqn.outvars))
    verdict = plan.outside().verdict(eqn)
    if isinstance(verdict, rules.Slots):
        eqn = scheduled(eqn, verdict)
    here = _planned(plan, unknown, inst, eqn)
    if rules.holds_loop(eqn.params.body):
        flattened = flat.flat_call(eqn, here.kept_of_step(tuple(unknown)))
        if flattened.primitive is closed_call_p:
            return call_split(plan, unknown, inst, flattened)
        if flattened is not eqn:  # its record says more
            eqn = flattened
            here = _planned(plan, unknown, inst, eqn)
    if eqn.params.slots is not None:
        return here.split_again(tuple(unknown), inst, slots.saves(plan, eqn, verdict))
    snapshots = with_snapshots(eqn, unknown, inst)
    there = here if snapshots is None else _planned(plan, unknown, inst, snapshots.eqn)
    # What Refs hold as a whole is kept where that is no more than what is read of them.
    if snapshots is None or there.keeps_more(here, tuple(unknown), snapshots.bytes):
        return here.split(unknown)
    found = there.split(unknown)
    return rules.EqnSplit(
        [*snapshots.reads, *found.known],
        found.staged,
        tuple(util.select_by(snapshots.is_result, found.out_unknown)),
    )


def _planned(
    plan: transforms.SavingPlan, unknown: Sequence[bool], inst: Sequence[bool], eqn: ir.Eqn
) -> _Loop:
    """The loop under the plan; a loop that ends early by its steps alone, if the end is known."""
    p = for_loop.stateful(eqn.params)
    ends = for_loop.without_end(p.body)
    if ends is not None:
        step, flag = ends
        found = _cheapest(plan, unknown, inst, eqn, replace(p, body=step), flag)
        if found.is_known(flag, unknown):
            return found
    return _cheapest(plan, unknown, inst, eqn, p)


def _cheapest(
    plan: transforms.SavingPlan,
    unknown: Sequence[bool],
    inst: Sequence[bool],
    eqn: ir.Eqn,
    p: for_loop.ForParams,
    flag: int | None = None,
) -> _Loop:
    """The loop under the plan, or saved plainly if that keeps less."""
    plain = _Loop(eqn, p, plan.plainly(), inst, flag)
    chosen = _Loop(eqn, p, plan.at_boundary(transforms.body_work(p.body)), inst, flag)
    is_plain = chosen.plan == plain.plan or chosen.keeps_more(plain, tuple(unknown))
    return plain if is_plain else chosen


@dataclass(slots=True)
class _Residuals:
    """The residuals of a body: invariant ones, ones read from other arrays, and ones stacked over the steps."""

    invariant: list[ir.Var]
    passed: Passed
    stacked: list[ir.Var]


class _Loop:
    """A loop that is cut in two. A loop that ends early has its step as body, and the position of its `flag` there.

    The number of steps taken is then a residual: the staged loop takes as many.
    """

    def __init__(
        self,
        eqn: ir.Eqn,
        p: for_loop.ForParams,
        plan: transforms.SavingPlan,
        inst: Sequence[bool],
        flag: int | None = None,
    ) -> None:
        self.flag = flag
        self.count: ir.Atom | None = eqn.invars[0] if p.counted else None
        self.eqn = eqn
        self.p = p
        self.plan = plan
        self.outs = for_loop.by_operand(p, eqn.invars, eqn.outvars)
        self.states = [out is not None for out in self.outs]
        self.found = Found({}, {}) if "passthrough" in p.off else find_held(p)
        mutated = ir.mutated_positions(p.body.effects)
        self.inst = [
            k < p.num_consts or ((state or given) and k + 1 not in mutated)
            for k, (state, given) in enumerate(zip(self.states, inst, strict=True))
        ]

    def split(self, unknown: Sequence[bool]) -> rules.EqnSplit:
        cut = self._split_body(tuple(unknown))
        unknown_ops = cut.unknown_in[1:]
        residuals = self._sort_residuals(cut)
        hoisted, invariant = self._hoist(cut, residuals.invariant)
        known, stacks = self._known(cut, unknown_ops, residuals)
        arrays = residuals.passed.arrays(self.outs)
        staged = self._staged(cut, unknown_ops, residuals, invariant, stacks, arrays.atoms)
        out_unknown = tuple(util.select_by(self.states, unknown_ops))
        known = [*hoisted, *arrays.before, *known, *arrays.after]
        return rules.EqnSplit(known, [staged], out_unknown)

    def split_again(self, unknown: util.Mask, inst: Sequence[bool], saves: bool) -> rules.EqnSplit:
        """The loop of what is known, of which no step is kept; states of it are, if it `saves` them."""
        cut = self._split_body(unknown)
        unknown_ops = cut.unknown_in[1:]
        if all(unknown_ops[self.p.num_consts :]):
            return rules.EqnSplit([], [self.eqn], (True,) * len(self.eqn.outvars))
        nothing = self._sort_residuals(replace(cut, residuals=()))
        known, _ = self._known(cut, unknown_ops, nothing)
        return slots.split_again(self.eqn, self.p, known, self.count, unknown_ops, inst, saves)

    def is_known(self, flag: int, unknown: Sequence[bool]) -> bool:
        """Whether an input of the body is known in all steps."""
        return not self._split_body(tuple(unknown)).unknown_in[flag]

    def _split_body(self, unknown: util.Mask) -> transforms.Split:
        """Split the body; where that keeps less, with the stack of what is carried in place of two or more.

        What is cut from a carried value may be cut from that again, or what is light be computed from it again.
        """
        cut = self._split_giving(unknown, [])
        left = self._sort_residuals(cut).stacked
        carried = self._carried(cut.unknown_in[1:])
        wanted = cut_from(self.p.body, carried, left)
        shared = [v for v in carried if v in wanted] or [*carried]
        if not shared or not left:
            return cut
        pairs = [*shared, *[carried[v].after for v in shared]]
        other = self._split_giving(cut.unknown_in[1:], pairs)
        kept = prims.bytes_of(v.aval for v in left)
        less = prims.bytes_of(v.aval for v in self._sort_residuals(other).stacked)
        return other if ir.is_more(kept, less) else cut

    def _split_giving(self, unknown: util.Mask, more: ir.Vars) -> transforms.Split:
        """Split the body, `more` of whose values are kept; a state that receives unknown values is unknown."""
        changing = set[ir.Var]()
        while True:
            wanted = dict.fromkeys([*self._to_be_found(unknown), *more])
            outs = tuple(v for v in wanted if v not in changing)
            giving = partial(self.p.body.replace, outvars=outs)
            body = self.p.body.remember(("giving", *outs), giving)
            cut = transforms.split(
                body,
                (False, *unknown),
                (True, *self.inst),
                self.plan,
                fixed_in=(False, *[k < self.p.num_consts for k in range(len(self.inst))]),
                kept_out=True,
            )
            changing |= ir.used_vars(util.select_by(cut.out_unknown, body.outvars))
            if any(cut.ref_unknown):
                unknown = tuple(u or r for u, r in zip(unknown, cut.ref_unknown[1:], strict=True))
            elif not any(cut.out_unknown):
                return cut

    def _to_be_found(self, unknown: util.Mask) -> list[ir.Var]:
        """The values of the body that states hold later which are known."""
        held = self._held(unknown)
        carried = [v for v, c in self._carried(unknown).items() if c.after in held]
        return list(dict.fromkeys([*held, *carried]))

    def _carried(self, unknown: util.Mask) -> dict[ir.Var, Carried]:
        return {
            v: c
            for v, c in self.found.carried.items()
            if self.states[c.operand] and not unknown[c.operand]
        }

    def _held(self, unknown: util.Mask) -> dict[ir.Var, Held]:
        first = self.p.num_consts
        consts = {v for v, u in zip(self.p.body.invars[1:], unknown[:first], strict=False) if not u}
        return {
            v: h
            for v, h in self.found.held.items()
            if not unknown[h.operand] and h.consts <= consts
        }

    def keeps_more(self, other: _Loop, unknown: util.Mask, more: ir.Dim = 0) -> bool:
        """Whether more bytes cross from the known loop to the staged one than in another way to split it.

        A loop within may have found it cheaper to ask for its operands, which this one has to keep. `more` are kept
        besides.
        """
        stacked, once = self._kept_bytes(unknown)
        others, others_once = other._kept_bytes(unknown)
        all_others = others + others_once
        return ir.is_more(stacked, others) or ir.is_more(stacked + once + more, all_others)

    def kept_of_step(self, unknown: util.Mask) -> ir.Dim:
        """The bytes of what is kept of each step."""
        stacked = self._sort_residuals(self._split_body(unknown)).stacked
        return prims.bytes_of(v.aval for v in stacked)

    def _kept_bytes(self, unknown: util.Mask) -> tuple[ir.Dim, ir.Dim]:
        """The bytes of what is kept of each step, and of what is passed on once."""
        cut = self._split_body(unknown)
        residuals = self._sort_residuals(cut)
        consts = self.p.body.invars[1 : 1 + self.p.num_consts]
        taken = [
            v
            for v, t, u in zip(consts, cut.staged_in[1:], cut.unknown_in[1:], strict=False)
            if t and not u
        ]
        return self.p.nsteps * prims.bytes_of(v.aval for v in residuals.stacked), prims.bytes_of(
            v.aval for v in [*residuals.invariant, *taken]
        )

    def _sort_residuals(self, cut: transforms.Split) -> _Residuals:
        consts = set(self.p.body.invars[1 : 1 + self.p.num_consts])
        fixed = ir.invariant(cut.known.eqns, consts.intersection(cut.known.invars))
        unknown = cut.unknown_in[1:]
        changing = [v for v in cut.residuals if v not in fixed]
        found = Found(self._held(unknown), self._carried(unknown))
        passed = Passed(self.eqn, self.p, changing, found, cut.staged, self._is_light)
        return _Residuals([v for v in cut.residuals if v in fixed], passed, passed.left)

    def _is_light(self, eqns: ir.Eqns, kept: ir.Dim) -> bool:
        """Whether the plan would rather do equations of the body again than keep so many bytes of each step."""
        plan = self.plan
        chain = [transforms.Known(eqn, plan.verdict(eqn)) for eqn in eqns]
        return plan.cuts and transforms.is_light_chain(chain, kept, plan.body_work or 0)

    def _hoist(
        self, cut: transforms.Split, invariant: ir.Vars
    ) -> tuple[list[ir.Eqn], list[ir.Var]]:
        """Equations outside the loop that compute invariant values."""
        binders = self.p.body.invars[1 : 1 + self.p.num_consts]
        outside: dict[ir.Var, ir.Atom] = dict(zip(binders, self.eqn.invars, strict=False))
        known = ir.invariant(cut.known.eqns, outside)
        pure = [e for e in cut.known.eqns if not e.effects and known.issuperset(e.outvars)]
        eqns = ir.copied_eqns(ir.prune(pure, invariant), outside)
        return eqns, [outside[v] for v in invariant]  # type: ignore[misc]  # operands of an equation are atoms

    def _known(
        self, cut: transforms.Split, unknown: util.Mask, residuals: _Residuals
    ) -> tuple[list[ir.Eqn], list[ir.Var]]:
        """The known loop, and the stacks of residuals, one slot a step, that it fills.

        cut.known : [i, *known consts, *known refs]                     -> [*residuals]
        body      : [i, *known consts, *known refs, *stacks, *count]    -> []

        A loop that ends early counts its steps.
        """
        known, stacked = [not u for u in unknown], residuals.stacked
        num_consts = sum(known[: self.p.num_consts])
        num_ins = 1 + sum(known)
        core = cut.known.replace(outvars=list(stacked))
        core = core.replace(eqns=ir.prune(core.eqns, core.outvars))

        def run(*args: Value) -> list[Value]:
            i, refs = args[0], args[num_ins:]
            outs = transforms.eval_jaxpr(core, args[:num_ins])
            for ref, x in zip(refs[: len(stacked)], outs, strict=True):
                ref[i] = x
            for ref in refs[len(stacked) :]:
                ref[...] = ref[...] + 1
            return []

        none = [] if self.flag is None else [ir.Literal(arrays.Scalar(np.asarray(0, np.int32)))]
        stack_avals = [v.aval.strong().batched(self.p.nsteps) for v in stacked]
        new_avals = [*stack_avals, *[x.aval for x in none]]
        avals = [*core.in_avals, *map(AbstractRef, new_avals)]
        hints = [*core.hints, *["residual"] * len(stacked), *[TAKEN] * len(none)]
        body = trace.stage_closed(run, avals, self.p.body.name, hints)
        body = integers.keep_in_range(body, self.p.nsteps)
        if self.flag is not None:
            body = for_loop.until_set(body, sum([True, *known][: self.flag]))
        empties = [accesses.zeros_eqn(a) for a in stack_avals]
        operands = [
            *util.select_by(known, self.eqn.invars),
            *[e.outvars[0] for e in empties],
            *none,
        ]
        results = [ir.Var(a) for a in new_avals]
        stacks, counted = util.split_list(results, [len(stacked)])
        self.count = next(iter(counted), self.count)
        outs = util.partition(util.select_by(self.states, unknown), self.eqn.outvars)[0]
        record = self._known_record(core, residuals)
        params = replace(self.p, body=body, num_consts=num_consts, record=record)
        return [
            *empties,
            rules.new_eqn(for_loop.for_p, operands, params, [*outs, *results], self.eqn.source),
        ], stacks

    def _known_record(self, core: Jaxpr, residuals: _Residuals) -> Record:
        """The record of the known loop, with what it keeps of each step."""
        record, stacked = self.p.record, residuals.stacked
        if not record.tells:
            return record
        made = {v: eqn.source for eqn in core.eqns for v in eqn.outvars}
        saved = [
            Saved(shown_type(v.aval), self.p.nsteps * prims.bytes_of([v.aval]), True, made.get(v))
            for v in stacked
        ]
        again = [] if "passthrough" in self.p.off else kept_again(self.p, stacked)
        return record.moved(KNOWN, saved).with_decisions([*residuals.passed.told(), *again])

    def _staged(
        self,
        cut: transforms.Split,
        unknown: util.Mask,
        residuals: _Residuals,
        invariant: ir.Vars,
        stacks: ir.Vars,
        arrays: ir.Atoms,
    ) -> ir.Eqn:
        """The staged loop.

        cut.staged : [*residuals, *ins that it takes]                       -> []
        body       : [i, *count, *invariant, *consts to pass on with, *consts that it takes,
                      *stacks, *states passed on, *refs that it takes]      -> []
        """
        taken = cut.staged_in[1:]
        passed = residuals.passed
        constants = passed.constants
        first = self.p.num_consts
        num_consts = sum(taken[:first])
        count = [] if self.count is None else [self.count]
        sizes = [len(count), len(invariant), len(constants), num_consts, len(stacks), len(arrays)]

        def run(i: Value, *args: Value) -> list[Value]:
            counts, fixed, given, consts, slots, states, refs = util.split_list(args, sizes)
            start = for_loop.first_step(self.p, counts[0] if counts else i)
            kept = dict(zip(residuals.stacked, slots, strict=True))
            saved = {v: ref[i] for v, ref in kept.items()}
            saved.update(zip(residuals.invariant, fixed, strict=True))
            saved.update(passed.read(i, given, states, kept, start))
            counter = [i] if cut.staged_in[0] else []
            values = [saved[v] for v in cut.residuals]
            return transforms.eval_jaxpr(cut.staged, [*values, *counter, *consts, *refs])

        binders = [v.aval for v in util.select_by(taken, self.p.body.invars[1:])]
        hints = util.select_by(taken, self.p.body.hints[1:])
        given, held = ([self.p.body.hints[1 + k] for k in ks] for ks in passed.operands)
        names = [*[TAKEN] * len(count), *["residual of all steps"] * len(invariant)]
        names += [*given, *hints[:num_consts]]
        names += [*["residual"] * len(stacks), *held, *hints[num_consts:]]
        value_avals = [a.aval.strong() for a in [*count, *invariant, *constants]]
        refs = [AbstractRef(a.aval.strong()) for a in [*stacks, *arrays]]
        avals = [for_loop.INDEX, *value_avals, *binders[:num_consts], *refs, *binders[num_consts:]]
        body = trace.stage_closed(run, avals, self.p.body.name, ["", *names])
        atoms = util.select_by(taken, self.eqn.invars)
        before = [*count, *invariant, *constants, *atoms[:num_consts]]
        operands = [*before, *stacks, *arrays, *atoms[num_consts:]]
        outs: list[ir.Var] = [ir.Var(a.aval.strong()) for a in [*stacks, *arrays]]
        for take, unk, out in zip(taken, unknown, self.outs, strict=True):
            if take and out is not None:
                outs.append(out if unk else ir.Var(out.aval))
        once = [Saved(shown_type(v.aval), prims.bytes_of([v.aval]), False, None) for v in invariant]
        # It is planned anew.
        record = replace(self.p.record.moved(LINEAR, once), decisions=())
        which = "" if self.count is None else "highest" if self.p.reverse else "lowest"
        params = replace(
            self.p,
            body=body,
            num_consts=len(before),
            counted=self.p.counted or which,
            record=record,
        )
        return rules.new_eqn(for_loop.for_p, operands, params, outs, self.eqn.source)


@dataclass(frozen=True, slots=True)
class Snapshots:
    """A loop on the contents of some Refs: equations that read them, the loop, and which results it had before."""

    reads: list[ir.Eqn]
    eqn: ir.Eqn
    is_result: list[bool]

    @property
    def bytes(self) -> ir.Dim:
        """How much is read."""
        return prims.bytes_of(eqn.outvars[0].aval for eqn in self.reads)


def with_snapshots(eqn: ir.Eqn, unknown: Sequence[bool], inst: Sequence[bool]) -> Snapshots | None:
    """The loop on the contents of those known Refs that it only reads and that may change later; None without any."""
    p = for_loop.stateful(eqn.params)
    finals = for_loop.by_operand(p, eqn.invars, eqn.outvars)
    mutated = ir.mutated_positions(p.body.effects)
    reads: dict[int, ir.Eqn] = {}
    for k, atom in enumerate(eqn.invars):
        is_outer = k >= p.first_ref and finals[k] is None
        if is_outer and not unknown[k] and not inst[k] and k + 1 not in mutated:
            reads[k] = accesses.read_whole(atom, source=eqn.source)
    if not reads:
        return None
    invars = [reads[k].outvars[0] if k in reads else a for k, a in enumerate(eqn.invars)]
    is_result = [k not in reads for k, v in enumerate(finals) if k in reads or v is not None]
    outs = [ir.Var(invars[k].aval) if k in reads else v for k, v in enumerate(finals)]
    outvars = [v for v in outs if v is not None]
    loop = rules.new_eqn(for_loop.for_p, invars, p, outvars, eqn.source)
    return Snapshots(list(reads.values()), loop, is_result)
