"""Which loops need no order: those whose every write uses, of all that changes, its own Ref alone.

A read that goes into the write of another Ref may be moved past the write of its own, and then XLA copies. Where no
read does, each Ref is updated by a computation of its own, and nothing can be moved between them: so it is with a loop
and its tangents.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fiveloop.core import ir
from fiveloop.state.discharge.table import Cell


class Apart:
    """Whether each Ref has been written to with nothing but its own elements, and what does not change."""

    def __init__(self) -> None:
        self.holds = True
        self._sources: dict[ir.Var, frozenset[int]] = {}

    def note(self, eqn: ir.Eqn, inputs: Iterable[ir.Var], operands: Sequence[Any]) -> None:
        """Take note of what an equation reads and writes."""
        sources = frozenset[int]().union(*(self._sources.get(v, ()) for v in inputs))
        cells = [x for x in operands if isinstance(x, Cell)]
        if ir.mutated_positions(eqn.effects):
            self.holds &= len(cells) == 1 and sources <= {id(cells[0])}
        # To copy a Ref of a single element costs nothing.
        sources |= {id(cell) for cell in cells if cell.changes and cell.contents.shape}
        if sources:
            self._sources.update((v, sources) for v in eqn.outvars)
