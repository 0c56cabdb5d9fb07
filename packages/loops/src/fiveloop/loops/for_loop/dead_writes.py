"""Writes that no step reads: where each step has its own slot of a state whose final contents nobody wants.

Going backward through a loop, the cotangent of each output slot is read and set to zero. If every access of the
state is at the counter, no later step comes back to the slot, so the zero need not be written.
"""

from __future__ import annotations

from collections.abc import Sequence

from fiveloop.core import At, Atom, Eqn, Jaxpr, Var, mutated_positions, new_eqn, used_vars
from fiveloop.state import IndexParams, addupdate_p, get_p, swap_p

_ACCESSES = {get_p: 1, swap_p: 2, addupdate_p: 2}
"""The primitives that access a Ref at an index, and where their index operands begin."""


def drop_dead_writes(body: Jaxpr, unwanted: Sequence[Var]) -> Jaxpr:
    """The body without the writes of a step to its own slot of an unwanted Ref that it does not read after."""
    counter = body.invars[0]
    own = {ref for ref in unwanted if _only_own_slots(body, ref, counter)}
    if not own:
        return body
    eqns: list[Eqn] = []
    read_later: set[Var] = set()
    for eqn in reversed(body.eqns):
        ref = eqn.invars[0] if eqn.primitive in _ACCESSES else None
        if not isinstance(ref, Var) or ref not in own:
            eqns.append(eqn)
            continue
        kept = eqn if ref in read_later or not mutated_positions(eqn.effects) else _as_read(eqn)
        if kept is not None:
            eqns.append(kept)
            read_later.add(ref)
    return body.replace(eqns=eqns[::-1])


def _as_read(eqn: Eqn) -> Eqn | None:
    """A write whose new element is dead: only the old one is read, if it is wanted."""
    if not eqn.outvars:
        return None
    ref, _, *index = eqn.invars
    return new_eqn(get_p, [ref, *index], IndexParams(eqn.params.indexer), eqn.outvars, eqn.source)


def _only_own_slots(body: Jaxpr, ref: Var, counter: Var) -> bool:
    """Whether all accesses of a Ref, on one axis at least, are at the counter itself."""
    axes: set[int] | None = None
    for eqn in body.eqns:
        if ref not in used_vars(eqn.invars):
            continue
        if eqn.primitive not in _ACCESSES or eqn.invars[0] is not ref:
            return False
        here = _axes_at(eqn, counter)
        axes = here if axes is None else axes & here
    return bool(axes) and ref not in body.outvars


def _axes_at(eqn: Eqn, counter: Var) -> set[int]:
    """The axes on which an access is at the counter."""
    indexer = eqn.params.indexer
    operands: dict[int, Atom] = dict(
        zip(indexer.dynamic_axes, eqn.invars[_ACCESSES[eqn.primitive] :], strict=True)
    )
    return {
        axis
        for axis, atom in operands.items()
        if atom is counter and isinstance(indexer.entries[axis], At) and not indexer.lead
    }
