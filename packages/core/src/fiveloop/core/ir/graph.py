"""Walks over a jaxpr: definitions and uses of variables, reachability, renaming, inlining, stepping."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar

from fiveloop.core.ir import avals
from fiveloop.core.ir import jaxpr as ir
from fiveloop.core.ir.source import Source


@ir.once_per_jaxpr
def makers(jaxpr: ir.Jaxpr) -> Mapping[ir.Var, ir.Eqn]:
    """The equation that makes each variable; inputs have none. Remembered on the jaxpr.

    >>> jaxpr = make_jaxpr(lambda x: x * 2.0 + 1.0)(1.0)
    >>> makers(jaxpr)[jaxpr.outvars[0]].primitive
    add
    """
    return {v: eqn for eqn in jaxpr.eqns for v in eqn.outvars}


def maker(
    atom: ir.Atom, made: Mapping[ir.Var, ir.Eqn], prim: ir.Primitive[Any] | None = None
) -> ir.Eqn | None:
    """The equation that makes an operand, if one does: one of a primitive, if that is given."""
    eqn = made.get(atom) if isinstance(atom, ir.Var) else None
    return eqn if eqn is None or prim is None or eqn.primitive is prim else None


def making(atoms: ir.Atoms, made: Mapping[ir.Var, ir.Eqn]) -> list[ir.Eqn]:
    """The equations that atoms are made by, the last first, all that these need included.

    >>> jaxpr = make_jaxpr(lambda x: ((x + 1.0) * 2.0, x - 3.0))(1.0)
    >>> making(jaxpr.outvars[:1], makers(jaxpr))
    [c:f32*[] = mul b 2.0*, b:f32*[] = add a 1.0*]
    """
    found: dict[ir.Eqn, None] = {}
    waiting = ir.vars_in_order(atoms)
    while waiting:
        eqn = made.get(waiting.pop())
        if eqn is not None and eqn not in found:
            found[eqn] = None
            waiting += ir.vars_in_order(eqn.invars)
    return list(found)


@ir.once_per_jaxpr
def primitives_in(jaxpr: ir.Jaxpr) -> frozenset[ir.Primitive[Any]]:
    """The primitives of a jaxpr and of those nested in it; remembered on the jaxpr.

    >>> print(*sorted(p.name for p in primitives_in(make_jaxpr(jit(lambda x: x * 2.0))(1.0))))
    closed_call mul
    """
    inner = [primitives_in(j) for eqn in jaxpr.eqns for j in ir.jaxprs_in(eqn.params)]
    return frozenset(eqn.primitive for eqn in jaxpr.eqns).union(*inner)


def holding(*prims: ir.Primitive[Any]) -> Callable[[ir.Jaxpr], bool]:
    """Whether a jaxpr has an equation of one of these primitives, at any depth; a pass `applies` so."""
    return lambda jaxpr: not primitives_in(jaxpr).isdisjoint(prims)


@ir.once_per_jaxpr
def users(jaxpr: ir.Jaxpr) -> Mapping[ir.Var, ir.Eqns]:
    """The equations that use each variable, each once, in order. Remembered on the jaxpr.

    >>> jaxpr = make_jaxpr(lambda x: x * x + 1.0)(1.0)
    >>> users(jaxpr)[jaxpr.invars[0]]
    [b:f32*[] = mul a a]
    """
    uses: dict[ir.Var, list[ir.Eqn]] = {}
    for eqn in jaxpr.eqns:
        for v in ir.vars_in_order(eqn.invars):
            uses.setdefault(v, []).append(eqn)
    return uses


def use_counts(jaxpr: ir.Jaxpr) -> Counter[ir.Var]:
    """How often equations, and the results, use each variable."""
    places = chain(jaxpr.outvars, *[eqn.invars for eqn in jaxpr.eqns])
    return Counter(a for a in places if isinstance(a, ir.Var))


def used_by(eqns: Iterable[ir.Eqn], outs: Iterable[ir.Atom] = ()) -> set[ir.Var]:
    """The variables that equations, and `outs`, use."""
    return ir.used_vars([*outs, *[a for eqn in eqns for a in eqn.invars]])


def changed_refs(eqn: ir.Eqn) -> set[ir.Var]:
    """The operands that an equation changes."""
    if not eqn.effects:
        return set()
    return ir.used_vars([eqn.invars[k] for k in ir.mutated_positions(eqn.effects)])


@ir.once_per_jaxpr
def mutated(jaxpr: ir.Jaxpr) -> frozenset[ir.Var]:
    """The Refs that some equation changes, including Refs made inside. Remembered on the jaxpr."""
    return frozenset().union(*map(changed_refs, jaxpr.eqns))


def touched_refs(eqn: ir.Eqn) -> set[ir.Var]:
    """The operands that an equation has an effect on, if only that of reading."""
    if not eqn.effects:
        return set()
    positional = [e for e in eqn.effects if isinstance(e, ir.PositionalEffect)]
    return ir.used_vars([eqn.invars[e.position] for e in positional])


def must_stay(eqn: ir.Eqn) -> bool:
    """Whether an equation does something besides computing its results."""
    return bool(eqn.effects) and any(not effect.droppable for effect in eqn.effects)


def acts(eqn: ir.Eqn) -> bool:
    """Whether an equation does something that is no change of a Ref, and that must happen."""
    return any(not e.droppable and not isinstance(e, ir.PositionalEffect) for e in eqn.effects)


Keep = Callable[[ir.Eqn, set[ir.Var]], ir.Eqn | None]


def needed(eqns: ir.Eqns, outs: Iterable[ir.Atom], keep: Keep) -> tuple[list[ir.Eqn], set[ir.Var]]:
    """The equations that `keep` leaves, asked from the last to the first, and the variables that these and `outs` use.

    `keep` is given an equation and the variables used after it, and gives what is left of the equation, if anything.
    """
    used, kept = ir.used_vars(outs), list[ir.Eqn]()
    for eqn in reversed(eqns):
        left = keep(eqn, used)
        if left is not None:
            used.update([a for a in left.invars if isinstance(a, ir.Var)])
            kept.append(left)
    return kept[::-1], used


def prune(eqns: ir.Eqns, outs: ir.Atoms) -> list[ir.Eqn]:
    """The equations that `outs` need, and those with effects that must stay; equations stay whole."""

    def keep(eqn: ir.Eqn, used: set[ir.Var]) -> ir.Eqn | None:
        return eqn if not used.isdisjoint(eqn.outvars) or must_stay(eqn) else None

    return needed(eqns, outs, keep)[0]


def invariant(eqns: Iterable[ir.Eqn], fixed: Collection[ir.Var]) -> set[ir.Var]:
    """The variables that depend on `fixed` variables alone, these included.

    >>> jaxpr = make_jaxpr(lambda x, y: (x * 2.0) * y)(1.0, 1.0)
    >>> len(invariant(jaxpr.eqns, jaxpr.invars[:1]))
    2
    """
    found = set(fixed)
    for eqn in eqns:
        if not eqn.effects and ir.used_vars(eqn.invars) <= found:
            found |= set(eqn.outvars)
    return found


def reachable(
    jaxpr: ir.Jaxpr,
    seeds: Collection[ir.Var],
    carries: Callable[[avals.Aval], bool] = lambda aval: True,
    fixed: Collection[ir.Var] = (),
    *,
    created: bool = False,
    results: Callable[[ir.Eqn, set[ir.Var]], Collection[ir.Var] | None] = lambda eqn, found: None,
) -> set[ir.Var]:
    """The variables that depend on `seeds`; a Ref does if a dependent value is written to it.

    `carries` says which types can carry the dependence on. Refs in `fixed` never come to depend by being written.
    With `created`, Refs that the jaxpr makes are seeds too: transforms prepare them for values that come later.
    `results` may say which variables an equation makes dependent, given those that are; if not, all that it changes.

    >>> jaxpr = make_jaxpr(lambda x, y: (x * 2.0, x + y))(1.0, 1.0)
    >>> [v in reachable(jaxpr, jaxpr.invars[1:]) for v in jaxpr.outvars]
    [False, True]
    """
    found, pinned = set(seeds), frozenset(fixed)
    for eqn in jaxpr.eqns if created else ():
        if eqn.primitive.creates_state:
            found |= {v for v in eqn.outvars if carries(v.aval)}
    while True:
        before = len(found)
        for eqn in jaxpr.eqns:
            dependent = results(eqn, found)
            if dependent is None:
                if found.isdisjoint(eqn.invars):
                    continue
                changed = changed_refs(eqn) - pinned if eqn.effects else ()
                dependent = [*eqn.outvars, *changed]
            for v in dependent:
                if carries(v.aval):
                    found.add(v)
        if len(found) == before or not any(eqn.effects for eqn in jaxpr.eqns):
            return found


def renamed(atom: ir.Atom, names: Mapping[ir.Var, ir.Atom]) -> ir.Atom:
    """What stands for an atom; itself if nothing does."""
    return names.get(atom, atom) if isinstance(atom, ir.Var) else atom


def rename(eqn: ir.Eqn, names: Mapping[ir.Var, ir.Atom]) -> ir.Eqn:
    """An equation with other operands in the place of those that have a name in `names`."""
    return eqn.replace(invars=tuple([renamed(a, names) for a in eqn.invars]))


def copied_eqns(eqns: Iterable[ir.Eqn], names: dict[ir.Var, ir.Atom]) -> list[ir.Eqn]:
    """Equations in the variables that `names` gives, with results of their own, which are added to `names`."""
    made: list[ir.Eqn] = []
    for eqn in eqns:
        ins = [renamed(a, names) for a in eqn.invars]
        outs = [ir.Var(v.aval) for v in eqn.outvars]
        made.append(eqn.replace(invars=ins, outvars=outs))
        names.update(zip(eqn.outvars, outs, strict=True))
    return made


def inlined(jaxpr: ir.Jaxpr, operands: ir.Atoms) -> tuple[list[ir.Eqn], list[ir.Atom]]:
    """The equations of a jaxpr on other operands, in variables of their own, and their results.

    >>> called = make_jaxpr(lambda x: x * 2.0)(1.0)
    >>> outer = make_jaxpr(lambda x: x + 1.0)(1.0)
    >>> eqns, outs = inlined(called, outer.outvars)
    >>> print(outer.replace(eqns=[*outer.eqns, *eqns], outvars=outs))
    { lambda a:f32*[] ; let
        b:f32*[] = add a 1.0*
        c:f32*[] = mul b 2.0*
      in (c,) }
    """
    names: dict[ir.Var, ir.Atom] = dict(zip(jaxpr.invars, operands, strict=True))
    eqns = copied_eqns(jaxpr.eqns, names)
    return eqns, [renamed(a, names) for a in jaxpr.outvars]


def replaced(
    jaxpr: ir.Jaxpr, change: Callable[[ir.Eqn], tuple[ir.Eqns, ir.Atoms] | None]
) -> ir.Jaxpr:
    """The jaxpr with other equations, and what they give, in the place of those that `change` has an answer for.

    >>> square = lambda eqn: inlined(make_jaxpr(lambda x: x * x)(1.0), eqn.invars[:1])
    >>> print(replaced(make_jaxpr(lambda x: (x + 1.0) - 2.0)(1.0), square))
    { lambda a:f32*[] ; let
        b:f32*[] = mul a a
        c:f32*[] = mul b b
      in (c,) }
    """
    names: dict[ir.Var, ir.Atom] = {}
    eqns: list[ir.Eqn] = []
    for eqn in jaxpr.eqns:
        here = rename(eqn, names)
        made, outs = change(here) or ([here], eqn.outvars)
        eqns += made
        names.update(zip(eqn.outvars, outs, strict=True))
    return jaxpr.replace(eqns=eqns, outvars=[renamed(a, names) for a in jaxpr.outvars])


def without_calls(jaxpr: ir.Jaxpr, is_call: Callable[[ir.Eqn], bool]) -> ir.Jaxpr:
    """The jaxpr with the equations of called jaxprs in the place of calls, and of what those call; itself if none is.

    `is_call` says which equations these are; their params have a `jaxpr`.
    """

    def called(eqn: ir.Eqn) -> tuple[list[ir.Eqn], list[ir.Atom]] | None:
        if not is_call(eqn):
            return None
        return inlined(without_calls(eqn.params.jaxpr, is_call), eqn.invars)

    return replaced(jaxpr, called) if any(map(is_call, jaxpr.eqns)) else jaxpr


V = TypeVar("V")
Step = Callable[[ir.Eqn, list[Any]], Sequence[Any]]


class Environment(dict[ir.Var, V]):
    """What stands for each variable while equations are interpreted."""

    __slots__ = ()

    def read(self, atom: ir.Atom) -> V:
        """What stands for an atom; a literal stands for its value."""
        return self[atom] if isinstance(atom, ir.Var) else atom.value  # type: ignore[return-value]  # constants are values

    def run(
        self,
        eqns: Iterable[ir.Eqn],
        step: Step,
        set_source: Callable[[Source | None], None] = lambda source: None,
    ) -> None:
        """Let `step` say what each equation gives for its operands, in order; `set_source` is told the lines."""
        read = self.read
        for eqn in eqns:
            set_source(eqn.source)
            operands = [read(a) for a in eqn.invars]
            self.update(zip(eqn.outvars, step(eqn, operands), strict=True))


class Equal:
    """The values noted so far, each of which stands for those that are computed in the same way."""

    def __init__(self) -> None:
        self._first: dict[Hashable, ir.Var] = {}
        self._same: dict[ir.Atom, ir.Var] = {}

    def known(self, atom: ir.Atom) -> Hashable:
        """An object that is the same for operands known to be equal."""
        return self._same.get(atom, atom) if isinstance(atom, ir.Var) else ir.key_of(atom)

    def note(self, eqn: ir.Eqn) -> None:
        """Note what an equation computes."""
        if len(eqn.outvars) != 1 or eqn.effects:
            return
        (out,) = eqn.outvars
        operands = [self.known(a) for a in eqn.invars]
        try:
            first = self._first.setdefault((eqn.primitive, eqn.params, *operands), out)
        except TypeError:  # params that cannot be compared
            return
        if first is not out and first.aval is out.aval:
            self._same[out] = first
