"""User functions of pytrees as functions of flat lists of values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import Parameter, signature
from typing import Any

from fiveloop.core.api.mutable import giving
from fiveloop.core.array import Scalar, Value, as_value, to_array
from fiveloop.core.errors import at_source
from fiveloop.core.ir.source import function_source
from fiveloop.core.pytree import (
    IsLeaf,
    KeyPath,
    TreeDef,
    keystr,
    leaf_paths,
    tree_flatten,
    tree_flatten_with_path,
    tree_unflatten,
)
from fiveloop.core.trace.tracer import current_source, locate


def function_name(fun: object) -> str:
    """The name that a function goes by in messages and modules."""
    return getattr(fun, "__name__", None) or type(fun).__name__


def check_callable(what: str, fun: object) -> None:
    """Raise TypeError if something that should be a function cannot be called.

    `what` names the caller in the message, which ends with the user's line.

    >>> check_callable("apply", abs)
    >>> check_callable("apply", 3)
    Traceback (most recent call last):
    TypeError: apply: expected a function, got 3 of type int
      at ...
    """
    if not callable(fun):
        raise TypeError(
            f"{what}: expected a function, got {fun!r} of type {type(fun).__name__}{at_source(current_source())}"
        )


Naming = Callable[[KeyPath], str]
"""What a leaf is called in messages, by its path."""


def flatten_values(tree: Any, what: str | Naming) -> tuple[list[Value], TreeDef]:
    """The leaves of a pytree as values; TypeError with the leaf's path for one that is none.

    `what` is what the tree is called, or how each leaf is.
    """
    leaves, treedef = flatten_located(tree, what=what if isinstance(what, str) else A_TREE)
    try:
        return [as_value(x) for x in leaves], treedef
    except (TypeError, OverflowError):
        pass
    name = (lambda path: f"{what}{keystr(path)}") if isinstance(what, str) else what
    return [as_value(x, name(path)) for path, x in tree_flatten_with_path(tree)[0]], treedef


A_TREE = "a tree"
"""What a tree without a name is called in messages."""


def flatten_located(
    tree: Any, is_leaf: IsLeaf | None = None, what: str = A_TREE
) -> tuple[list[Any], TreeDef]:
    """`tree_flatten`; what it says of dict keys without an order names the tree, and ends with the user's line."""
    try:
        return tree_flatten(tree, is_leaf)
    except TypeError as error:
        if what != A_TREE and len(error.args) == 1:
            error.args = (str(error.args[0]).replace(f"{A_TREE}:", f"{what}:", 1),)
        locate(error)
        raise


def argument_naming(what: str, fun: object, numbers: Sequence[int] | None = None) -> Naming:
    """What the leaves of `(args, kwargs)` of a call of `fun` are called: "grad of f: argument `x`['w']".

    `numbers` says which of the function's positional arguments `args` holds, if not all.
    """

    def name(path: KeyPath) -> str:
        if not path:
            return f"{what} of {function_name(fun)}: arguments"
        kind, *rest = path
        if not rest:
            return f"{what} of {function_name(fun)}: arguments"
        first, *inner = rest
        if kind.idx == 1:
            called = f"`{first.key}`"
        else:
            called = argument_name(fun, first.idx if numbers is None else numbers[first.idx])
        return f"{what} of {function_name(fun)}: argument {called}{keystr(tuple(inner))}"

    return name


def argument_name(fun: object, k: int) -> str:
    """A positional argument as messages show it: by its name where the signature tells, else by its number."""
    try:
        parameters = list(signature(fun).parameters.values())  # type: ignore[arg-type]  # anything may be tried
    except (TypeError, ValueError):
        return str(k)
    named = k < len(parameters) and parameters[k].kind in (
        Parameter.POSITIONAL_ONLY,
        Parameter.POSITIONAL_OR_KEYWORD,
    )
    return f"`{parameters[k].name}`" if named else str(k)


def as_result(x: Value) -> Value:
    """A value as users are given it: a number on the host becomes an array."""
    return to_array(x) if isinstance(x, Scalar) else x


IS_PART = "is a part of another; return what it holds, `part[...]`, or all of the other"
IS_GIVEN = "was made outside of it, so the caller has it; leave it out, or return what it holds, `ref[...]`"
IN_RULE = "the derivative rule of the function cannot speak of; return what it holds, `ref[...]`, or pass the Ref in"
"""Why a function must not return a mutable value."""

_VALUE = object()
"""Where a value goes among the leaves of an auxiliary result."""


class FlatFunction:
    """A user's function on leaves. `out_tree` is known after it has run; `aux` is what `has_aux` splits off.

    `aux_others` has the leaves of `aux` that are no values, and `_VALUE` where one is.

    `user_fun` is the function that messages name, if `fun` only calls it.
    """

    def __init__(
        self,
        fun: Callable[..., Any],
        in_tree: TreeDef,
        has_aux: bool = False,
        user_fun: object = None,
    ) -> None:
        self.fun = fun
        self.user_fun = user_fun or fun
        self.in_tree = in_tree
        self.has_aux = has_aux
        self.out_tree: TreeDef | None = None
        self.aux_tree: TreeDef | None = None
        self.aux_others: list[Any] = []
        self.num_outs = 0

    def __call__(self, *leaves: Value) -> list[Value]:
        mutable = [x for x in leaves if x.aval.accumulates]
        if mutable:
            with giving(mutable):
                out = self._call(leaves)
        else:
            out = self._call(leaves)
        aux_leaves: Sequence[Value] = ()
        if self.has_aux:
            out, aux = self._split_aux(out)
            aux_leaves = self._aux_values(aux)
        out_leaves, self.out_tree = flatten_values(out, self._naming("the result"))
        self.num_outs = len(out_leaves)
        return [*out_leaves, *aux_leaves]

    def _call(self, leaves: Sequence[Value]) -> Any:
        args, kwargs = tree_unflatten(self.in_tree, leaves)
        try:
            return self.fun(*args, **kwargs)
        except TypeError as error:
            locate(error)  # arguments that the function does not take
            raise

    def unflatten(self, leaves: Sequence[Any]) -> Any:
        """The user's result from its leaves."""
        assert self.out_tree is not None, "unreachable: the function has run"
        return tree_unflatten(self.out_tree, [as_result(x) for x in leaves])

    def unflatten_aux(self, leaves: Sequence[Any]) -> Any:
        """The auxiliary result from its leaves."""
        assert self.aux_tree is not None, "unreachable: the function has run"
        given = iter(leaves)
        full = [as_result(next(given)) if x is _VALUE else x for x in self.aux_others]
        return tree_unflatten(self.aux_tree, full)

    def _aux_values(self, aux: Any) -> list[Value]:
        """The values among the leaves of an auxiliary result; what is none is given back as it is."""
        leaves, self.aux_tree = flatten_located(aux)
        values: list[Value] = []
        self.aux_others = []
        for x in leaves:
            try:
                values.append(as_value(x))
                self.aux_others.append(_VALUE)
            except TypeError:
                self.aux_others.append(x)
        return values

    def _naming(self, what: str) -> Naming:
        return lambda path: f"{what}{keystr(path)} of {self._name}"

    def returned(self, k: int, x: Value, why: str) -> TypeError:
        """The error for a mutable value that is result number `k`, and that the function must not return."""
        assert self.out_tree is not None, "unreachable: the function has run"
        path = leaf_paths(self.out_tree)[k] if k < self.num_outs else " (auxiliary)"
        return TypeError(f"the result{path} of {self._name} is a Ref of type {x.aval} that {why}")

    @property
    def _name(self) -> str:
        return function_source(self.user_fun)

    def _split_aux(self, out: Any) -> tuple[Any, Any]:
        if not isinstance(out, (tuple, list)) or len(out) != 2:
            raise TypeError(
                f"has_aux: {self._name} must return a pair (result, auxiliary), got {_shown(out)}"
            )
        return out[0], out[1]


def _shown(x: object) -> str:
    return str(x.aval) if isinstance(x, Value) else type(x).__name__
