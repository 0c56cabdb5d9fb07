"""What depends on what: the variables that seeds reach, through values and through Refs."""

from __future__ import annotations

from collections.abc import Callable, Collection

from fiveloop.core.ir.avals import Aval
from fiveloop.core.ir.effects import mutated_positions
from fiveloop.core.ir.jaxpr import Eqn, Jaxpr, Var, used_vars


def taint(
    jaxpr: Jaxpr,
    seeds: Collection[Var],
    carries: Callable[[Aval], bool] = lambda aval: True,
    fixed: Collection[Var] = (),
    *,
    created: bool = False,
    results: Callable[[Eqn, set[Var]], Collection[Var] | None] = lambda eqn, found: None,
) -> set[Var]:
    """The variables that depend on `seeds`; a Ref does if a dependent value is written to it.

    `carries` says which types can carry the dependence on. Refs in `fixed` never come to depend by being written.
    With `created`, Refs that the jaxpr makes are seeds too: transforms prepare them for values that come later.
    `results` may say which variables an equation makes dependent, given those that are; if not, all that it changes.
    """
    found, pinned = set(seeds), frozenset(fixed)
    for eqn in jaxpr.eqns if created else ():
        if eqn.primitive.creates_state:
            found |= {v for v in eqn.outvars if carries(v.aval)}
    while True:
        before = len(found)
        for eqn in jaxpr.eqns:
            reached = results(eqn, found)
            if reached is None and not found.isdisjoint(used_vars(eqn.invars)):
                changed = used_vars(eqn.invars[k] for k in mutated_positions(eqn.effects)) - pinned
                reached = [*eqn.outvars, *changed]
            found |= {v for v in reached or () if carries(v.aval)}
        if len(found) == before:
            return found
