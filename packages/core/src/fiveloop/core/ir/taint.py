"""What depends on what: the variables that seeds reach, through values and through Refs."""

from __future__ import annotations

from collections.abc import Callable, Collection

from fiveloop.core.ir.avals import Aval
from fiveloop.core.ir.axes import NamedAxis, axes_of
from fiveloop.core.ir.effects import mutated_positions
from fiveloop.core.ir.jaxpr import Jaxpr, Var, used_vars


def taint(
    jaxpr: Jaxpr,
    seeds: Collection[Var],
    carries: Callable[[Aval], bool] = lambda aval: True,
    fixed: Collection[Var] = (),
    *,
    created: bool = False,
) -> set[Var]:
    """The variables that depend on `seeds`; a Ref does if a dependent value is written to it.

    `carries` says which types can carry the dependence on. Refs in `fixed` never come to depend by being written.
    With `created`, Refs that the jaxpr makes are seeds too: transforms prepare them for values that come later.
    """
    found, pinned = set(seeds), frozenset(fixed)
    for eqn in jaxpr.eqns if created else ():
        if eqn.primitive.creates_state:
            found |= {v for v in eqn.outvars if carries(v.aval)}
    while True:
        before = len(found)
        for eqn in jaxpr.eqns:
            if not found.isdisjoint(used_vars(eqn.invars)):
                changed = used_vars(eqn.invars[k] for k in mutated_positions(eqn.effects)) - pinned
                found |= {v for v in (*eqn.outvars, *changed) if carries(v.aval)}
        if len(found) == before:
            return found


def over_axis(jaxpr: Jaxpr, axis: NamedAxis) -> list[Var]:
    """The variables that may depend on the lane although nothing does that an equation uses: seeds of a batch.

    Because the equation goes over a named axis, or because it gives each lane something of its own.
    """
    found: list[Var] = []
    for eqn in jaxpr.eqns:
        if any(e.lanes_differ for e in eqn.effects):
            found += eqn.outvars
        if axis in axes_of(eqn.effects):
            found += eqn.outvars
            found += used_vars(eqn.invars[k] for k in mutated_positions(eqn.effects))
    return found
