"""Partial evaluation of a jaxpr under a saving plan: a known half, a staged half, residuals between them.

First every equation is classified: known, staged, or cut in two by its own split rule. Then a walk backward
from the results of the staged half finds the values that it needs: a known value that the plan saves becomes a
residual; any other is computed again from available values. A broadcast is computed again rather than saved.

A Ref that receives an unknown value is unknown from its creation on. A known Ref that is made here and read
again in the staged half is replayed there, with all its writes. A Ref from outside is read again only if nothing
writes it; otherwise the values read from it are saved.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Literal as OneOf

from fiveloop.core import ir, prims, rules, trace, util
from fiveloop.core.dataclass import dataclass, field, replace
from fiveloop.core.transforms import eval, policies
from fiveloop.core.transforms.residuals import Known, akin, body_work, kernels_of, minimum_cut

Source = tuple[OneOf["input", "output", "saved"], int]


@dataclass(frozen=True, slots=True)
class Split:
    """A jaxpr cut in two.

    jaxpr  : [*ins]                                -> [*outs]
    known  : [*ins where not unknown_in]           -> [*outs where not out_unknown, *residuals]
    staged : [*residuals, *ins where staged_in]    -> [*outs where out_staged]

    `ref_unknown` marks inputs that are Refs and receive unknown values although they were said to be known.
    """

    known: ir.Jaxpr
    staged: ir.Jaxpr
    unknown_in: util.Mask
    staged_in: util.Mask
    out_unknown: util.Mask
    out_staged: util.Mask
    residuals: tuple[ir.Var, ...]
    sources: tuple[Source, ...]
    ref_unknown: util.Mask


def split(
    jaxpr: ir.Jaxpr,
    unknown_in: Sequence[bool],
    inst_in: Sequence[bool],
    plan: policies.SavingPlan,
    ensure_out_unknown: Sequence[bool] | bool = False,
    ensure_out_inst: Sequence[bool] | bool = False,
    fixed_in: Sequence[bool] | bool = False,
    kept_out: Sequence[bool] | bool = False,
) -> Split:
    r"""Cut a jaxpr in two under a plan; remembered on the jaxpr.

    `inst_in` says which known inputs are at hand in the staged half. `fixed_in` says which are the same every
    time the jaxpr runs, so that keeping what is made of them alone costs nothing. `kept_out` says which known
    outputs are kept in any case: as residuals they cost nothing either, if the plan lets them be saved.
    `ensure_out_unknown` and `ensure_out_inst` name outputs that the staged half gives in any case.

    >>> jaxpr = make_jaxpr(lambda x, t: (x + 1.0, (x * x) * t))(1.0, 1.0)
    >>> cut = split(jaxpr, (False, True), (False, False), DEFAULT_PLAN)
    >>> print(cut.known, cut.staged, cut.out_unknown, sep="\n")
    { lambda a:f32*[] ; let
        b:f32*[] = add a 1.0*
        c:f32*[] = mul a a
      in (b, c) }
    { lambda a:f32*[] b:f32*[] ; let
        c:f32*[] = mul a b
      in (c,) }
    (False, True)
    """
    num_outs = len(jaxpr.outvars)
    masks = (
        tuple(unknown_in),
        tuple(inst_in),
        util.full(ensure_out_unknown, num_outs),
        util.full(ensure_out_inst, num_outs),
        util.full(fixed_in, len(jaxpr.invars)),
        util.full(kept_out, num_outs),
    )
    plan = replace(plan, kept_out=()) if plan.kept_out else plan
    return jaxpr.remember(("split", *masks, plan), lambda: _Splitter(jaxpr, plan, *masks).run())


@dataclass(slots=True)
class _Step:
    """What became of one equation: what runs in the known half, what in the staged half, and may it run again.

    `whole` is the equation, if both halves have a part of it.
    """

    known: list[ir.Eqn] = field(default_factory=list)
    staged: list[ir.Eqn] = field(default_factory=list)
    again: list[ir.Eqn] = field(default_factory=list)
    whole: ir.Eqn | None = None

    @property
    def replay(self) -> list[ir.Eqn]:
        """The equations that run again for their effects on Refs."""
        return self.again or _replayed(self.known) or self.known


class _Splitter:
    def __init__(self, jaxpr: ir.Jaxpr, plan: policies.SavingPlan, *masks: util.Mask) -> None:
        """The masks are those of `split`, in its order."""
        unknown_in, inst_in, self.ensure_unknown, self.ensure_inst, fixed_in, kept_out = masks
        self.jaxpr = jaxpr
        self.unknown_in = unknown_in
        self.plan = plan
        self.inst = {v for v, i, u in zip(jaxpr.invars, inst_in, unknown_in, strict=True) if i or u}
        self.fixed_in = set(util.select_by(fixed_in, jaxpr.invars))
        self.kept_out = ir.used_vars(util.select_by(kept_out, jaxpr.outvars))
        self.kept: set[ir.Var] = set()
        self.mutated = ir.mutated(jaxpr)
        self.labels = policies.labels_of(jaxpr)
        self.lost = self._lost_refs()
        self.unknown: set[ir.Var] = set()
        self.forced: set[ir.Var] = set()
        self.at_hand: set[ir.Var] = set()
        self.steps: list[_Step] = []

    def run(self) -> Split:
        while True:
            self.unknown = set(util.select_by(self.unknown_in, self.jaxpr.invars)) | self.forced
            self.at_hand = set(self.inst)
            self.kept = set()
            self.steps = [self._classify(eqn) for eqn in self.jaxpr.eqns]
            late = self._refs_given_unknown() - self.unknown
            if not late:
                return self._assemble()
            self.forced |= late

    def _refs_given_unknown(self) -> set[ir.Var]:
        """The Refs that some staged equation with unknown operands changes, or reads although they change later."""
        inputs = set(self.jaxpr.invars)
        changing = (inputs & self.mutated) | (self.lost - inputs)
        found: set[ir.Var] = set()
        for step in self.steps:
            for eqn in step.staged:
                if not eqn.effects:
                    continue
                if not self.unknown.isdisjoint(eqn.invars):
                    found |= ir.changed_refs(eqn)
                found |= ir.touched_refs(eqn) & changing
        return found

    def _lost_refs(self) -> set[ir.Var]:
        """The Refs that the staged half cannot have as they were when the known half used them.

        Those from outside, if they change or are not at hand; those made here, if their writes cannot all be
        done again: because they touch such a Ref, or have an effect that must not happen twice.
        """
        inputs = set(self.jaxpr.invars)
        lost = {v for v in inputs if v.aval.accumulates and not self._is_the_same_later(v)}
        while True:
            before = len(lost)
            for eqn in self.jaxpr.eqns:
                if not eqn.effects:
                    continue
                if eval.replayed(eqn) is None or not lost.isdisjoint(self._refs_to_run(eqn)):
                    lost |= ir.changed_refs(eqn) - inputs
            if len(lost) == before:
                return lost

    def _refs_to_run(self, eqn: ir.Eqn) -> set[ir.Var]:
        """The Refs that must be as they were for an equation to run again, or at least be there."""
        return ir.touched_refs(eqn) | {
            v for v in ir.used_vars(eqn.invars) if v.aval.accumulates and v not in self.inst
        }

    def _uses_lost(self, eqn: ir.Eqn) -> bool:
        """Whether an equation cannot run again, because it uses Refs that are no longer as they were."""
        return bool(self.lost) and not self.lost.isdisjoint(self._refs_to_run(eqn))

    def _classify(self, eqn: ir.Eqn) -> _Step:
        unknown = [a in self.unknown for a in eqn.invars]
        rule = rules.split_rules.find(eqn.primitive)
        if not any(unknown) and self.unknown.isdisjoint(eqn.outvars):
            self._keep(eqn)
            if rule and self._calls_what_is_saved(eqn):
                return self._take(eqn, self._cut(rule, unknown, eqn))
            again = eval.replayed(eqn) or []
            return _Step(known=[eqn], again=[e for e in again if self._may_run_again(e)])
        whole = self.plan.parts and any(unknown) and _changes_unknown_alone(eqn, unknown)
        if whole or rule is None or all(unknown) or not any(unknown):
            self.unknown |= set(eqn.outvars)
            return _Step(staged=[eqn])
        cut = self._cut(rule, unknown, eqn)
        if self.plan.parts and all(cut.out_unknown) and _branches(eqn):
            self.unknown |= set(eqn.outvars)
            return _Step(staged=[eqn])
        return self._take(eqn, cut)

    def _calls_what_is_saved(self, eqn: ir.Eqn) -> bool:
        """Whether an equation makes its results once, and not they but values that it makes on the way are saved."""
        bodies = rules.bodies_rules[eqn.primitive](eqn.params)
        once = not any(b.role == "loop" for b in bodies)
        refs = any(a.aval.accumulates for a in eqn.invars)
        return once and not refs and not self._saves(eqn) and self._saves_within(eqn)

    def _saves(self, eqn: ir.Eqn) -> bool:
        return self.plan.verdict(eqn, self.labels).saves

    def _saves_within(self, eqn: ir.Eqn) -> bool:
        return self.plan.saves_within(eqn, self.labels)

    def _cut(self, rule: rules.Split, unknown: Sequence[bool], eqn: ir.Eqn) -> rules.EqnSplit:
        # What is kept of the equation in any case.
        kept = tuple(v in self.kept_out for v in eqn.outvars)
        plan = replace(self.plan.within(eqn), kept_out=kept if any(kept) else ())
        # What a rule makes comes from the line of the equation.
        with trace.keep_source() as set_source:
            set_source(eqn.source)
            return cut_once(rule, plan, tuple(unknown), self._at_hand_later(eqn), eqn)

    def _at_hand_later(self, eqn: ir.Eqn) -> util.Mask:
        """Which operands of an equation the staged half has as they are."""
        return tuple(
            [
                not isinstance(a, ir.Var) or self._is_the_same_later(a) or a in self.unknown
                for a in eqn.invars
            ]
        )

    def _keep(self, eqn: ir.Eqn) -> None:
        """Note those results of a known equation that are kept in any case."""
        if self.kept_out.isdisjoint(eqn.outvars):
            return
        kept = self.kept_out.intersection(eqn.outvars) - self.unknown
        if kept and self._saves(eqn):
            self.kept |= kept
            self.at_hand |= kept

    def _take(self, eqn: ir.Eqn, cut: rules.EqnSplit) -> _Step:
        self.unknown |= {v for v, u in zip(eqn.outvars, cut.out_unknown, strict=True) if u}
        # What a rule makes for the staged half alone (a copy of a Ref) is not there in the known half.
        self.unknown |= {v for e in cut.staged for v in e.outvars}
        self._keep(eqn)
        if cut.again is not None:
            return _Step(cut.known, cut.staged, cut.again, eqn)
        again = _replayed(cut.known) or []
        may = self._may_repeat(eqn, cut, again)
        return _Step(cut.known, cut.staged, again if may else [], eqn)

    def _may_repeat(self, eqn: ir.Eqn, cut: rules.EqnSplit, again: ir.Eqns) -> bool:
        """Whether the known half of a cut equation may run again: nothing in it is saved, nor may its results be."""
        if self._uses_lost(eqn) or any(map(ir.must_stay, again)):
            return False
        saves = _hands_over(eqn, again, cut.staged)
        return not saves and not any(map(self._saves_within, eval.replayed(eqn) or [eqn]))

    def _may_run_again(self, eqn: ir.Eqn) -> bool:
        views = rules.is_view(eqn) and ir.used_vars(eqn.invars) <= self.at_hand
        if views or self._only_reads_at_hand(eqn) or self._is_index_arithmetic(eqn):
            self.at_hand |= set(eqn.outvars)
            return True
        if eqn.primitive is prims.broadcast_in_dim_p:
            return True  # what it is given takes less room than what it gives
        return not self._uses_lost(eqn) and not self._saves_within(eqn)

    def _is_the_same_later(self, v: ir.Var) -> bool:
        """Whether the staged half has this input, and a Ref still holds what it held."""
        return v in self.inst and v not in self.mutated

    def _only_reads_at_hand(self, eqn: ir.Eqn) -> bool:
        """Whether an equation only reads Refs that are at hand in the staged half and that nothing writes."""
        if not eqn.effects or not all(isinstance(e, ir.PositionalEffect) for e in eqn.effects):
            return False
        return all(map(self._is_the_same_later, ir.touched_refs(eqn)))

    def _is_index_arithmetic(self, eqn: ir.Eqn) -> bool:
        """Whether an equation computes integers from what is at hand: cheaper to do again than to keep."""
        numbers = all(v.aval.dtype.kind in "iub" and not v.aval.shape for v in eqn.outvars)
        if not numbers or eqn.effects or ir.jaxprs_in(eqn.params):
            return False
        return ir.used_vars(eqn.invars) <= self.at_hand

    def _assemble(self) -> Split:
        jaxpr = self.jaxpr
        out_unknown = tuple(
            ensure or a in self.unknown
            for a, ensure in zip(jaxpr.outvars, self.ensure_unknown, strict=True)
        )
        out_staged = tuple(u or i for u, i in zip(out_unknown, self.ensure_inst, strict=True))
        staged_outs = util.select_by(out_staged, jaxpr.outvars)
        if self.plan.cuts and body_work(self.jaxpr):
            self._choose_again(staged_outs)
        staged_eqns, needed = self._staged_half(staged_outs)
        if self._save_in_second_run(staged_eqns):
            staged_eqns, needed = self._staged_half(staged_outs)
        at_hand = self.inst | {v for eqn in staged_eqns for v in eqn.outvars}
        # A Ref is never a residual: one from outside that is used, but not at hand, is passed in again.
        passed = {v for v in needed if v.aval.accumulates and v not in at_hand}
        residuals = [v for v in util.dedupe(needed) if v not in at_hand and v not in passed]
        residuals, moves, moves_back = self._moved(residuals)
        staged_eqns = [*moves_back, *staged_eqns]
        # known : [*known ins] -> [*known outs, *residuals]
        known_outs: list[ir.Atom] = [*_without(out_unknown, jaxpr.outvars), *residuals]
        known_eqns = [*[e for step in self.steps for e in step.known], *moves]
        known_eqns = ir.prune(known_eqns, known_outs)
        known = ir.Jaxpr(
            _without(self.unknown_in, jaxpr.invars), known_eqns, known_outs, jaxpr.name
        )
        # staged : [*residuals, *ins at hand] -> [*unknown outs]
        reachable = self.inst | passed
        used = ir.used_by(staged_eqns, staged_outs)
        staged_in = tuple(
            u or (v in reachable and v in used)
            for v, u in zip(jaxpr.invars, self.unknown_in, strict=True)
        )
        binders = [*residuals, *util.select_by(staged_in, jaxpr.invars)]
        staged = ir.Jaxpr(binders, staged_eqns, staged_outs, jaxpr.name)
        masks = self.unknown_in, staged_in, out_unknown, out_staged
        given = zip(jaxpr.invars, self.unknown_in, strict=True)
        ref_unknown = tuple(v in self.forced and not u for v, u in given)
        sources = self._sources(residuals)
        return Split(known, staged, *masks, tuple(residuals), sources, ref_unknown)

    def _moved(self, residuals: ir.Vars) -> tuple[list[ir.Var], list[ir.Eqn], list[ir.Eqn]]:
        """The residuals, with offloaded residuals in the other memory; the moves there, and the moves back."""
        wanted = set(residuals) - self.kept
        moved: dict[ir.Var, ir.Var] = {}
        there: list[ir.Eqn] = []
        back: list[ir.Eqn] = []
        for eqn in self.jaxpr.eqns:
            for v in wanted.intersection(eqn.outvars):
                verdict = self.plan.verdict(eqn, self.labels)
                if isinstance(verdict, rules.Offload):
                    moved[v] = ir.Var(v.aval)
                    there.append(_move(v, moved[v], verdict.dst, eqn.source))
                    back.append(_move(moved[v], v, verdict.src, eqn.source))
        return [moved.get(v, v) for v in residuals], there, back

    def _choose_again(self, outs: ir.Atoms) -> None:
        """Let the minimum cut say which more equations run again, where the plan leaves that to it."""
        weighed = [
            (eqn, self.plan.verdict(eqn, self.labels), bool(step.again))
            for step in self.steps
            for eqn in step.again or step.known
        ]
        if not any(isinstance(verdict, rules.Weigh) for _, verdict, _ in weighed):
            return
        eqns, needed = self._staged_half(outs)
        known_eqns = [e for step in self.steps for e in step.known]
        fixed = ir.invariant(known_eqns, self.fixed_in) if self.fixed_in else set[ir.Var]()
        at_hand = self.inst | self.kept | {v for e in eqns for v in e.outvars} | fixed
        wanted = [v for v in util.dedupe(needed) if not v.aval.accumulates]
        stay = set(ir.prune(known_eqns, [a for a in self.jaxpr.outvars if a not in self.unknown]))
        stay |= akin(known_eqns, stay)
        known = [Known(eqn, verdict, again, eqn not in stay) for eqn, verdict, again in weighed]
        work = self.plan.body_work
        work = body_work(self.jaxpr) if work is None else work
        again = minimum_cut(known, wanted, at_hand, work, kernels_of(eqns, self.unknown))
        for step in self.steps:
            if not step.staged:
                step.again = step.again or [e for e in step.known if e in again]

    def _save_in_second_run(self, staged: ir.Eqns) -> bool:
        """Let branches that run again for their results save what their backward pass uses, and not run a third time.

        True if there are any.
        """
        runs, found = set(staged), False
        for step in self.steps:
            eqn = step.whole
            if eqn is None or runs.isdisjoint(step.staged) or runs.isdisjoint(step.again):
                continue
            if not _branches(eqn) or _hands_over(eqn, step.known, step.staged):
                continue
            unknown = tuple([a in self.unknown for a in eqn.invars])
            plan = policies.DEFAULT_PLAN.within(eqn)
            cut = cut_once(
                rules.split_rules[eqn.primitive], plan, unknown, self._at_hand_later(eqn), eqn
            )
            step.again, step.staged, found = cut.known, cut.staged, True
        return found

    def _staged_half(self, outs: ir.Atoms) -> tuple[list[ir.Eqn], list[ir.Var]]:
        """The equations of the staged half, and every variable that they and the results use, in order of use."""
        replayed: set[ir.Var] = set()
        while True:
            eqns, needed = self._walk_back(outs, replayed)
            refs = {v for v in needed if v.aval.accumulates and v not in self.unknown}
            made_here = refs - set(self.jaxpr.invars)
            if made_here <= replayed:
                return eqns, needed
            replayed |= made_here

    def _walk_back(
        self, outs: ir.Atoms, replayed: set[ir.Var]
    ) -> tuple[list[ir.Eqn], list[ir.Var]]:
        need: dict[ir.Var, None] = dict.fromkeys(ir.vars_in_order(outs))
        kept: list[ir.Eqn] = []
        for step in reversed(self.steps):
            for eqn in reversed(step.staged):
                if ir.must_stay(eqn) or not need.keys().isdisjoint(eqn.outvars):
                    kept.append(eqn)
                    need.update(dict.fromkeys(ir.vars_in_order(eqn.invars)))
            for eqn in reversed(step.replay) if step.again or replayed else ():
                if self._runs_again(eqn, step, need, replayed):
                    kept.append(eqn)
                    need.update(dict.fromkeys(ir.vars_in_order(eqn.invars)))
        return kept[::-1], list(reversed(need))

    def _runs_again(
        self, eqn: ir.Eqn, step: _Step, need: dict[ir.Var, None], replayed: set[ir.Var]
    ) -> bool:
        creates = {v for v in eqn.outvars if v.aval.accumulates}
        if not replayed.isdisjoint(ir.changed_refs(eqn) | creates):
            return True
        return bool(step.again) and not need.keys().isdisjoint(
            set(eqn.outvars) - self.inst - self.kept
        )

    def _sources(self, residuals: ir.Vars) -> tuple[Source, ...]:
        known: dict[ir.Atom, Source] = {}
        for k, a in reversed([*enumerate(self.jaxpr.outvars)]):
            known[a] = "output", k
        known |= {v: ("input", k) for k, v in enumerate(self.jaxpr.invars)}
        return tuple([known.get(v, ("saved", 0)) for v in residuals])


def cut_once(
    rule: rules.Split, plan: policies.SavingPlan, unknown: util.Mask, inst: util.Mask, eqn: ir.Eqn
) -> rules.EqnSplit:
    """What a rule makes of an equation, made once for those that differ in their variables alone and hold a jaxpr."""
    inner = ir.jaxprs_in(eqn.params)
    if not inner:
        return rule(plan, unknown, inst, eqn)
    key = ("cut", plan, unknown, inst, eqn.params, eqn.source, *_operands_of(eqn))
    if not util.has_hash(key):
        return rule(plan, unknown, inst, eqn)
    like, cut = inner[0].remember(key, lambda: (eqn, rule(plan, unknown, inst, eqn)))
    return cut if like is eqn else _in_variables_of(eqn, like, cut)


def _operands_of(eqn: ir.Eqn) -> Iterator[Hashable]:
    """The types of the operands and results, which operands are one variable, and which constants others are."""
    first = {a: k for k, a in reversed([*enumerate(eqn.invars)]) if isinstance(a, ir.Var)}
    yield from (a.aval for a in (*eqn.invars, *eqn.outvars))
    for a in eqn.invars:
        yield first[a] if isinstance(a, ir.Var) else ir.key_of(a)


def _in_variables_of(eqn: ir.Eqn, like: ir.Eqn, cut: rules.EqnSplit) -> rules.EqnSplit:
    """What became of one equation as what becomes of another that differs in its variables alone."""
    operands = {v: a for v, a in zip(like.invars, eqn.invars, strict=True) if isinstance(v, ir.Var)}
    results = dict(zip(like.outvars, eqn.outvars, strict=True))
    names: dict[ir.Var, ir.Atom] = {**operands, **results}
    made: dict[ir.Eqn, ir.Eqn] = {}

    def renamed(eqns: ir.Eqns) -> list[ir.Eqn]:
        for old in eqns:
            outs = tuple([results.setdefault(v, ir.Var(v.aval)) for v in old.outvars])
            names.update(zip(old.outvars, outs, strict=True))
            made.setdefault(old, ir.rename(old, names).replace(outvars=outs))
        return [made[old] for old in eqns]

    known, staged = renamed(cut.known), renamed(cut.staged)
    again = None if cut.again is None else renamed(cut.again)
    return rules.EqnSplit(known, staged, cut.out_unknown, again)


def _move(x: ir.Var, moved: ir.Var, memory: str, source: ir.Source | None) -> ir.Eqn:
    """The equation that gives `moved`, a value in another memory."""
    return rules.new_eqn(prims.to_memory_p, [x], prims.MemoryParams(memory), [moved], source)


def _changes_unknown_alone(eqn: ir.Eqn, unknown: Sequence[bool]) -> bool:
    """Whether an equation is a loop without carried values that writes to nothing known."""
    bodies = rules.plain_bodies(eqn.primitive, eqn.params)
    if not bodies or any(b.role != "loop" or b.jaxpr.outvars for b in bodies):
        return False
    for body in [b.jaxpr for b in bodies]:
        # Does all that it writes to depend on unknown operands in some step?
        binders = util.select_by(unknown, body.invars[len(body.invars) - len(unknown) :])
        if not ir.mutated(body) <= ir.reachable(body, binders, created=True):
            return False
    return True


def _hands_over(eqn: ir.Eqn, known: ir.Eqns, staged: ir.Eqns) -> bool:
    """Whether the staged half of an equation uses what its known half makes, or that makes more than its results."""
    made = {v for e in known for v in e.outvars}
    return not made <= set(eqn.outvars) or not made.isdisjoint(ir.used_by(staged))


def _branches(eqn: ir.Eqn) -> bool:
    """Whether an equation takes one of its branches, without an effect."""
    bodies = rules.plain_bodies(eqn.primitive, eqn.params)
    return not eqn.effects and bool(bodies) and all(b.role == "branch" for b in bodies)


def _replayed(eqns: ir.Eqns) -> list[ir.Eqn] | None:
    """What runs in place of equations when they run again, or None if one of them must not."""
    found = [eval.replayed(eqn) for eqn in eqns]
    return None if None in found else [e for again in found if again for e in again]


def _without(mask: Sequence[bool], xs: Sequence[ir.Var | ir.Atom]) -> list[ir.Var]:
    return [x for m, x in zip(mask, xs, strict=True) if not m]  # type: ignore[misc]
