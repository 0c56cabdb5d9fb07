"""Leaves of arguments as values; calls of a user's function; the names of functions and arguments in messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import Parameter, signature
from typing import Any

from fiveloop.core import arrays, errors, ir, pytree, trace
from fiveloop.core.arrays import Value
from fiveloop.core.backend.tree import IsLeaf, KeyPath, TreeDef
from fiveloop.core.dataclass import dataclass


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
            f"{what}: expected a function, got {fun!r} of type {type(fun).__name__}"
            f"{errors.at_source(trace.current_source())}"
        )


Naming = Callable[[KeyPath], str]
"""What a leaf is called in messages, by its path."""


def flatten_values(tree: Any, what: str | Naming) -> tuple[list[Value], TreeDef]:
    """The leaves of a pytree as values; TypeError with the leaf's path for one that is none.

    `what` is what the tree is called, or how each leaf is.
    """
    leaves, treedef = flatten_located(tree, what=what if isinstance(what, str) else A_TREE)
    try:
        return [arrays.as_value(x) for x in leaves], treedef
    except (TypeError, OverflowError):
        pass
    name = (lambda path: f"{what}{pytree.keystr(path)}") if isinstance(what, str) else what
    return [
        arrays.as_value(x, name(path)) for path, x in pytree.tree_flatten_with_path(tree)[0]
    ], treedef


A_TREE = "a tree"
"""What a tree without a name is called in messages."""


def flatten_located(
    tree: Any, is_leaf: IsLeaf | None = None, what: str = A_TREE
) -> tuple[list[Any], TreeDef]:
    """`tree_flatten`; what it says of dict keys without an order names the tree, and ends with the user's line."""
    try:
        return pytree.tree_flatten(tree, is_leaf)
    except TypeError as error:
        if what != A_TREE and len(error.args) == 1:
            error.args = (str(error.args[0]).replace(f"{A_TREE}:", f"{what}:", 1),)
        trace.locate(error)
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
        return f"{what} of {function_name(fun)}: argument {called}{pytree.keystr(tuple(inner))}"

    return name


def argument_name(fun: object, k: int) -> str:
    """A positional argument as messages show it: by its name where the signature tells, else by its number."""
    known = parameters(fun)
    return f"`{known.placed[k]}`" if known is not None and k < len(known.placed) else str(k)


@dataclass(frozen=True, slots=True)
class Parameters:
    """What a signature tells: all names, those that have a place, and whether others are taken by place or by name."""

    names: list[str]
    placed: list[str]
    takes_more: bool
    takes_names: bool


def parameters(fun: object) -> Parameters | None:
    """The parameters of a function, where its signature tells."""
    try:
        known = list(signature(fun).parameters.values())  # type: ignore[arg-type]  # anything may be tried
    except (TypeError, ValueError):
        return None
    kinds = [q.kind for q in known]
    return Parameters(
        [q.name for q in known],
        [q.name for q in known if q.kind in (q.POSITIONAL_ONLY, q.POSITIONAL_OR_KEYWORD)],
        Parameter.VAR_POSITIONAL in kinds,
        Parameter.VAR_KEYWORD in kinds,
    )


def as_result(x: Value) -> Value:
    """A value as users are given it: a number on the host becomes an array."""
    return arrays.to_array(x) if isinstance(x, arrays.Scalar) else x


def call_user(what: str, takes: str, fun: Callable[..., Any], *args: Any) -> Any:
    """`fun(*args)`; TypeError that says what it must take, `takes`, if it does not take so many.

    >>> call_user("apply", "(x, y)", lambda x, y: x + y, 1, 2)
    3
    """
    try:
        return fun(*args)
    except TypeError as error:
        # An error from within the function has a frame of its own.
        inside = error.__traceback__ is not None and error.__traceback__.tb_next is not None
        if inside or _accepts(fun, args):
            if not inside:  # a function of C, which has no line of its own
                errors.add_source(error, trace.current_source())
            raise
        raise TypeError(
            f"{what} must take {takes}, but `{ir.function_source(fun)}` takes {_parameters(fun)}"
            f"{errors.at_source(trace.current_source())}"
        ) from None


def _parameters(fun: Callable[..., Any]) -> str:
    """What a function takes, without annotations."""
    parameters = [p.replace(annotation=Parameter.empty) for p in signature(fun).parameters.values()]
    return f"({', '.join(map(str, parameters))})"


def _accepts(fun: Callable[..., Any], args: tuple[Any, ...]) -> bool:
    try:
        signature(fun).bind(*args)
    except TypeError:
        return False
    except ValueError:
        return True  # a function of C that tells no signature
    return True
