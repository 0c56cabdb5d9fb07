"""Named axes: the axes that a jaxpr uses, and renaming them.

A `vmap` may give its axis a name. A collective names the axes that it goes over, with their sizes, and so its type
does: an effect without a position. A jaxpr with such an effect means something only where the axis is bound.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, ClassVar, TypeVar

from fiveloop.core.dataclass import dataclass, replace
from fiveloop.core.errors import UnboundAxisError
from fiveloop.core.ir.jaxpr import Effect, Effects, Eqn, Jaxpr, once_per, values_in, with_values

P = TypeVar("P")


@dataclass(frozen=True)
class NamedAxis:
    """An axis by its name, with its size. Of nested axes of one name, the inner ones have higher levels.

    >>> print(NamedAxis("rows", 4), NamedAxis("rows", 2, level=1))
    rows=4 rows'=2
    """

    name: Hashable
    size: int
    level: int = 0

    def __str__(self) -> str:
        return f"{self.name}{chr(39) * self.level}={self.size}"


class _Batch:
    """The name of the axis of the batching that is under way."""

    def __repr__(self) -> str:
        return "batch"


_BATCH = _Batch()


def batch_axis(size: int) -> NamedAxis:
    """The named axis that stands for the current batch in the params of a batch rule, whatever its name.

    A rule passes nested jaxprs to `batch_jaxpr`, which binds this axis.

    >>> str(batch_axis(4)), batch_axis(4) == batch_axis(4)
    ('batch=4', True)
    """
    return NamedAxis(_BATCH, size)


@dataclass(frozen=True)
class NamedAxisEffect(Effect):
    """An equation or a jaxpr uses a named axis. It may be dropped or recomputed."""

    droppable: ClassVar[bool] = True
    recomputable: ClassVar[bool] = True

    axis: NamedAxis


def axes_of(effects: Effects) -> list[NamedAxis]:
    """The named axes among effects, in the order of their names.

    >>> jaxpr = make_jaxpr(lambda x: psum(x, ("x", "y")), axis_env=[("y", 4), ("x", 2)])(1.0)
    >>> print(*axes_of(jaxpr.effects))
    x=2 y=4
    """
    found = {e.axis for e in effects if isinstance(e, NamedAxisEffect)}
    return sorted(found, key=str)


def axes_in(params: Any) -> set[NamedAxis]:
    """The named axes that an equation with these params goes over, in the jaxprs among them too.

    >>> jaxpr = make_jaxpr(jit(lambda x: psum(x, "rows")), axis_env=[("rows", 4)])(1.0)
    >>> axes_in(jaxpr.eqns[0].params)
    {NamedAxis(name='rows', size=4, level=0)}
    """
    values = values_in(params)
    inner = [axes_of(x.effects) for x in values if isinstance(x, Jaxpr) and x.effects]
    return {x for x in values if isinstance(x, NamedAxis)}.union(*inner)


def unbound(what: str, axes: Iterable[NamedAxis]) -> UnboundAxisError:
    """The error for a program that is run, or made ready to run, where nothing binds its axes."""
    shown = " and ".join(f"{axis.name!r} of size {axis.size}" for axis in sorted(axes, key=str))
    return UnboundAxisError(
        f"{what}: expected to run where its named axis {shown} is bound, but no `vmap` around it binds that; what was "
        f"traced under a `vmap(..., axis_name=...)`, such as a pullback or a jaxpr, runs within it only"
    )


def rename_axes(jaxpr: Jaxpr, renames: Mapping[Any, Hashable]) -> Jaxpr:
    """The jaxpr with other names for its axes, in every jaxpr that it holds too; all at once, so names may be swapped.

    A name stands for the outermost axis of that name; a `NamedAxis` for itself alone. Two axes never become one:
    ValueError says so.

    >>> jaxpr = make_jaxpr(lambda x: psum(x, "rows"), axis_env=[("rows", 4)])(1.0)
    >>> print(*axes_of(rename_axes(jaxpr, {"rows": "lanes"}).effects))
    lanes=4
    """
    mapping = {axis: _renamed(axis, renames) for axis in axes_of(jaxpr.effects)}
    taken: dict[NamedAxis, NamedAxis] = {}
    for old, new in mapping.items():
        if new in taken:
            raise ValueError(
                f"rename_axes: expected distinct axes to stay distinct, but {taken[new]} and {old} would both be "
                f"{new}; rename the other one too, or choose another name"
            )
        taken[new] = old
    return with_axes(jaxpr, {old: new for old, new in mapping.items() if old != new})


def _renamed(axis: NamedAxis, renames: Mapping[Any, Hashable]) -> NamedAxis:
    new = renames.get(axis)
    if new is None and axis.level == 0:
        new = renames.get(axis.name)
    if new is None:
        return axis
    return new if isinstance(new, NamedAxis) else replace(axis, name=new, level=0)


@once_per(lambda jaxpr, mapping: (jaxpr, frozenset(mapping.items())))
def with_axes(jaxpr: Jaxpr, mapping: Mapping[NamedAxis, NamedAxis]) -> Jaxpr:
    """The jaxpr with axes replaced by others, throughout; remembered on it."""
    present = {a: mapping[a] for a in axes_of(jaxpr.effects) if a in mapping}
    if not present:
        return jaxpr

    def renamed(eqn: Eqn) -> Eqn:
        if present.keys().isdisjoint(axes_of(eqn.effects)):
            return eqn
        named = {e for e in eqn.effects if isinstance(e, NamedAxisEffect)}
        moved = {NamedAxisEffect(present.get(e.axis, e.axis)) for e in named}
        params = params_with_axes(eqn.params, present)
        return eqn.replace(params=params, effects=eqn.effects - named | moved)

    return jaxpr.replace(eqns=list(map(renamed, jaxpr.eqns)))


def params_with_axes(params: P, mapping: Mapping[NamedAxis, NamedAxis]) -> P:
    """Params with axes replaced by others, in the jaxprs among them too."""

    def change(value: Any) -> Any:
        if isinstance(value, NamedAxis):
            return mapping.get(value, value)
        return with_axes(value, mapping) if isinstance(value, Jaxpr) else value

    return with_values(params, change)
