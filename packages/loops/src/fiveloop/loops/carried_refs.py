"""Refs among what a loop carries or goes over: each step is given the Ref, or its slice; the loop closes over it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from fiveloop.core import TreeDef, arrays, ir, pytree
from fiveloop.core.api import flatten, operands
from fiveloop.core.dataclass import dataclass
from fiveloop.loops.common import NO_RETURN, changed_places, shown
from fiveloop.state import Ref, api


@dataclass(frozen=True)
class CarriedRefs:
    """What a loop carries or goes over, `tree` of `leaves`, some of them Refs; `name` is what messages call it."""

    name: str
    tree: TreeDef
    leaves: Sequence[Any]

    @property
    def values(self) -> Any:
        """The same without its Refs: None in their places."""
        return _without_refs(pytree.tree_unflatten(self.tree, self.leaves))

    def names(self) -> list[tuple[str, Any]]:
        """What the user calls each Ref."""
        root = self.name.partition(": ")[2].removeprefix("the ").removeprefix("init_")
        held = pytree.tree_flatten_with_path(pytree.tree_unflatten(self.tree, self.leaves))[0]
        return [(f"{root}{pytree.keystr(path)}", x) for path, x in held if isinstance(x, Ref)]

    def whole(self, values: Any, index: Any = None) -> Any:
        """What has None in the places of the Refs, with them; with their parts at an index, if one is given."""
        given = iter(pytree.tree_flatten(values)[0])
        refs = [x if isinstance(x, Ref) else None for x in self.leaves]
        if index is not None:
            refs = [x if x is None else _slice(x, index) for x in refs]
        filled = [next(given) if x is None else x for x in refs]
        return pytree.tree_unflatten(self.tree, filled)

    def kept(self, out: Any, fun: Callable[..., Any]) -> Any:
        """What a step of `fun` gives back, without its Refs, which must be those that went in."""
        leaves, tree = flatten.flatten_located(out, what=f"{self.name} returned")
        if tree != self.tree:
            places = changed_places(
                self.name.rpartition(" ")[2], self.tree, tree, self.leaves, leaves
            )
            advice = NO_RETURN if out is None else ""
            raise TypeError(
                f"{self.name} must keep its structure, but in `{ir.function_source(fun)}` {places}{advice}"
            )
        for given, x, (path, _) in zip(
            self.leaves, leaves, pytree.tree_flatten_with_path(out)[0], strict=True
        ):
            if isinstance(given, Ref) and x is not given:
                came = f"another Ref, of type {x.aval}" if isinstance(x, Ref) else shown(x)
                raise TypeError(
                    f"{self.name}{pytree.keystr(path)} goes in as a Ref of type {given.aval}, "
                    f"and must come out as the same "
                    f"Ref, but `{ir.function_source(fun)}` returns {came}; write to the Ref, and return it as it is"
                )
        return _without_refs(out, self.leaves)

    def step(self, fun: Callable[..., Any], at: int) -> Callable[..., Any]:
        """A function whose argument number `at` is what is carried, as one that is given it without its Refs."""

        @wraps(fun)
        def run(*args: Any) -> Any:
            return fun(*args[:at], self.whole(args[at]), *args[at + 1 :])

        return run


def carried_refs(name: str, carry: Any) -> CarriedRefs | None:
    """The Refs among what a loop carries, if there are any: each once, or parts that lie apart."""
    leaves, tree = flatten.flatten_located(carry, what=name)
    if not any(isinstance(x, Ref) for x in leaves):
        return None
    others = arrays.as_value(0)
    refs = [x if isinstance(x, Ref) else others for x in leaves]
    operands.check_mutable(carry, refs, lambda path: f"{name}{pytree.keystr(path)}")
    return CarriedRefs(name, tree, leaves)


def _slice(ref: Ref, index: Any) -> Ref:
    """What is at an index, as a Ref; where no step is taken, one of its type."""
    return ref.at[index] if len(ref) else api.empty_ref(ref.shape[1:], ref.dtype)


def _without_refs(tree: Any, refs: Sequence[Any] | None = None) -> Any:
    """None in the places of the Refs; if they are given, only in their places."""
    marks = iter(refs if refs is not None else pytree.tree_flatten(tree)[0])
    return pytree.tree_map(lambda x: None if isinstance(next(marks), Ref) else x, tree)
