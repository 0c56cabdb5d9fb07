"""What is told of a `while`: the names of its operands, through its transforms. Kept only where `explain` asks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fiveloop.core import Jaxpr, TreeDef, leaf_paths
from fiveloop.core.engine import current_source
from fiveloop.loops.common import Closures
from fiveloop.loops.names import closure_names, name_inputs
from fiveloop.loops.options import current_planning
from fiveloop.loops.record import (
    EMPTY,
    Called,
    Decision,
    Record,
)

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
        name_inputs(body.invars, [*first, *self.carry(tree), *last])
        return Record(Called(self.call), tells=True, decisions=(told,))


UNKNOWN = "only `promote` is for such loops"
AS_WHILE = Written(
    "while_loop",
    lambda tree: [f"val{path}" for path in leaf_paths(tree)],
    "`scan(until=)` has one and may end early",
)
