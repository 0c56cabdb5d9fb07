"""Functions that are one primitive: outside of traces they are one call, and some have a simpler derivative.

The value is written in other operations, which is what is compiled. A derivative in terms of the result needs nothing
else, so that nothing else is kept for it; without one, the operations are differentiated.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from fiveloop.core import Jaxpr, Value, ad, ir, rules, trace, transforms
from fiveloop.core.backend import hlo
from fiveloop.core.dataclass import dataclass, replace

OnAxes = Callable[[Value, tuple[int, ...]], Value]
Derivative = Callable[[Value, Value, tuple[int, ...]], Value]


@dataclass(frozen=True)
class AxesParams:
    """The axes that the function works along; none, if it works element by element."""

    axes: tuple[int, ...]


def composite(
    name: str, fun: OnAxes, derivative: Derivative | None = None
) -> ir.Primitive[AxesParams]:
    """A primitive of one operand with the value `fun(x, axes)`.

    Its tangent is `derivative(tangent, result, axes)`, if that is given, else that of what `fun` does.
    """
    prim: ir.Primitive[AxesParams] = ir.Primitive(name)

    @lru_cache(maxsize=256)
    def staged(aval: ir.Aval, axes: tuple[int, ...]) -> Jaxpr:
        return trace.stage_closed(lambda x: [fun(x, axes)], [aval], name)

    def written_out(avals: ir.Avals, p: AxesParams) -> Jaxpr:
        return staged(avals[0], p.axes)

    def lower(ctx: Any, operands: hlo.IRValues, p: AxesParams) -> list[hlo.IRValue]:
        return list(ctx.inline(written_out(ctx.avals_in, p), operands))

    def jvp(primals: ad.Values, tangents: ad.Tangents, p: AxesParams) -> ad.Duals:
        if derivative is None:
            return transforms.jvp_flat(lambda x: [fun(x, p.axes)], primals, tangents)
        out = trace.bind1(prim, *primals, params=p)
        (t,) = tangents
        return [out], [ad.Zero(out.aval) if isinstance(t, ad.Zero) else derivative(t, out, p.axes)]

    def batch(size: int, operands: ad.Values, dims: ad.BatchAxes, p: AxesParams) -> ad.Batched:
        (x,), (dim,) = operands, dims
        assert dim is not None, "unreachable: the one operand is batched"
        shifted = replace(p, axes=tuple(axis + (axis >= dim) for axis in p.axes))
        return [trace.bind1(prim, x, params=shifted)], [dim]

    rules.define(
        prim,
        abstract_eval=rules.pure(lambda avals, p: [avals[0].strong()]),
        lower=lower,
        jvp=jvp,
        batch=batch,
        written_out=written_out,
    )
    return prim
