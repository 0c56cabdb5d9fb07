"""Calling a user's function with arguments that the library chose."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, signature
from typing import Any

from fiveloop.core.errors import add_source, at_source
from fiveloop.core.ir.source import function_source
from fiveloop.core.trace.tracer import current_source


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
                add_source(error, current_source())
            raise
        raise TypeError(
            f"{what} must take {takes}, but `{function_source(fun)}` takes {_parameters(fun)}"
            f"{at_source(current_source())}"
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
