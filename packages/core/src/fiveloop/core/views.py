"""Views: parts of a mutable value that are mutable values themselves, and cost nothing."""

from __future__ import annotations

from collections.abc import Sequence

from fiveloop.core.array import Value
from fiveloop.core.errors import at_source
from fiveloop.core.indexer import Indexer
from fiveloop.core.ir.source import user_source


class View(Value):
    """A part of `base`, a value that can change: where in it, and the operands of that index.

    What is done to a view is done to the base at an index, so that nothing is copied. Programs take the base and
    the operands; `over` makes the view again of those that they were given.
    """

    __slots__ = ("base", "indexer", "operands")

    def __init__(self, base: Value, indexer: Indexer, operands: Sequence[Value]) -> None:
        self.base = base
        self.indexer = indexer
        self.operands = tuple(operands)
        self._note = None

    def over(self, base: Value, operands: Sequence[Value]) -> View:
        """The same view of another base."""
        return type(self)(base, self.indexer, operands)

    def check_operand(self) -> None:
        """Refused: rules know whole values alone."""
        raise TypeError(
            f"a primitive was applied to a part of a Ref, of type {self.aval}; expected the whole Ref, of type "
            f"{self.base.aval}: apply it to that one and an index, or to what the part holds, `part[...]`"
            f"{at_source(user_source())}"
        )
