"""Partial evaluation: a cond of the known halves of the branches, and a cond of their staged halves.

What a branch saves goes to slots that the branches share. A residual that is an operand or a result of the
cond is not passed twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fiveloop.core import Jaxpr, Value, ir, prims, rules, trace, transforms, util
from fiveloop.core.closed_call import gives_again, kept_outs, set_apart
from fiveloop.core.dataclass import dataclass, replace
from fiveloop.loops.primitives.cond import CondParams


def cond_split(
    plan: transforms.SavingPlan, unknown: Sequence[bool], inst: Sequence[bool], eqn: ir.Eqn
) -> rules.EqnSplit:
    """Cut the branches in two under the plan; with an unknown index nothing is known."""
    if unknown[0]:
        return rules.EqnSplit([], [eqn], (True,) * len(eqn.outvars))
    plain = _halves(plan.plainly(), unknown, inst, eqn)
    chosen = _halves(plan.at_boundary(), unknown, inst, eqn)
    return (plain if ir.is_more(chosen.kept_bytes(), plain.kept_bytes()) else chosen).split()


def _halves(
    plan: transforms.SavingPlan, unknown: Sequence[bool], inst: Sequence[bool], eqn: ir.Eqn
) -> _Halves:
    p: CondParams = eqn.params
    again = gives_again(plan, eqn)
    cuts = _split_branches(plan, tuple(unknown[1:]), tuple(inst[1:]), p, len(eqn.outvars), again)
    return _Halves(eqn, p, cuts, again)


def _split_branches(
    plan: transforms.SavingPlan,
    unknown: util.Mask,
    inst: util.Mask,
    p: CondParams,
    num_outs: int,
    again: bool,
) -> list[transforms.Split]:
    """Split all branches alike: a result or a Ref that is unknown in one branch is unknown in all."""
    out_unknown: util.Mask = (False,) * num_outs
    while True:
        cuts = [transforms.split(b, unknown, inst, plan, out_unknown, again) for b in p.branches]
        outs = tuple(any(masks) for masks in zip(*[c.out_unknown for c in cuts], strict=True))
        refs = tuple(any(masks) for masks in zip(*[c.ref_unknown for c in cuts], strict=True))
        if outs == out_unknown and not any(refs):
            return cuts
        out_unknown = outs
        unknown = tuple(u or r for u, r in zip(unknown, refs, strict=True))


class _Halves:
    def __init__(
        self, eqn: ir.Eqn, p: CondParams, cuts: Sequence[transforms.Split], again: bool
    ) -> None:
        self.eqn = eqn
        self.p = p
        self.cuts = cuts
        self.kept = kept_outs(cuts) if again else None
        self.index, *self.operands = eqn.invars
        self.out_unknown = cuts[0].out_unknown
        self.known_outs, _ = util.partition(self.out_unknown, eqn.outvars)
        self.saved = [
            [
                v
                for v, source in zip(c.residuals, c.sources, strict=True)
                if not self._at_hand(source)
            ]
            for c in cuts
        ]
        self.slots = join(self.saved)

    def split(self) -> rules.EqnSplit:
        slots = [ir.Var(a) for a in self.slots.avals]
        known = [self._known_eqn(slots)]
        return set_apart(known, self._staged_eqn(slots), self.out_unknown, self.kept)

    def kept_bytes(self) -> ir.Dim:
        """The bytes of the slots, and of what is at hand outside and has to stay there."""
        outside = {s: self._at_hand(s) for c in self.cuts for s in c.sources}
        kept = [atom.aval for atom in outside.values() if atom is not None]
        return prims.bytes_of([*self.slots.avals, *kept])

    def _at_hand(self, source: tuple[str, int]) -> ir.Var | ir.Atom | None:
        """The atom outside that a residual is, if it is an operand or a known result."""
        kind, k = source
        if kind == "input":
            return self.operands[k]
        if kind == "output" and not self.out_unknown[k] and (self.kept is None or k in self.kept):
            return self.eqn.outvars[k]
        return None

    def _known_eqn(self, slots: ir.Vars) -> ir.Eqn:
        num_outs = len(self.known_outs)
        branches = []
        for k, (cut, saved) in enumerate(zip(self.cuts, self.saved, strict=True)):
            # cut.known : [*known ins] -> [*known outs, *residuals];  known : [...] -> [*known outs, *saved]
            known = cut.known.replace(outvars=[*cut.known.outvars[:num_outs], *saved])
            branches.append(fill_slots(known, num_outs, self.slots, k))
        known_ins, _ = util.partition(self.cuts[0].unknown_in, self.operands)
        params = replace(self.p, branches=tuple(branches))
        outvars = [*self.known_outs, *slots]
        return rules.new_eqn(
            self.eqn.primitive, [self.index, *known_ins], params, outvars, self.eqn.source
        )

    def _staged_eqn(self, slots: ir.Vars) -> ir.Eqn:
        taken: dict[tuple[str, int], ir.Atom] = {}
        wanted = [self._inputs(cut, taken) for cut in self.cuts]
        position = {source: k for k, source in enumerate(taken)}
        avals = [a.aval for a in taken.values()]
        branches = tuple(
            read_slots(
                cut.staged,
                self.slots,
                k,
                avals,
                [None if s is None else position[s] for s in sources],
            )
            for k, (cut, sources) in enumerate(zip(self.cuts, wanted, strict=True))
        )
        operands = [self.index, *slots, *taken.values()]
        params = replace(self.p, branches=branches)
        outvars = util.select_by(self.cuts[0].out_staged, self.eqn.outvars)
        return rules.new_eqn(self.eqn.primitive, operands, params, outvars, self.eqn.source)

    def _inputs(
        self, cut: transforms.Split, taken: dict[tuple[str, int], ir.Atom]
    ) -> list[tuple[str, int] | None]:
        """Where each input of a branch's staged half comes from; None is a slot. What is at hand is noted."""
        found: list[tuple[str, int] | None] = []
        for source in cut.sources:
            atom = self._at_hand(source)
            if atom is not None:
                taken.setdefault(source, atom)
            found.append(source if atom is not None else None)
        for k in util.select_by(cut.staged_in, range(len(self.operands))):
            taken.setdefault(("input", k), self.operands[k])
            found.append(("input", k))
        return found


@dataclass(frozen=True, slots=True)
class Slots:
    """What the branches pass on: the type of each slot, and for each branch the slots of its residuals."""

    avals: list[ir.Aval]
    places: list[list[int]]


def join(residuals: Sequence[ir.Vars]) -> Slots:
    """Slots for the residuals of all branches: of each type as many as the branch with most of it needs."""
    avals: list[ir.Aval] = []
    free: dict[ir.Aval, list[int]] = {}
    places = []
    for branch in residuals:
        seen: Counter[ir.Aval] = Counter()
        mine = []
        for v in branch:
            aval = v.aval.strong()
            slots = free.setdefault(aval, [])
            if seen[aval] == len(slots):
                slots.append(len(avals))
                avals.append(aval)
            mine.append(slots[seen[aval]])
            seen[aval] += 1
        places.append(mine)
    return Slots(avals, places)


def fill_slots(known: Jaxpr, num_outs: int, slots: Slots, branch: int) -> Jaxpr:
    """The known half of a branch, with zeros in the slots that it does not use.

    known  : [*known ins] -> [*known outs, *residuals of the branch]
    filled : [*known ins] -> [*known outs, *slots]
    """

    def run(*args: Value) -> list[Value]:
        outs = transforms.eval_jaxpr(known, args)
        mine = dict(zip(slots.places[branch], outs[num_outs:], strict=True))
        filled = [
            mine[k] if k in mine else transforms.zeros_of(a) for k, a in enumerate(slots.avals)
        ]
        return [*outs[:num_outs], *filled]

    return trace.stage_closed(run, known.in_avals, known.name)


def read_slots(
    staged: Jaxpr, slots: Slots, branch: int, at_hand: ir.Avals, ins: Sequence[int | None]
) -> Jaxpr:
    """The staged half of a branch, over the slots and everything that any branch takes besides.

    staged : [*ins of the branch]      -> [*outs]
    read   : [*slots, *at_hand]        -> [*outs]

    `ins` has a position among `at_hand` for each input of the branch, or None for the next of its residuals.
    """
    num_slots = len(slots.avals)

    def run(*args: Value) -> list[Value]:
        mine = iter(slots.places[branch])
        given = [args[next(mine)] if k is None else args[num_slots + k] for k in ins]
        return transforms.eval_jaxpr(staged, given)

    return trace.stage_closed(run, [*slots.avals, *at_hand], staged.name)
