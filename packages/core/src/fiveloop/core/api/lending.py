"""Functions that are differentiated in what Refs hold: these stand for their contents, and get the final ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fiveloop.core.api.flatten import IS_GIVEN, IS_PART, FlatFunction
from fiveloop.core.api.mutable import stand_in
from fiveloop.core.array import Value
from fiveloop.core.pytree import TreeDef, tree_flatten, tree_unflatten
from fiveloop.core.views import View, base_of


class LendingFunction(FlatFunction):
    """A user's function on leaves, some of which are the contents of mutable values that it works on.

    After its results it gives the final contents of those that it has changed, which `give_back` writes to the
    `lenders`; None stands for an argument that is an array.
    """

    def __init__(
        self,
        fun: Callable[..., Any],
        in_tree: TreeDef,
        lenders: Sequence[Value | None],
        has_aux: bool = False,
        user_fun: object = None,
    ) -> None:
        super().__init__(fun, in_tree, has_aux, user_fun)
        self.lenders = lenders
        self.changed: list[int] = []

    def __call__(self, *leaves: Value) -> list[Value]:
        standing = {
            k: stand_in(x, lender.aval)
            for k, (x, lender) in enumerate(zip(leaves, self.lenders, strict=True))
            if lender is not None
        }
        outs = super().__call__(
            *[standing[k].value if k in standing else x for k, x in enumerate(leaves)]
        )
        own = [each.value for each in standing.values()]
        for k, x in enumerate(outs):
            if any(base_of(x) is each for each in own):
                raise self.returned(k, x, IS_PART if isinstance(x, View) else IS_GIVEN)
        self.changed = [k for k, each in standing.items() if each.is_changed]
        return [*outs, *[standing[k].value[...] for k in self.changed]]

    def unflatten_aux(self, leaves: Sequence[Any]) -> Any:
        """The auxiliary result, from all that follows the results."""
        return super().unflatten_aux(leaves[: len(leaves) - len(self.changed)])

    def give_back(self, outs: Sequence[Value], to: Sequence[Value | None] | None = None) -> None:
        """Write final contents, the last of what the function gave, to the lenders, or to others."""
        finals = outs[len(outs) - len(self.changed) :]
        for k, x in zip(self.changed, finals, strict=True):
            lender = (to or self.lenders)[k]
            if lender is not None:
                lender[...] = x


def contents_of(tree: Any) -> tuple[Any, list[Value | None]]:
    """A tree with what mutable values hold in their place, and these values; None stands for other leaves."""
    leaves, treedef = tree_flatten(tree)
    lenders = [x if isinstance(x, Value) and x.aval.accumulates else None for x in leaves]
    held = [x if lender is None else lender[...] for x, lender in zip(leaves, lenders, strict=True)]
    return tree_unflatten(treedef, held), lenders


def lending(
    fun: Callable[..., Any],
    tree: TreeDef,
    values: Sequence[Value],
    has_aux: bool = False,
    user_fun: object = None,
) -> tuple[LendingFunction, list[Value]]:
    """A function to be differentiated, and its arguments, with the contents of mutable values in their place."""
    lenders = [x if x.aval.accumulates else None for x in values]
    contents = [x[...] if x.aval.accumulates else x for x in values]
    return LendingFunction(fun, tree, lenders, has_aux, user_fun), contents
