"""Functions whose results may be mutable values that they have made: what these hold leaves, and is held anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fiveloop.core.api.flatten import FlatFunction
from fiveloop.core.api.mutable import holding, is_given
from fiveloop.core.array import Value
from fiveloop.core.errors import at_source
from fiveloop.core.ir.avals import Aval
from fiveloop.core.pytree import TreeDef, leaf_paths
from fiveloop.core.rules import type_rules
from fiveloop.core.trace.tracer import current_source
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
            why = "is a part of another; return what it holds, `part[...]`, or all of the other"
        elif is_given(x):
            why = "was made outside of it, so the caller has it; leave it out, or return what it holds, `ref[...]`"
        elif any(x is y for y in outs[:k]):
            why = "is returned twice; return it once"
        else:
            return
        assert self.out_tree is not None, "unreachable: the function has run"
        path = leaf_paths(self.out_tree)[k]
        raise TypeError(
            f"the result{path} of {self._name} is a Ref of type {x.aval} that {why}{at_source(current_source())}"
        )


def _contents(x: Value) -> Value:
    end = type_rules(x.aval).accumulated
    assert end is not None, "unreachable: the value can change"
    return end(x)
