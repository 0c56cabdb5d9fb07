"""The operands of a loop, and how its steps use them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fiveloop.core import Jaxpr, ir
from fiveloop.loops.analysis.accesses import is_whole
from fiveloop.loops.primitives import for_loop, while_loop
from fiveloop.loops.record import Operand, shown_type
from fiveloop.state import AbstractRef

SAME = "value, the same in all steps"
CARRIED = "carried as a value"


def operands_of(p: for_loop.ForParams) -> tuple[Operand, ...]:
    """Each operand of a loop that has not been discharged: its name, its type and how it is used."""
    return tuple(
        Operand(name, shown_type(v.aval), _use(p, k, v))
        for k, (name, v) in enumerate(zip(p.names, p.body.invars[1:], strict=True))
    )


def _use(p: for_loop.ForParams, position: int, v: ir.Var) -> str:
    if not isinstance(v.aval, AbstractRef):
        return SAME
    return use_of_ref([(p.body, v)], position + 1 in ir.mutated_positions(p.body.effects))


def use_of_ref(where: Sequence[tuple[Jaxpr, ir.Var]], changes: bool) -> str:
    """How bodies use a Ref, each of which has it as a variable of its own."""
    kind = "Ref" if changes else "Ref that is only read"
    if not any(v in ir.users(body) for body, v in where):
        return "not used"
    whole = [is_whole for body, v in where for is_whole in _whole_uses(body, v)]
    if where[0][1].aval.shape and not any(whole):
        return f"{kind}, at indices"
    if changes and all(whole):
        return CARRIED
    return f"{kind}, whole" if all(whole) else f"{kind}, whole and at indices"


def _whole_uses(jaxpr: Jaxpr, ref: ir.Var) -> list[bool]:
    """Whether each use of a Ref takes all that it holds, or all that it holds of each lane; in nested jaxprs too."""
    found: list[bool] = []
    for eqn in ir.users(jaxpr).get(ref, ()):
        nested = ir.jaxprs_in(eqn.params)
        # What a nested jaxpr takes besides the equation's operands, or the equation besides its, comes first.
        place = eqn.invars.index(ref) - len(eqn.invars)
        for inner in nested:
            found += _whole_uses(inner, inner.invars[place])
        if not nested:
            found.append(is_whole(getattr(eqn.params, "indexer", None), ref))
    return found


def with_operands(p: while_loop.WhileParams) -> while_loop.WhileParams:
    """The loop, before discharge, with what its operands are and how its steps use them."""
    if not p.record.tells or p.record.operands:
        return p
    changed = ir.mutated_positions(p.body.effects)
    operands: list[Operand] = []
    for k, (name, v) in enumerate(zip(p.names, p.body.invars, strict=True)):
        if k < p.num_consts:
            use = SAME
        elif k < p.first_ref:
            use = CARRIED
        else:
            use = use_of_ref([(p.body, v), (p.cond, p.cond.invars[k])], k in changed)
        operands.append(Operand(name, shown_type(v.aval.strong()), use))
    return replace(p, record=replace(p.record, operands=tuple(operands)))
