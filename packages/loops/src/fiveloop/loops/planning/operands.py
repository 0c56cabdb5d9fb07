"""What a loop takes, and how its steps use it."""

from __future__ import annotations

from fiveloop.core.engine import whole_indexer
from fiveloop.core.extend import Eqn, Var, mutated_positions
from fiveloop.loops.for_loop.primitive import ForParams
from fiveloop.loops.planning.record import Operand, shown_type
from fiveloop.state import AbstractRef


def operands_of(p: ForParams) -> tuple[Operand, ...]:
    """Each operand of a loop that has not been discharged: its name, its type and how it is used."""
    binders = p.body.invars[1:]
    names = p.record.names_of(len(binders))
    return tuple(
        Operand(name, shown_type(v.aval), _use(p, k, v))
        for k, (name, v) in enumerate(zip(names, binders, strict=True))
    )


def _use(p: ForParams, position: int, v: Var) -> str:
    if not isinstance(v.aval, AbstractRef):
        return "value, the same in all steps"
    changes = position + 1 in mutated_positions(p.body.effects)
    kind = "Ref" if changes else "Ref that is only read"
    uses = [e for e in p.body.eqns if v in e.invars]
    if not uses:
        return "not used"
    whole = [_is_whole(e, v) for e in uses]
    if v.aval.shape and not any(whole):
        return f"{kind}, at indices"
    if changes and all(whole):
        return "carried as a value"
    return f"{kind}, whole" if all(whole) else f"{kind}, whole and at indices"


def _is_whole(eqn: Eqn, ref: Var) -> bool:
    """Whether an equation takes all that a Ref holds; one that holds a body may do anything."""
    indexer = getattr(eqn.params, "indexer", None)
    return bool(indexer is not None and indexer == whole_indexer(ref.aval.shape))
