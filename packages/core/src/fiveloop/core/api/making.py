"""Functions whose results may be mutable values that they have made: what these hold leaves, and is held anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fiveloop.core.api.flatten import IS_GIVEN, IS_PART, FlatFunction
from fiveloop.core.api.mutable import holding, is_given
from fiveloop.core.array import Value
from fiveloop.core.ir.avals import Aval
from fiveloop.core.pytree import TreeDef
from fiveloop.core.rules import type_rules
from fiveloop.core.views import View


class MakingFunction(FlatFunction):
    """A user's function on leaves, which returns what the mutable values among its results hold."""

    def __init__(self, fun: Callable[..., Any], in_tree: TreeDef, user_fun: object = None) -> None:
        super().__init__(fun, in_tree, user_fun=user_fun)
        self.made: list[Aval | None] = []

    def __call__(self, *leaves: Value) -> list[Value]:
        outs = super().__call__(*leaves)
        self.made = [x.aval if x.aval.accumulates else None for x in outs]
        if not self.makes:
            return outs
        for k, x in enumerate(outs):
            if x.aval.accumulates:
                self._check(k, x, outs)
        return [_contents(x) if x.aval.accumulates else x for x in outs]

    @property
    def makes(self) -> bool:
        """Whether some result is a mutable value."""
        return any(aval is not None for aval in self.made)

    def unflatten(self, leaves: Sequence[Any]) -> Any:
        """The user's result, with new mutable values where the function gave some."""
        if self.makes:
            pairs = zip(leaves, self.made, strict=True)
            leaves = [x if aval is None else holding(x, aval) for x, aval in pairs]
        return super().unflatten(leaves)

    def _check(self, k: int, x: Value, outs: Sequence[Value]) -> None:
        if x._note is not None:
            x._note = x._note.handed_on(x)
        if isinstance(x, View):
            raise self.returned(k, x, IS_PART)
        if is_given(x):
            raise self.returned(k, x, IS_GIVEN)
        if any(x is y for y in outs[:k]):
            raise self.returned(k, x, "is returned twice; return it once")


def _contents(x: Value) -> Value:
    end = type_rules(x.aval).accumulated
    assert end is not None, "unreachable: the value can change"
    return end(x)
