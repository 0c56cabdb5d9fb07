"""A package of somebody else's: two primitives, a container and a policy, with public names alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from fiveloop.core import ArrayLike, Jaxpr, Value, register_dataclass
from fiveloop.core.extend import (
    Aval,
    Body,
    Effects,
    Eqn,
    Primitive,
    Tangent,
    Zero,
    as_value,
    bind,
    bind1,
    call_abstract_eval,
    call_batch,
    call_dce,
    call_jvp,
    call_split,
    call_transpose,
    define,
    hlo,
    pure,
    stage,
)
from fiveloop.state.extend import call_discharge, define_discharge

# a first-order primitive


@dataclass(frozen=True)
class LeakyParams:
    """The slope below zero."""

    slope: float


leaky_p: Primitive[LeakyParams] = Primitive("leaky")


def leaky(x: ArrayLike, slope: float = 0.25) -> Value:
    """`x` where it is positive, `slope * x` elsewhere."""
    return bind1(leaky_p, as_value(x, "leaky: x"), params=LeakyParams(slope))


def _types(avals: Sequence[Aval], p: LeakyParams) -> list[Aval]:
    return [avals[0].strong()]


def _lower(ctx: Any, operands: Sequence[Any], p: LeakyParams) -> list[Any]:
    (x,) = operands
    slope = hlo.constant(ctx.b, p.slope, x.shape, x.dtype)
    return [hlo.max(ctx.b, x, hlo.mul(ctx.b, x, slope))]


def _jvp(
    primals: Sequence[Value], tangents: Sequence[Tangent], p: LeakyParams
) -> tuple[list[Value], list[Tangent]]:
    (x,), (t,) = primals, tangents
    out = leaky(x, p.slope)
    if isinstance(t, Zero):
        return [out], [Zero(out.aval)]
    positive = (x > 0).astype(x.dtype)
    return [out], [t * (positive + (1 - positive) * p.slope)]


def _batch(
    size: int, operands: Sequence[Value], dims: Sequence[int | None], p: LeakyParams
) -> tuple[list[Value], list[int | None]]:
    (x,) = operands
    return [leaky(x, p.slope)], list(dims)


define(leaky_p, abstract_eval=pure(_types), lower=_lower, jvp=_jvp, batch=_batch)


# a higher-order primitive, with a lowering of its own


@dataclass(frozen=True)
class TracedParams:
    """The jaxpr that is called, under a name."""

    jaxpr: Jaxpr
    name: str


region_p: Primitive[TracedParams] = Primitive("region")
lowered: list[str] = []


def region(fun: Callable[..., Value], name: str) -> Callable[..., Value]:
    """A function of arrays that is one equation; its operations are written in place, and its name is noted."""

    def call(*args: ArrayLike) -> Value:
        values = [as_value(x, f"region {name}") for x in args]
        staged = stage(lambda *xs: [fun(*xs)], [x.aval for x in values], name, fun)
        params = TracedParams(staged.jaxpr, name)
        return bind(region_p, *staged.captured, *values, params=params)[0]

    return call


def _region_types(avals: Sequence[Aval], p: TracedParams) -> tuple[list[Aval], Effects]:
    return call_abstract_eval(avals, p)


def _region_lower(ctx: Any, operands: Sequence[Any], p: TracedParams) -> list[Any]:
    lowered.append(p.name)
    return list(ctx.inline(p.jaxpr, operands))


define(
    region_p,
    abstract_eval=_region_types,
    lower=_region_lower,
    jvp=partial(call_jvp, region_p),
    batch=partial(call_batch, region_p),
    transpose=partial(call_transpose, region_p),
    split=call_split,
    dce=call_dce,
    bodies=lambda p: [Body(p.jaxpr, "region")],
)
define_discharge(region_p, partial(call_discharge, region_p))


# a container


@dataclass
class Layer:
    """Weights, and a slope that belongs to the structure."""

    weight: Any
    slope: float


register_dataclass(Layer, ["weight"], ["slope"])


# a policy


@dataclass(frozen=True)
class OnlyLeaky:
    """Save what the primitive of this package computes, and nothing else."""

    def __call__(self, eqn: Eqn) -> bool:
        return eqn.primitive is leaky_p
