"""States of which each step has a slot of its own: every access is at the counter, so no step comes back to a slot.

Going backward through a loop, the cotangent of each output slot is read and set to zero; if nobody wants it in the
end, the zero need not be written. The cotangent of each input slot is added to zero; it may as well be written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fiveloop.core import Jaxpr
from fiveloop.core.engine import At, Span, resolve_index_p, used_vars
from fiveloop.core.extend import Atom, Eqn, Primitive, Var, mutated_positions, new_eqn
from fiveloop.state.engine import IndexParams, SwapParams, accumulate_p, addupdate_p, get_p, swap_p

_ACCESSES: dict[Primitive[Any], int] = {get_p: 1, swap_p: 2, addupdate_p: 2, accumulate_p: 2}
"""The primitives that access a Ref at an index, and where their index operands begin."""


def drop_dead_writes(body: Jaxpr, nsteps: int, unwanted: Sequence[Var]) -> Jaxpr:
    """The body without the writes of a step to its own slot of an unwanted Ref that it does not read after."""
    own = {ref for ref in unwanted if _only_own_slots(body, ref, nsteps)}
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


def sums_as_writes(body: Jaxpr, nsteps: int, zero: Sequence[Var]) -> Jaxpr:
    """The body in which a single accumulation into the step's own slot of a Ref, which starts as zero, is a write."""
    own = {
        ref
        for ref in zero
        if _accesses(body, ref) == [addupdate_p] and _only_own_slots(body, ref, nsteps)
    }
    return body.replace(
        eqns=[
            _as_write(e) if e.primitive is addupdate_p and e.invars[0] in own else e
            for e in body.eqns
        ]
    )


def _accesses(body: Jaxpr, ref: Var) -> list[Primitive[Any]]:
    return [eqn.primitive for eqn in body.eqns if ref in used_vars(eqn.invars)]


def _as_write(eqn: Eqn) -> Eqn:
    params = SwapParams(eqn.params.indexer, returns_old=False)
    return new_eqn(swap_p, eqn.invars, params, (), eqn.source)


def _as_read(eqn: Eqn) -> Eqn | None:
    """A write whose new element is dead: only the old one is read, if it is wanted."""
    if not eqn.outvars:
        return None
    ref, _, *index = eqn.invars
    return new_eqn(get_p, [ref, *index], IndexParams(eqn.params.indexer), eqn.outvars, eqn.source)


def _only_own_slots(body: Jaxpr, ref: Var, nsteps: int) -> bool:
    """Whether all accesses of a Ref, on one axis at least, are at the counter, which never passes the axis's end."""
    counters = _counters(body)
    axes: set[int] | None = None
    for eqn in body.eqns:
        if ref not in used_vars(eqn.invars):
            continue
        if eqn.primitive not in _ACCESSES or eqn.invars[0] is not ref:
            return False
        here = {axis for axis in _axes_at(eqn, counters) if ref.aval.shape[axis] >= nsteps}
        axes = here if axes is None else axes & here
    return bool(axes) and ref not in body.outvars


def _counters(body: Jaxpr) -> set[Atom]:
    """The counter, and what it is resolved to as an index."""
    counter = body.invars[0]
    resolved = [
        e.outvars[0] for e in body.eqns if e.primitive is resolve_index_p and e.invars[0] is counter
    ]
    return {counter, *resolved}


def _axes_at(eqn: Eqn, counters: set[Atom]) -> set[int]:
    """The axes on which an access is at the counter, and one element wide."""
    indexer = eqn.params.indexer
    operands: dict[int, Atom] = dict(
        zip(indexer.dynamic_axes, eqn.invars[_ACCESSES[eqn.primitive] :], strict=True)
    )
    return {
        axis
        for axis, atom in operands.items()
        if atom in counters and not indexer.lead and _is_single(indexer.entries[axis])
    }


def _is_single(entry: object) -> bool:
    return isinstance(entry, At) or (isinstance(entry, Span) and entry.size == 1)
