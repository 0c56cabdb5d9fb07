"""The named axes that are bound in the current context, and finding one by name."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from fiveloop.core import ad, errors, ir
from fiveloop.core.arrays import Value
from fiveloop.core.backend import lazy
from fiveloop.core.dataclass import dataclass
from fiveloop.core.trace import tracer


def _as_outside(axis: ir.NamedAxis, trace: tracer.Trace | None) -> ir.NamedAxis:
    """What has become of an axis where rules run within rules."""
    while trace is not None:
        if isinstance(trace, ScopeTrace) and axis in trace.scope.axes:
            axis = trace.axes[trace.scope.axes.index(axis)]
        trace = trace.parent
    return axis


def new_axis(name: Hashable, size: int) -> ir.NamedAxis:
    """An axis to be bound here; it hides one of the same name around it."""
    trace = tracer.current_trace()
    around = [axis for _, axis in trace.visible_axes()]
    outer: tracer.Trace | None = trace
    while outer is not None:
        around += [] if outer.axis is None else [outer.axis]
        outer = outer.parent
    levels = [axis.level for axis in around if axis.name == name]
    return ir.NamedAxis(name, size, max(levels, default=-1) + 1)


def find_axis(fun: str, name: Hashable) -> ir.NamedAxis:
    """The innermost bound axis of a name."""
    tracer.note_context()
    visible = tracer.current_trace().visible_axes()
    for known, axis in visible:
        if known == name:
            return axis
    raise errors.UnboundAxisError(
        f"{fun}: {_unbound(name, visible)}{errors.at_source(tracer.current_source())}"
    )


def _unbound(name: Hashable, bound: Sequence[tuple[Hashable, ir.NamedAxis]]) -> str:
    if not bound:
        return (
            f"expected the name of a bound axis, got {name!r}, and no axis is bound here; give the axis its name "
            f"where it is made: `vmap(..., axis_name={name!r})`"
        )
    shown = ", ".join(f"{known!r} of size {axis.size}" for known, axis in dict.fromkeys(bound))
    near = lazy.difflib().get_close_matches(str(name), [str(known) for known, _ in bound], n=1)
    hint = (
        f"did you mean {near[0]!r}?"
        if near
        else f"use one of them, or `vmap(..., axis_name={name!r})`"
    )
    return f"expected the name of a bound axis ({shown}), got {name!r}; {hint}"


class AxisTrace(tracer.Trace):
    """Binds a named axis, if one is given, for what is traced in it, and interprets nothing itself."""

    parent: tracer.Trace

    def __init__(self, parent: tracer.Trace, axis: ir.NamedAxis | None = None) -> None:
        super().__init__(parent)
        self.axis = axis

    def process(self, prim: ir.Primitive[Any], args: ad.Values, params: Any) -> list[Value]:
        return self.hand_on(prim, args, params)


@dataclass(frozen=True)
class AxisScope:
    """The names that a function of the user's could use where it was called, and the axes that they stood for."""

    names: tuple[Hashable, ...] = ()
    axes: tuple[ir.NamedAxis, ...] = ()


def axis_scope() -> AxisScope:
    """The names that may be used here."""
    visible = dict(reversed(tracer.current_trace().visible_axes()))
    return AxisScope(tuple(visible), tuple(visible.values()))


class ScopeTrace(AxisTrace):
    """Lets a function use the names of another place, and interprets nothing itself.

    `axes` are the current axes for the axes of the other place: they may be bound, or have other names.
    """

    def __init__(
        self, parent: tracer.Trace, scope: AxisScope, axes: Sequence[ir.NamedAxis]
    ) -> None:
        super().__init__(parent)
        self.scope = scope
        self.axes = tuple(axes)

    def visible_axes(self) -> tuple[tuple[Hashable, ir.NamedAxis], ...]:
        named = zip(self.scope.names, self.axes, strict=True)
        return tuple([(name, _as_outside(axis, self.parent)) for name, axis in named])
