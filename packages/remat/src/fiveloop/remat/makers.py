"""The equation that defines a value, at any depth, and the loops and calls around it."""

from __future__ import annotations

from fiveloop.core import Jaxpr, ir, prims, rules, transforms
from fiveloop.core.dataclass import dataclass, replace


@dataclass(frozen=True, slots=True)
class Maker:
    """An equation that makes a value, the jaxpr that holds it, and the equations and bodies around, outermost first.

    In a branch it is the first that makes the value; `others` make it where other branches are taken.
    """

    eqn: ir.Eqn
    jaxpr: Jaxpr | None = None
    around: tuple[tuple[ir.Eqn, rules.Body], ...] = ()
    others: tuple[ir.Eqn, ...] = ()

    @property
    def path(self) -> tuple[str, ...]:
        """The primitives around the equation, with the number of the branch where there are several."""
        return tuple(place_of(eqn, body) for eqn, body in self.around)

    @property
    def trips(self) -> int:
        """How often the equation runs; loops of unknown length count once."""
        total = 1
        for _, body in self.around:
            total *= body.trips
        return total

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of what the equation makes."""
        labels = transforms.labels_of(self.jaxpr) if self.jaxpr else {}
        return tuple(name for v in self.eqn.outvars for name in labels.get(v, ()))

    def verdict(self, plan: transforms.SavingPlan) -> rules.Verdict:
        """The verdict of a plan for the jaxpr that holds the outermost equation around."""
        path = (*plan.path, *[eqn.primitive.name for eqn, _ in self.around])
        plan = replace(plan, path=path)
        return plan.verdict(self.eqn, dict.fromkeys(self.eqn.outvars, self.labels))

    def callers(self, place: int) -> list[Maker]:
        """The equations around, within the one at a place; each makes the value if it is a result of its body."""
        return [
            Maker(eqn, self.around[k - 1][1].jaxpr, self.around[:k])
            for k, (eqn, _) in enumerate(self.around)
            if k > place
        ]

    def inside(self, eqn: ir.Eqn, body: rules.Body) -> Maker:
        """The same maker, seen from outside of a body."""
        return replace(self, around=((eqn, body), *self.around))


def place_of(eqn: ir.Eqn, body: rules.Body) -> str:
    """A body as a place: the primitive that runs it, and which of several branches it is."""
    branches = [b.jaxpr for b in rules.bodies_of(eqn) if b.role == "branch"]
    number = f" branch {branches.index(body.jaxpr)}" if len(branches) > 1 else ""
    return f"{eqn.primitive}{number}"


def maker_of(eqn: ir.Eqn, position: int, jaxpr: Jaxpr | None = None) -> Maker:
    """What makes a result of an equation: within what that holds, if it is made there.

    Of a loop's array of all steps that is what makes the value of one step.
    """
    found: list[Maker] = []
    for body in rules.bodies_of(eqn):
        results = [*body.jaxpr.outvars]
        if len(results) < len(eqn.outvars):
            results = [*results, *states_of(eqn, body)]
        if len(results) == len(eqn.outvars):
            made = maker_in(body.jaxpr, results[position])
            if made is not None and (body.role == "branch" or not found):
                found.append(made.inside(eqn, body))
    if not found:
        return Maker(eqn, jaxpr)
    others = [other for made in found[1:] for other in (made.eqn, *made.others)]
    return replace(found[0], others=(*found[0].others, *others))


def states_of(eqn: ir.Eqn, body: rules.Body) -> list[ir.Var]:
    """The Refs of a body whose last contents are results, for they stand for values."""
    pairs = zip(reversed(body.jaxpr.invars), reversed(eqn.invars), strict=False)
    return [v for v, a in pairs if v.aval.accumulates and not a.aval.accumulates][::-1]


def maker_in(jaxpr: Jaxpr, atom: ir.Atom) -> Maker | None:
    """What makes a value, or what a Ref is given last; None if it comes from outside, or is a constant."""
    if isinstance(atom, ir.Var) and atom.aval.accumulates:
        for eqn in reversed(ir.users(jaxpr).get(atom, ())):
            if atom in [eqn.invars[k] for k in ir.mutated_positions(eqn.effects)]:
                return _given(jaxpr, eqn, atom)
    made = ir.maker(atom, ir.makers(jaxpr))
    if made is None or not ir.used_vars(made.invars):
        return None
    if made.primitive is prims.to_memory_p:
        return maker_in(jaxpr, made.invars[0])
    return maker_of(made, made.outvars.index(atom), jaxpr)


def _given(jaxpr: Jaxpr, eqn: ir.Eqn, ref: ir.Atom) -> Maker | None:
    """What makes the value that an equation gives to a Ref."""
    bodies = rules.bodies_of(eqn)
    if not bodies:
        return maker_in(jaxpr, eqn.invars[1])
    after = len(eqn.invars) - eqn.invars.index(ref)
    for body in bodies:
        found = maker_in(body.jaxpr, body.jaxpr.invars[-after])
        if found is not None:
            return found.inside(eqn, body)
    return None
