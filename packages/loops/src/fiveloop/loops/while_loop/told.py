"""What is told of a `while`: the names of its operands, through its transforms. Kept only where `explain` asks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from fiveloop.core import Jaxpr, TreeDef, leaf_paths
from fiveloop.core.engine import current_source
from fiveloop.core.extend import mutated_positions
from fiveloop.loops.common import Closures
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
        self, funs: Sequence[object], tree: TreeDef, closures: Closures, body: Jaxpr
    ) -> Record:
        """The record of the loop, if it is asked for; the inputs of the body get names."""
        if not current_planning().tell:
            return EMPTY
        holding = [self.held, *funs] if self.held is not None else funs
        first, last = (closure_names(holding, xs) for xs in (closures.consts, closures.refs))
        told = Decision(STEP, "", False, f"{UNKNOWN}; {self.advice}", current_source())
        for v, name in zip(body.invars, [*first, *self.carry(tree), *last], strict=True):
            v.hint = name
        return Record(Called(self.call), tells=True, decisions=(told,))


UNKNOWN = "only `promote` is for such loops"
AS_WHILE = Written(
    "while_loop",
    lambda tree: [f"val{path}" for path in leaf_paths(tree)],
    "`scan(until=)` has one and may end early",
)


def with_operands(p: WhileParams) -> WhileParams:
    """The loop, before discharge, with what its operands are and how its steps use them."""
    if not p.record.tells or p.record.operands:
        return p
    changed = mutated_positions(p.body.effects)
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
