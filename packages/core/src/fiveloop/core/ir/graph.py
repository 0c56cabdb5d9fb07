"""The graph of a jaxpr: who makes a variable, who uses it, what depends on what, and what nobody needs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from fiveloop.core.ir import avals, effects
from fiveloop.core.ir.jaxpr import Atom, Eqn, Jaxpr, Var, used_vars, vars_in_order


def makers(jaxpr: Jaxpr) -> Mapping[Var, Eqn]:
    """The equation that makes each variable; inputs have none. Remembered on the jaxpr.

    >>> jaxpr = make_jaxpr(lambda x: x * 2.0 + 1.0)(1.0)
    >>> makers(jaxpr)[jaxpr.outvars[0]].primitive
    add
    """
    return jaxpr.remember("makers", lambda: {v: eqn for eqn in jaxpr.eqns for v in eqn.outvars})


def users(jaxpr: Jaxpr) -> Mapping[Var, Sequence[Eqn]]:
    """The equations that use each variable, each once, in order. Remembered on the jaxpr.

    >>> jaxpr = make_jaxpr(lambda x: x * x + 1.0)(1.0)
    >>> users(jaxpr)[jaxpr.invars[0]]
    [b:f32*[] = mul a a]
    """

    def found() -> dict[Var, list[Eqn]]:
        uses: dict[Var, list[Eqn]] = {}
        for eqn in jaxpr.eqns:
            for v in vars_in_order(eqn.invars):
                uses.setdefault(v, []).append(eqn)
        return uses

    return jaxpr.remember("users", found)


def changed_refs(eqn: Eqn) -> set[Var]:
    """The operands that an equation changes."""
    if not eqn.effects:
        return set()
    return used_vars([eqn.invars[k] for k in effects.mutated_positions(eqn.effects)])


def mutated(jaxpr: Jaxpr) -> frozenset[Var]:
    """The Refs that some equation changes, those made inside included. Remembered on the jaxpr."""
    return jaxpr.remember("mutated", lambda: frozenset().union(*map(changed_refs, jaxpr.eqns)))


def touched_refs(eqn: Eqn) -> set[Var]:
    """The operands that an equation has an effect on, if only that of reading."""
    if not eqn.effects:
        return set()
    positional = [e for e in eqn.effects if isinstance(e, effects.PositionalEffect)]
    return used_vars([eqn.invars[e.position] for e in positional])


def must_stay(eqn: Eqn) -> bool:
    """Whether an equation does something besides computing its results."""
    return any(not effect.droppable for effect in eqn.effects)


def acts(eqn: Eqn) -> bool:
    """Whether an equation does something that is no change of a Ref, and that must happen."""
    return any(not e.droppable and not isinstance(e, effects.PositionalEffect) for e in eqn.effects)


Keep = Callable[[Eqn, set[Var]], Eqn | None]


def needed(eqns: Sequence[Eqn], outs: Iterable[Atom], keep: Keep) -> tuple[list[Eqn], set[Var]]:
    """The equations that `keep` leaves, asked from the last to the first, and the variables that these and `outs` use.

    `keep` is given an equation and the variables used after it, and gives what is left of the equation, if anything.
    """
    used, kept = used_vars(outs), list[Eqn]()
    for eqn in reversed(eqns):
        left = keep(eqn, used)
        if left is not None:
            used |= used_vars(left.invars)
            kept.append(left)
    return kept[::-1], used


def prune(eqns: Sequence[Eqn], outs: Sequence[Atom]) -> list[Eqn]:
    """The equations that `outs` need, and those with effects that must stay; equations stay whole."""

    def keep(eqn: Eqn, used: set[Var]) -> Eqn | None:
        return eqn if not used.isdisjoint(eqn.outvars) or must_stay(eqn) else None

    return needed(eqns, outs, keep)[0]


def invariant(eqns: Iterable[Eqn], fixed: Collection[Var]) -> set[Var]:
    """The variables that are the same whenever `fixed` ones are: these, and what is computed from them alone.

    >>> jaxpr = make_jaxpr(lambda x, y: (x * 2.0) * y)(1.0, 1.0)
    >>> len(invariant(jaxpr.eqns, jaxpr.invars[:1]))
    2
    """
    found = set(fixed)
    for eqn in eqns:
        if not eqn.effects and used_vars(eqn.invars) <= found:
            found |= set(eqn.outvars)
    return found


def reachable(
    jaxpr: Jaxpr,
    seeds: Collection[Var],
    carries: Callable[[avals.Aval], bool] = lambda aval: True,
    fixed: Collection[Var] = (),
    *,
    created: bool = False,
    results: Callable[[Eqn, set[Var]], Collection[Var] | None] = lambda eqn, found: None,
) -> set[Var]:
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
            if dependent is None and not found.isdisjoint(used_vars(eqn.invars)):
                dependent = [*eqn.outvars, *(changed_refs(eqn) - pinned)]
            found |= {v for v in dependent or () if carries(v.aval)}
        if len(found) == before:
            return found
