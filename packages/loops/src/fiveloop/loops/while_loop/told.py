"""What is told of a `while`: the names of its operands, through its transforms. Kept only where `explain` asks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from fiveloop.core import TreeDef, Value, leaf_paths
from fiveloop.core.engine import current_source, select_by
from fiveloop.core.extend import mutated_positions
from fiveloop.loops.planning.derived import pushed
from fiveloop.loops.planning.names import closure_names
from fiveloop.loops.planning.operands import CARRIED, SAME, use_of_ref
from fiveloop.loops.planning.options import current_planning
from fiveloop.loops.planning.record import (
    EMPTY,
    Called,
    Decision,
    Operand,
    Record,
    shown_type,
)
from fiveloop.loops.while_loop.layout import parts, with_dots
from fiveloop.loops.while_loop.primitive import WhileParams

STEP = "plan"


@dataclass(frozen=True, slots=True)
class Written:
    """How a user has written a `while`: as which loop, and the names of what it carries, and of some of what it holds.

    `advice` says what would be planned in its place.
    """

    call: str
    carry: Callable[[TreeDef], Sequence[str]]
    advice: str
    held: Callable[[], object] | None = None

    def record(
        self, funs: Sequence[object], tree: TreeDef, consts: Sequence[Value], refs: Sequence[Value]
    ) -> Record:
        """The record of the loop, if it is asked for; `consts` and `refs` are what its functions close over."""
        if not current_planning().tell:
            return EMPTY
        holding = [self.held, *funs] if self.held is not None else funs
        first, last = closure_names(holding, consts), closure_names(holding, refs)
        told = Decision(STEP, "", False, f"{UNKNOWN}; {self.advice}", current_source())
        names = (*first, *self.carry(tree), *last)
        return Record(Called(self.call), names=names, decisions=(told,))


UNKNOWN = "only `promote` needs no number of steps"
AS_WHILE = Written(
    "while_loop",
    lambda tree: [f"val{path}" for path in leaf_paths(tree)],
    "`scan(until=)` has one and may end early",
)


def of_jvp(p: WhileParams, nonzero: tuple[Sequence[bool], ...]) -> Record:
    """The record of a loop over values and tangents."""
    names = _names(p)
    if not names:
        return p.record
    given = parts(p, names)
    dots = [
        [f"tangent of {name}" for name in select_by(mask, part)]
        for mask, part in zip(nonzero, given, strict=True)
    ]
    return p.record.moved(pushed(p.record.role), with_dots(p, names, (dots[0], dots[1], dots[2])))


def of_half(p: WhileParams, role: str, taken: Sequence[bool]) -> Record:
    """The record of a half of a derivative, which takes some of the operands."""
    names = _names(p)
    return p.record.moved(role, select_by(taken, names)) if names else p.record


def _names(p: WhileParams) -> tuple[str, ...]:
    """The names of the operands; none if they are not known."""
    return p.record.names if len(p.record.names) == len(p.body.invars) else ()


def with_operands(p: WhileParams) -> WhileParams:
    """The loop, before discharge, with what its operands are and how its steps use them."""
    if not p.record.names or p.record.operands:
        return p
    names = p.record.names_of(len(p.body.invars))
    changed = mutated_positions(p.body.effects)
    operands: list[Operand] = []
    for k, (name, v) in enumerate(zip(names, p.body.invars, strict=True)):
        if k < p.num_consts:
            use = SAME
        elif k < p.first_ref:
            use = CARRIED
        else:
            use = use_of_ref([(p.body, v), (p.cond, p.cond.invars[k])], k in changed)
        operands.append(Operand(name, shown_type(v.aval.strong()), use))
    return replace(p, record=replace(p.record, operands=tuple(operands)))
