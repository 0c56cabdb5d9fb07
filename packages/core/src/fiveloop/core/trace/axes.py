"""The named axes that are bound here, and finding one by its name."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from difflib import get_close_matches
from typing import Any

from fiveloop.core.array import Value
from fiveloop.core.errors import UnboundAxisError, at_source
from fiveloop.core.ir.axes import NamedAxis
from fiveloop.core.ir.jaxpr import Primitive
from fiveloop.core.trace.tracer import (
    Trace,
    bind,
    current_source,
    current_trace,
    note_context,
    use_trace,
)


def bound_axes() -> tuple[NamedAxis, ...]:
    """The named axes that are bound here, innermost first."""
    trace: Trace | None = current_trace()
    found: list[NamedAxis] = []
    while trace is not None:
        if trace.axis is not None:
            found.append(trace.axis)
        trace = trace.parent
    return tuple(found)


def trace_context() -> tuple[Any, ...]:
    """All that a trace depends on besides the function and its arguments: part of every key of kept traces.

    This is the one place that lists it: the named axes that are bound. What is asked of it is noted
    (`note_context`), so that a program that has asked is not run by the fast path, which knows no context.
    """
    return bound_axes()


def new_axis(name: Hashable, size: int) -> NamedAxis:
    """An axis to be bound here; it hides one of the same name around it."""
    level = sum(axis.name == name for axis in bound_axes())
    return NamedAxis(name, size, level)


def find_axis(fun: str, name: Hashable) -> NamedAxis:
    """The innermost bound axis of a name."""
    note_context()
    bound = bound_axes()
    for axis in bound:
        if axis.name == name:
            return axis
    raise UnboundAxisError(f"{fun}: {_unbound(name, bound)}{at_source(current_source())}")


def _unbound(name: Hashable, bound: Sequence[NamedAxis]) -> str:
    if not bound:
        return (
            f"expected the name of a bound axis, got {name!r}, and no axis is bound here; give the axis its name "
            f"where it is made: `vmap(..., axis_name={name!r})`"
        )
    shown = ", ".join(f"{axis.name!r} of size {axis.size}" for axis in dict.fromkeys(bound))
    near = get_close_matches(str(name), [str(axis.name) for axis in bound], n=1)
    hint = (
        f"did you mean {near[0]!r}?"
        if near
        else f"use one of them, or `vmap(..., axis_name={name!r})`"
    )
    return f"expected the name of a bound axis ({shown}), got {name!r}; {hint}"


class AxisTrace(Trace):
    """Binds a named axis for what is traced in it, and interprets nothing itself."""

    parent: Trace

    def __init__(self, parent: Trace, axis: NamedAxis) -> None:
        super().__init__(parent)
        self.axis = axis

    def process(self, prim: Primitive[Any], args: Sequence[Value], params: Any) -> list[Value]:
        with use_trace(self.parent):
            return bind(prim, *args, params=params)
