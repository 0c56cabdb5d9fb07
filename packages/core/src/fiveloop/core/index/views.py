"""Views: parts of a mutable value that are mutable values themselves, and cost nothing."""

from __future__ import annotations

from collections.abc import Sequence

from fiveloop.core import ad, errors, ir
from fiveloop.core.arrays import Value
from fiveloop.core.index import layout as index_layout
from fiveloop.core.ir.indexer import Indexer, whole_indexer


class View(Value):
    """A part of `outer`, a value that can change: where in it, the operands of that index, and the layouts it is given.

    `outer` may be a view itself; `base` is what all of them are parts of. What is done to a view is done to the base
    at an index, so that nothing is copied. Programs take the base and the operands, and make the view again.
    """

    __slots__ = ("base", "indexer", "layouts", "operands", "outer")

    def __init__(
        self,
        outer: Value,
        indexer: Indexer,
        operands: ad.Values,
        layouts: Sequence[index_layout.Layout] = (),
    ) -> None:
        self.outer = outer
        self.base = base_of(outer)
        self.indexer = indexer
        self.operands = tuple(operands)
        self.layouts = tuple(layouts)
        self._note = None

    def check_operand(self) -> None:
        """Refused: rules know whole values alone."""
        raise TypeError(
            f"a primitive was applied to a part of a Ref, of type {self.aval}; expected the whole Ref, of type "
            f"{self.base.aval}: apply it to that one and an index, or to what the part holds, `part[...]`"
            f"{errors.at_source(ir.user_source())}"
        )

    @property
    def all_operands(self) -> tuple[Value, ...]:
        """The operands of the indices of all views from the base on."""
        outer = self.outer.all_operands if isinstance(self.outer, View) else ()
        return outer + self.operands

    def pretty(self, names: Sequence[str]) -> str:
        """How it is made of its base, with the given names of all operands."""
        first = len(names) - len(self.operands)
        outer = self.outer.pretty(names[:first]) if isinstance(self.outer, View) else ""
        shape = self.outer.shape
        is_whole = self.indexer == whole_indexer(shape)
        part = "" if is_whole else f".at[{self.indexer.pretty(names[first:], shape)}]"
        return outer + part + "".join(map(str, self.layouts))


def base_of(x: Value) -> Value:
    """What a view is a part of; any other value is its own base."""
    return x.base if isinstance(x, View) else x
