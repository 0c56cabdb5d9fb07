"""User functions of pytrees as functions of flat lists of values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fiveloop.core.array import Value, as_value
from fiveloop.core.errors import at_source
from fiveloop.core.ir.source import function_source
from fiveloop.core.pytree import TreeDef, keystr, tree_flatten, tree_flatten_with_path, tree_unflatten
from fiveloop.core.trace.tracer import current_source


def function_name(fun: object) -> str:
    """The name that a function goes by in messages and modules."""
    return getattr(fun, "__name__", None) or type(fun).__name__


def check_callable(what: str, fun: object) -> None:
    """Raise TypeError if something that should be a function cannot be called."""
    if not callable(fun):
        raise TypeError(f"{what}: expected a function, got {fun!r} of type {type(fun).__name__}")


def flatten_values(tree: Any, what: str) -> tuple[list[Value], TreeDef]:
    """The leaves of a pytree as values; TypeError with the leaf's path for one that is none."""
    leaves, treedef = tree_flatten(tree)
    try:
        return [as_value(x) for x in leaves], treedef
    except TypeError:
        pass
    return [_leaf(x, f"{what}{keystr(path)}") for path, x in tree_flatten_with_path(tree)[0]], treedef


def _leaf(x: Any, what: str) -> Value:
    try:
        return as_value(x, what)
    except TypeError as error:
        raise TypeError(f"{error}{at_source(current_source())}") from None


class FlatFunction:
    """A user's function on leaves. `out_tree` is known after it has run; `aux` is what `has_aux` splits off."""

    def __init__(self, fun: Callable[..., Any], in_tree: TreeDef, has_aux: bool = False) -> None:
        self.fun = fun
        self.in_tree = in_tree
        self.has_aux = has_aux
        self.out_tree: TreeDef | None = None
        self.aux_tree: TreeDef | None = None
        self.num_outs = 0

    def __call__(self, *leaves: Value) -> list[Value]:
        args, kwargs = tree_unflatten(self.in_tree, leaves)
        out = self.fun(*args, **kwargs)
        aux_leaves: Sequence[Value] = ()
        if self.has_aux:
            out, aux = self._split_aux(out)
            aux_leaves, self.aux_tree = flatten_values(aux, f"the auxiliary result of {self._name}")
        out_leaves, self.out_tree = flatten_values(out, f"the result of {self._name}")
        self.num_outs = len(out_leaves)
        return [*out_leaves, *aux_leaves]

    def unflatten(self, leaves: Sequence[Any]) -> Any:
        """The user's result from its leaves."""
        assert self.out_tree is not None, "unreachable: the function has run"
        return tree_unflatten(self.out_tree, leaves)

    def unflatten_aux(self, leaves: Sequence[Any]) -> Any:
        """The auxiliary result from its leaves."""
        assert self.aux_tree is not None, "unreachable: the function has run"
        return tree_unflatten(self.aux_tree, leaves)

    @property
    def _name(self) -> str:
        return function_source(self.fun)

    def _split_aux(self, out: Any) -> tuple[Any, Any]:
        if not isinstance(out, (tuple, list)) or len(out) != 2:
            raise TypeError(
                f"has_aux: {self._name} must return a pair (result, auxiliary), got {type(out).__name__}"
                f"{at_source(current_source())}"
            )
        return out[0], out[1]
