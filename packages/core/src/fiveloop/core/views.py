"""Views: parts of a mutable value that are mutable values themselves, and cost nothing."""

from __future__ import annotations

from collections.abc import Sequence

from fiveloop.core.array import Value
from fiveloop.core.errors import at_source
from fiveloop.core.index_layout import Layout
from fiveloop.core.indexer import Indexer, whole_indexer
from fiveloop.core.ir.source import user_source


class View(Value):
    """A part of `base`, a value that can change: where in it, the operands of that index, and the layouts it is given.

    What is done to a view is done to the base at an index, so that nothing is copied. Programs take the base and
    the operands, and make the view again of those that they were given.
    """

    __slots__ = ("base", "indexer", "layouts", "operands")

    def __init__(
        self,
        base: Value,
        indexer: Indexer,
        operands: Sequence[Value],
        layouts: Sequence[Layout] = (),
    ) -> None:
        self.base = base
        self.indexer = indexer
        self.operands = tuple(operands)
        self.layouts = tuple(layouts)
        self._note = None

    def check_operand(self) -> None:
        """Refused: rules know whole values alone."""
        raise TypeError(
            f"a primitive was applied to a part of a Ref, of type {self.aval}; expected the whole Ref, of type "
            f"{self.base.aval}: apply it to that one and an index, or to what the part holds, `part[...]`"
            f"{at_source(user_source())}"
        )

    def pretty(self, names: Sequence[str]) -> str:
        """How it is made of its base, with the given names of operands."""
        is_whole = self.indexer == whole_indexer(self.base.shape)
        part = "" if is_whole else f".at[{self.indexer.pretty(names, self.base.shape)}]"
        return part + "".join(map(str, self.layouts))
