"""Why products that a loop adds up are added up in it, where something reads the sum."""

from __future__ import annotations

from fiveloop.core import Jaxpr
from fiveloop.core.engine import dot_general_p, is_constant
from fiveloop.core.extend import Atom, Eqn, Source, Var, add_p, size_of
from fiveloop.loops.planning.factors import whole
from fiveloop.loops.planning.record import Decision
from fiveloop.loops.planning.sink import LEAST_SUM
from fiveloop.state import AbstractRef
from fiveloop.state.engine import addupdate_p, get_p, swap_p

STEP = "sink"
ADDED_UP = "it is added up in the loop"


def not_sunk(eqn: Eqn) -> list[Decision]:
    """For each Ref to which a step adds a product, and with which it does something else, what that is."""
    p = eqn.params
    if p.num_carry or p.nsteps < 2 or p.record.called.call == "accumulate_grads":
        return []
    names = p.names
    made = {v: e for e in p.body.eqns for v in e.outvars}
    told: list[Decision] = []
    for name, ref in zip(names[p.num_consts :], p.body.invars[1 + p.num_consts :], strict=True):
        why = _why_not(p.body, ref, made) if isinstance(ref.aval, AbstractRef) else None
        if why is not None:
            told.append(Decision(STEP, name, False, f"{ADDED_UP}: {why[0]}", why[1]))
    return told


def _why_not(body: Jaxpr, ref: Var, made: dict[Var, Eqn]) -> tuple[str, Source | None] | None:
    users = [e for e in body.eqns if ref in e.invars]
    sums = [e for e in users if e.primitive is addupdate_p and e.params == whole(ref)]
    if not _is_large(ref):
        return None
    if any(_is_product(e.invars[1], made) for e in sums):
        others = [e for e in users if e not in sums]
        return ("a step uses it for something else, too", others[0].source) if others else None
    return _carried_sum(users, made)


def _carried_sum(users: list[Eqn], made: dict[Var, Eqn]) -> tuple[str, Source | None] | None:
    """The same for a sum that is carried as a value: read, added to, and written."""
    if [e.primitive for e in users] != [get_p, swap_p]:
        return None
    new = users[1].invars[1]
    total = made.get(new) if isinstance(new, Var) else None
    if total is None or total.primitive is not add_p or users[0].outvars[0] not in total.invars:
        return None
    if not any(_is_product(a, made) for a in total.invars):
        return None
    return (
        "it is carried as a value; only what is added to a Ref, `r[...] += x`, is contracted",
        total.source,
    )


def _is_large(ref: Var) -> bool:
    size = size_of(ref.aval.shape)
    return is_constant(size) and size >= LEAST_SUM


def _is_product(x: Atom, made: dict[Var, Eqn]) -> bool:
    eqn = made.get(x) if isinstance(x, Var) else None
    return eqn is not None and eqn.primitive is dot_general_p
