"""The named axes that are bound here, and finding one by its name."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from fiveloop.core.array import Value
from fiveloop.core.errors import UnboundAxisError, at_source
from fiveloop.core.ir.axes import NamedAxis
from fiveloop.core.ir.jaxpr import Primitive
from fiveloop.core.trace.settings import chosen_settings
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
    return tuple(axis for _, axis in visible_axes())


def visible_axes() -> tuple[tuple[Hashable, NamedAxis], ...]:
    """The names that may be used here, innermost first, and the axes that they stand for."""
    trace: Trace | None = current_trace()
    found: list[tuple[Hashable, NamedAxis]] = []
    while trace is not None:
        if isinstance(trace, ScopeTrace):
            outside = trace.parent
            named = zip(trace.scope.names, trace.axes, strict=True)
            return (*found, *[(name, _as_outside(axis, outside)) for name, axis in named])
        if trace.axis is not None:
            found.append((trace.axis.name, trace.axis))
        trace = trace.parent
    return tuple(found)


def _as_outside(axis: NamedAxis, trace: Trace | None) -> NamedAxis:
    """What has become of an axis where rules run within rules."""
    while trace is not None:
        if isinstance(trace, ScopeTrace) and axis in trace.scope.axes:
            axis = trace.axes[trace.scope.axes.index(axis)]
        trace = trace.parent
    return axis


def trace_context() -> tuple[Any, ...]:
    """All that a trace depends on besides the function and its arguments: part of every key of kept traces.

    This is the one place that lists it: the named axes that are bound, and the settings of the block. What is asked
    of the axes is noted (`note_context`), so that a program that has asked is not run by the fast path, which knows
    no context; where a setting is changed no program is.
    """
    return (*visible_axes(), *chosen_settings())


def new_axis(name: Hashable, size: int) -> NamedAxis:
    """An axis to be bound here; it hides one of the same name around it."""
    trace: Trace | None = current_trace()
    around = list(bound_axes())
    while trace is not None:
        around += [] if trace.axis is None else [trace.axis]
        trace = trace.parent
    levels = [axis.level for axis in around if axis.name == name]
    return NamedAxis(name, size, max(levels, default=-1) + 1)


def find_axis(fun: str, name: Hashable) -> NamedAxis:
    """The innermost bound axis of a name."""
    note_context()
    visible = visible_axes()
    for known, axis in visible:
        if known == name:
            return axis
    raise UnboundAxisError(f"{fun}: {_unbound(name, visible)}{at_source(current_source())}")


def _unbound(name: Hashable, bound: Sequence[tuple[Hashable, NamedAxis]]) -> str:
    if not bound:
        return (
            f"expected the name of a bound axis, got {name!r}, and no axis is bound here; give the axis its name "
            f"where it is made: `vmap(..., axis_name={name!r})`"
        )
    shown = ", ".join(f"{known!r} of size {axis.size}" for known, axis in dict.fromkeys(bound))
    near = get_close_matches(str(name), [str(known) for known, _ in bound], n=1)
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


@dataclass(frozen=True)
class AxisScope:
    """The names that a function of the user's could use where it was called, and the axes that they stood for."""

    names: tuple[Hashable, ...] = ()
    axes: tuple[NamedAxis, ...] = ()


def axis_scope() -> AxisScope:
    """The names that may be used here."""
    visible = dict(reversed(visible_axes()))
    return AxisScope(tuple(visible), tuple(visible.values()))


class ScopeTrace(Trace):
    """Lets a function use the names of another place, and interprets nothing itself.

    `axes` are what the axes of that place have become since: they may be bound, or have other names.
    """

    parent: Trace

    def __init__(self, parent: Trace, scope: AxisScope, axes: Sequence[NamedAxis]) -> None:
        super().__init__(parent)
        self.scope = scope
        self.axes = tuple(axes)

    def process(self, prim: Primitive[Any], args: Sequence[Value], params: Any) -> list[Value]:
        with use_trace(self.parent):
            return bind(prim, *args, params=params)
