"""Functions that are one primitive, because their derivative is simplest in terms of their result.

The value is written in other operations, which is what is compiled; the derivative needs only the result, so
that nothing else is kept for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from fiveloop.core import Jaxpr, Value, jaxpr_cost
from fiveloop.core.extend import (
    Aval,
    IRValue,
    Primitive,
    Tangent,
    Zero,
    bind1,
    define,
    pure,
    stage_closed,
)

OnAxes = Callable[[Value, tuple[int, ...]], Value]
Derivative = Callable[[Value, Value, tuple[int, ...]], Value]


@dataclass(frozen=True)
class AxesParams:
    """The axes that the function works along; none, if it works element by element."""

    axes: tuple[int, ...]


def composite(name: str, fun: OnAxes, derivative: Derivative) -> Primitive[AxesParams]:
    """A primitive of one operand with the value `fun(x, axes)` and the tangent `derivative(tangent, result, axes)`."""
    prim: Primitive[AxesParams] = Primitive(name)

    @lru_cache(maxsize=256)
    def written_out(aval: Aval, axes: tuple[int, ...]) -> Jaxpr:
        return stage_closed(lambda x: [fun(x, axes)], [aval], name)

    def lower(ctx: Any, operands: Sequence[IRValue], p: AxesParams) -> list[IRValue]:
        return list(ctx.inline(written_out(ctx.avals_in[0], p.axes), operands))

    def jvp(
        primals: Sequence[Value], tangents: Sequence[Tangent], p: AxesParams
    ) -> tuple[list[Value], list[Tangent]]:
        out = bind1(prim, *primals, params=p)
        (t,) = tangents
        return [out], [Zero(out.aval) if isinstance(t, Zero) else derivative(t, out, p.axes)]

    def batch(
        size: int, operands: Sequence[Value], dims: Sequence[int | None], p: AxesParams
    ) -> tuple[list[Value], list[int | None]]:
        (x,), (dim,) = operands, dims
        assert dim is not None, "unreachable: the one operand is batched"
        shifted = replace(p, axes=tuple(axis + (axis >= dim) for axis in p.axes))
        return [bind1(prim, x, params=shifted)], [dim]

    define(
        prim,
        abstract_eval=pure(lambda avals, p: [avals[0].strong()]),
        lower=lower,
        jvp=jvp,
        batch=batch,
        cost=lambda avals, p: jaxpr_cost(written_out(avals[0], p.axes)),
    )
    return prim
