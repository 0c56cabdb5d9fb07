"""The exception types, and the functions that write their messages."""

from __future__ import annotations

import re
from dataclasses import is_dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class CoreError(RuntimeError):
    """Something inside the library does not fit together; a bug in a rule or an engine."""


class TypecheckError(TypeError):
    """A jaxpr whose equations do not have the types or effects that it declares."""


class RuleError(TypeError):
    """A transform was asked of a primitive that has no rule for it, or refuses it."""


class TracerError(TypeError):
    """A traced value was used where a concrete one is needed."""


class ConcretizationError(TracerError):
    """A traced value was asked for its value: as a bool, an int, a float or a NumPy array."""


class EscapedTracerError(TracerError):
    """A traced value was used after the function whose tracing made it had returned."""


class NanError(FloatingPointError):
    """An operation made a nan while `debug_nans` was on."""


class LeakError(TracerError):
    """A traced value is still referenced after its function has returned."""


class UnboundAxisError(NameError):
    """A named axis was used where no `vmap` binds its name."""


class PolicyError(RuntimeError):
    """The policy of a checkpoint raised an error, which is the cause of this one."""


class FrozenRefError(RuntimeError):
    """A Ref was used after it had been frozen."""


class DonatedError(RuntimeError):
    """An array was used whose memory has been given to a result."""


def shape_str(shape: Sequence[object]) -> str:
    """A shape as messages show it: (2, 3)."""
    return "(" + ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "") + ")"


def in_brief(x: object) -> str:
    """A value as messages show it: on one line, cut where it is long, and its type.

    >>> in_brief([0] * 100)
    '[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,... of type list'
    """
    text = " ".join(repr(x).split())
    return f"{text if len(text) <= _LONG else f'{text[:_LONG]}...'} of type {type(x).__name__}"


def at_source(source: object | None) -> str:
    """The line that ends a message with the user's place in the program."""
    return f"{_AT}{source}" if source is not None else ""


def masked_array(what: str, source: object) -> TypeError:
    """The error for a NumPy array some of whose elements are masked out."""
    return TypeError(
        f"{what} must be an array whose elements are all there, got a masked array of NumPy; fill it first, "
        f"`x.filled(value)`, or pass `x.data` and `x.mask`{at_source(source)}"
    )


def tracer_of_jax(what: str, x: object, source: object) -> TracerError:
    """The error for a value that a transform of jax is tracing."""
    return TracerError(
        f"{what} must be a value of fiveloop, got {x!r}, which a transform of jax is tracing; use fiveloop's "
        "`jit`, `grad` and `vmap` around functions of fiveloop, or call them from jax by `jax.pure_callback`"
        f"{at_source(source)}"
    )


def no_function(what: str, fun: object, source: object | None = None) -> TypeError:
    """The error for an argument that cannot be called."""
    return TypeError(f"{what}: expected a function, got {in_brief(fun)}{at_source(source)}")


def no_array(what: str, x: object, source: object | None) -> TypeError:
    """What is neither an array nor a number."""
    advice = ""
    if isinstance(x, (list, tuple)):
        advice = "; make it one with `fiveloop.numpy.asarray`"
    elif is_dataclass(x):
        advice = "; make its class a tree of its fields with `fiveloop.core.register_dataclass`"
    elif what.startswith(("jit of ", "checkpoint of ")):
        advice = (
            "; if it decides what is traced, name the argument in static_argnums or static_argnames, else make its "
            "class a tree with `fiveloop.core.register_node`"
        )
    elif what.startswith("tracing of "):
        advice = f"; if it decides what is traced, close over it: `lambda *others: f(..., {x!r})`"
    elif what.endswith("result_shape_dtypes"):
        advice = "; describe a result by `ShapeDtype(shape, dtype)`"
    elif _ARGUMENT_OF.match(what) and type(x).__module__ != "builtins":
        advice = "; make its class a tree with `fiveloop.core.register_node`"
    given = f"{in_brief(x)}{advice}"
    return TypeError(f"{what} must be an array or a scalar, got {given}{at_source(source)}")


def add_source(error: Exception, source: object | None) -> None:
    """Let an error's message end with the user's place in the program, unless it names one already."""
    message = error.args[0] if len(error.args) == 1 else None
    if isinstance(message, str) and not is_located(error):
        error.args = (f"{message}{at_source(source)}",)


def is_located(error: Exception) -> bool:
    """Whether an error's message ends with the user's place in the program."""
    return _AT in str(error)


def unlocated(error: Exception) -> str:
    """An error's message without the user's place in the program."""
    return str(error).split(_AT)[0]


_LONG = 80
"""So many characters of a value are shown in a message."""

_AT = "\n  at "
_ARGUMENT_OF = re.compile("[^:]* of [^:]*: argument ")  # of a function of the user's

STATIC = "if it comes from an argument, name that one in static_argnums"
"""What to do where a Python integer is needed and a traced one was given."""
