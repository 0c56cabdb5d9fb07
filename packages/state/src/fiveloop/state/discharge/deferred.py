"""Discharge that reads contents, and defers its writes to the caller."""

from __future__ import annotations

from fiveloop.core import Value, ad
from fiveloop.core.index import bounds as index_bounds
from fiveloop.core.ir.indexer import Indexer
from fiveloop.state.discharge import phases, table


class CannotDefer(Exception):
    """A Ref is used in a way for which its writes cannot be left waiting."""

    def __init__(self, cell: table.Cell) -> None:
        super().__init__("the writes to this Ref cannot wait")
        self.cell = cell


class DeferredWrites(phases.DischargeContext):
    """A context of discharge rules in which the writes to some Refs wait until the end, and after it.

    A read is forwarded from the writes that wait. Whatever needs all that such a Ref holds after a write, or
    replaces all of it, raises CannotDefer. Other Refs are written at once.
    """

    def __init__(self) -> None:
        super().__init__(None, lambda cell: [], lambda old, new: None)
        self._deferred: list[table.Cell] = []

    def deferred(self, contents: Value, changes: bool) -> table.Cell:
        """A Ref whose writes wait."""
        self._deferred.append(table.Cell(contents, changes))
        return self._deferred[-1]

    def _waits(self, cell: table.Cell) -> bool:
        return any(cell is c for c in self._deferred)

    def waiting(self, cell: table.Cell) -> list[table.Write]:
        """The writes to a Ref that wait, if they do."""
        return list(cell.writes) if self._waits(cell) else []

    def read(self, cell: table.Cell, indexer: Indexer, index: ad.Values) -> Value:
        """What the Ref holds at an index, waiting writes included."""
        masked = indexer.drops and index_bounds.can_be_masked(indexer)
        whole = masked or phases.is_whole(indexer, cell.contents.shape)
        if whole or not self.waiting(cell):
            return super().read(cell, indexer, index)
        found = self.forwarded(cell, self.place(cell, indexer, index))
        if found is None:
            raise CannotDefer(cell)
        return found

    def contents(self, cell: table.Cell) -> Value:
        """All that the Ref holds, if nothing waits to be written."""
        return self.peek(cell) if self._waits(cell) else super().contents(cell)

    def peek(self, cell: table.Cell) -> Value:
        """All that the Ref holds, if nothing waits to be written."""
        if self.waiting(cell):
            raise CannotDefer(cell)
        return super().peek(cell)

    def assign(self, cell: table.Cell, contents: Value) -> None:
        """Replace the contents of the Ref; refused where writes to it wait."""
        if self._waits(cell):
            raise CannotDefer(cell)
        super().assign(cell, contents)
