"""Values that user functions close over: staging finds them, and they become operands of the equation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from fiveloop.core import ad, arrays, ir, trace, transforms
from fiveloop.core.arrays import Value
from fiveloop.core.custom_rule.primitive import Masked, OfTangents
from fiveloop.core.dataclass import dataclass


@dataclass(frozen=True, eq=False)
class Closure:
    """Values that a rule's functions close over, as the functions hold them.

    When a rule runs, each of them stands for an operand of the equation, which may be another value by then: the
    tracer that the function holds may be of a function that has long returned.
    """

    held: tuple[Value, ...] = ()

    def run(
        self,
        fun: OfTangents,
        closed: ad.Values,
        values: ad.Values,
        tangents: ad.Tangents = (),
        check: Callable[[Sequence[bool]], None] | None = None,
    ) -> ad.Duals:
        """The results and tangents of a function that closes over what `closed` now is.

        `check` is told which of the tangents, Refs that is, the function writes to.
        """
        if check is None and all(x is y for x, y in zip(self.held, closed, strict=True)):
            with trace.users_lines():
                outs, dots = fun(values, tangents)
        else:
            flat = Masked(fun, len(values), tangents)
            args = [*values, *flat.dots]
            with trace.users_lines():
                staged = trace.stage(flat, [x.aval for x in args], user_fun=fun, closed=self.held)
            if check is not None:
                check(_written(staged.jaxpr, tangents))
            outs, dots = flat.apart(
                transforms.eval_jaxpr(staged.jaxpr, [*staged.captured, *closed, *args])
            )
        assert all(t is not None for t in dots), "unreachable: rules give all tangents"
        return list(outs), [t for t in dots if t is not None]


def _written(jaxpr: ir.Jaxpr, tangents: ad.Tangents) -> list[bool]:
    """Which tangents a jaxpr writes to, whose last inputs are those that are not zero."""
    nonzero = transforms.nonzero_mask(tangents)
    places = iter(range(len(jaxpr.invars) - sum(nonzero), len(jaxpr.invars)))
    written = ir.mutated_positions(jaxpr.effects)
    return [nz and next(places) in written for nz in nonzero]


def closed_over(functions: Sequence[Any], probe: ad.Function, avals: ir.Avals) -> list[Value]:
    """The traced values and Refs that functions close over, found by a trial run of `probe`, which calls them.

    A trial that fails finds the values used until then: its error comes up when the rule is used.
    """
    return trace.captured_by(probe, avals) if may_hold_tracers(*functions) else []


def may_hold_tracers(*functions: object) -> bool:
    """Whether anything traced can be reached from functions: no from modules and numbers, perhaps from most else."""
    seen: set[int] = set()
    return any(_may_hold_tracers(fun, seen) for fun in functions)


_PLAIN = (
    *(bool, int, float, complex, str, bytes, type(None), type, ModuleType, BuiltinFunctionType),
    *(np.ndarray, np.generic, np.dtype, np.ufunc, arrays.Array, arrays.Scalar),
)


def _may_hold_tracers(x: object, seen: set[int]) -> bool:
    if isinstance(x, _PLAIN) or id(x) in seen:
        return False
    seen.add(id(x))
    inner = _parts(x)
    return inner is None or any(_may_hold_tracers(part, seen) for part in inner)


def _parts(x: object) -> list[Any] | None:
    """What a function or container holds; None if that cannot be told."""
    if isinstance(x, FunctionType):
        cells = [c.cell_contents for c in x.__closure__ or () if not _is_empty(c)]
        return [*cells, *(x.__defaults__ or ()), *(x.__kwdefaults__ or {}).values()]
    if isinstance(x, MethodType):
        return [x.__func__, x.__self__]
    if isinstance(x, partial):
        return [x.func, *x.args, *x.keywords.values()]
    if isinstance(x, (tuple, list, set, frozenset)):
        return list(x)
    if isinstance(x, dict):
        return list(x.values())
    held = getattr(x, "closed_parts", None)
    return held() if held is not None and not isinstance(x, Value) else None


def _is_empty(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018  # asking is the only way to know
    except ValueError:
        return True
    return False
