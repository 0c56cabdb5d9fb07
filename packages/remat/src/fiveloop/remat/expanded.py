"""Functions that XLA:CPU writes out in others before it fuses, and what of that is in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, reduce
from math import log as log_of
from typing import Any

import numpy as np

from fiveloop.core import Jaxpr, Value, arrays, ir, prims, rules, trace
from fiveloop.core.dataclass import replace
from fiveloop.core.ir.indexer import Indexer, Span
from fiveloop.core.primitives import convert, put, running, shape, special, take
from fiveloop.core.primitives import elementwise as e

Fun = Callable[..., Value]


def _halves(x: Value) -> tuple[Value, Value]:
    """Half the exponential of a number, and of its negative."""
    return e.exp(e.add(x, -log_of(2))), e.exp(e.sub(-log_of(2), x))


def _sinh(x: Value) -> Value:
    """Near zero it is written by expm1."""
    up, down = _halves(x)
    if x.dtype.kind == "c":
        return e.sub(up, down)
    less = e.expm1(x)
    near = e.mul(e.add(less, e.div(less, e.add(less, 1))), 0.5)
    return e.select(e.less(e.abs(x), 1), near, e.sub(up, down))


def _log_add_exp(x: Value, y: Value) -> Value:
    """The greater and a series of the rest, of which a few terms stand for all."""
    apart = e.neg(e.abs(e.sub(x, y)))
    rest = e.exp(e.select(e.equal(x, y), e.mul(apart, 0), apart))
    ratio = e.div(rest, e.add(rest, 2))
    square = e.mul(ratio, ratio)
    series = e.add(e.mul(e.add(e.mul(square, 0.4), 0.7), square), 2)
    return e.add(e.maximum(x, y), e.mul(ratio, series))


def _erf_inv(x: Value) -> Value:
    """A polynomial of the logarithm, or of its root, of which one term stands for all."""
    far = e.neg(e.log1p(e.mul(x, e.neg(x))))
    near = e.less(far, 5)
    place = e.select(near, e.sub(far, 2.5), e.sub(e.sqrt(far), 3))
    factor = e.select(near, e.mul(far, 0), e.add(e.mul(far, 0), 1))
    out = e.mul(e.add(e.mul(factor, place), 1), x)
    return e.select(e.equal(e.abs(x), 1), e.mul(x, 2), out)


def _exp(z: Value) -> Value:
    """By the halves of the real part, where its exponential is infinite."""
    re, im = e.real(z), e.imag(z)
    whole, half = e.exp(re), e.exp(e.mul(re, 0.5))

    def part(turn: Value) -> Value:
        large = e.mul(e.mul(half, turn), half)
        return e.select(e.equal(whole, float("inf")), large, e.mul(whole, turn))

    imaginary = part(special.sin(im))
    return e.complex(
        part(special.cos(im)), e.select(e.equal(im, 0), e.mul(imaginary, 0), imaginary)
    )


def _log(z: Value) -> Value:
    """The logarithm of the length by the longer side and the ratio of both, and the angle."""
    re, im = e.real(z), e.imag(z)
    a, b = e.abs(re), e.abs(im)
    long = e.maximum(a, b)
    ratio = e.div(e.minimum(a, b), long)
    return e.complex(
        e.add(e.log(long), e.mul(e.log1p(e.mul(ratio, ratio)), 0.5)), special.atan2(im, re)
    )


REAL: dict[str, Fun] = {
    "sinh": _sinh,
    "cosh": lambda x: e.add(*_halves(x)),
    "logaddexp": _log_add_exp,
    "erf_inv": _erf_inv,
}
"""Functions of real numbers as XLA writes them out."""

COMPLEX: dict[str, Fun] = {
    "exp": _exp,
    "sinh": _sinh,
    "cosh": lambda x: e.add(*_halves(x)),
    "log": _log,
    "log1p": _log,
    "atan": _log,
    "atanh": _log,
    "conj": lambda z: e.complex(e.real(z), e.neg(e.imag(z))),
}
"""The same of complex numbers; other logarithms are fused as the plain one is."""

SCRATCH = {"sqrt": 3, "rsqrt": 3, "asin": 8, "acos": 8, "asinh": 8, "acosh": 9}
"""How many arrays of real numbers a function of complex ones keeps in memory beside its operand and its result."""


def expanded(eqn: ir.Eqn) -> Jaxpr | None:
    """What XLA writes in place of an equation, if it is such a function of arrays, of four bytes or more."""
    avals = tuple(a.aval for a in eqn.invars)
    if isinstance(eqn.params, running.CumulativeParams):
        return _in_full(eqn.primitive, eqn.params, avals)
    if len(eqn.outvars) != 1 or not avals or avals[0].dtype.itemsize < 4:
        return None
    fun = (COMPLEX if avals[0].dtype.kind == "c" else REAL).get(eqn.primitive.name)
    return None if fun is None else _staged(fun, avals)


def row_loop(eqn: ir.Eqn) -> rules.Body | None:
    """The loop over rows that computes running results, if an equation gives such: each is written over its element.

    jaxpr : [place, *other operands, last result, operand] -> [result, operand]
    """
    if not isinstance(eqn.params, running.CumulativeParams) or 0 in eqn.outvars[0].aval.shape:
        return None
    return _row_loop(eqn.params.axis, tuple(a.aval for a in eqn.invars))


@lru_cache(maxsize=256)
def _row_loop(axis: int, avals: Sequence[ir.Aval]) -> rules.Body:
    def step(i: Value, *given: Value) -> list[Value]:
        *others, last, x = given
        parts = [y[i] for y in (*others, x)]
        new = reduce(e.add, parts, last)
        return [new, x.at[i].set(new)]

    n, *row = avals[0].shape[axis], *avals[0].shape[:axis], *avals[0].shape[axis + 1 :]
    whole = ir.ShapedArray((n, *row), avals[0].dtype)
    given = [*[whole] * (len(avals) - 1), ir.ShapedArray(tuple(row), whole.dtype), whole]
    jaxpr = trace.stage_closed(step, [ir.ShapedArray((), np.dtype(np.int32)), *given], "rows")
    return rules.Body(jaxpr, "loop", n, carry=len(avals))


@lru_cache(maxsize=256)
def _in_full(prim: ir.Primitive[Any], params: Any, avals: Sequence[ir.Aval]) -> Jaxpr | None:
    """Running results of half precision: in full precision, and what is converted."""
    dtype, wide = avals[0].dtype, arrays.wide_for_sums(avals[0].dtype)
    if dtype == wide:
        return None

    def run(*xs: Value) -> list[Value]:
        given = [convert.convert(x, wide) for x in xs]
        return [convert.convert(trace.bind1(prim, *given, params=params), dtype)]

    return trace.stage_closed(run, avals, "expanded")


def scaled(eqn: ir.Eqn, spread: ir.Eqn) -> Jaxpr:
    """A product with repeated elements and with a number, for which 2 stands: these are multiplied by it first.

    jaxpr : [operand, elements] -> [product]
    """
    (small,), (out,) = spread.invars, eqn.outvars
    return _scaled(out.aval, small.aval, spread.params)


@lru_cache(maxsize=256)
def _scaled(out: ir.Aval, small: ir.Aval, repeated: Any) -> Jaxpr:
    def run(x: Value, y: Value) -> list[Value]:
        return [e.mul(x, trace.bind1(prims.broadcast_in_dim_p, e.mul(y, 2), params=repeated))]

    return trace.stage_closed(run, [out, small], "scaled")


def negated(eqn: ir.Eqn) -> Jaxpr:
    """A sum of negative numbers: the sum is negated.

    jaxpr : [operand] -> [sum]
    """
    return _negated(eqn.primitive, eqn.params, eqn.invars[0].aval)


@lru_cache(maxsize=256)
def _negated(prim: ir.Primitive[Any], params: Any, aval: ir.Aval) -> Jaxpr:
    def run(x: Value) -> list[Value]:
        return [e.neg(trace.bind1(prim, x, params=params))]

    return trace.stage_closed(run, [aval], "negated")


def at_once(eqn: ir.Eqn, first: ir.Eqn) -> Jaxpr:
    """A reduction of what another one gives: along the axes of both.

    jaxpr : [operand of the first] -> [result]
    """
    aval = first.invars[0].aval
    kept = [k for k in range(aval.ndim) if k not in first.params.axes]
    axes = *first.params.axes, *[kept[k] for k in eqn.params.axes]
    return _at_once(eqn.primitive, replace(eqn.params, axes=tuple(sorted(axes))), aval)


@lru_cache(maxsize=256)
def _at_once(prim: ir.Primitive[Any], params: Any, aval: ir.Aval) -> Jaxpr:
    return trace.stage_closed(lambda x: [trace.bind1(prim, x, params=params)], [aval], "at once")


def between(eqn: ir.Eqn) -> Jaxpr:
    """A block with gaps that is written: with the old elements in the gaps, which a mask selects.

    jaxpr : [array, elements, *positions] -> [array]
    """
    return _between(eqn.params.indexer, tuple(a.aval for a in eqn.invars))


@lru_cache(maxsize=256)
def _between(indexer: Indexer, avals: Sequence[ir.Aval]) -> Jaxpr:
    spans = indexer.spans
    entries = [Span(s.start if s.start is None else s.low, s.extent) for s in spans]
    block = replace(indexer, entries=tuple(entries), new_axes=())
    none, gaps = [0] * len(spans), [abs(s.stride) - 1 for s in spans]

    def run(x: Value, v: Value, *positions: Value) -> list[Value]:
        v = prims.reshape(v, [s.size for s in spans])
        mask = shape.pad(prims.full(v.shape, True), False, none, none, gaps)
        padded = shape.pad(v, np.zeros((), v.dtype), none, none, gaps)
        old = take.take(x, block, positions)
        return [put.put(x, e.select(mask, padded, old), block, positions)]

    return trace.stage_closed(run, avals, "between")


@lru_cache(maxsize=256)
def _staged(fun: Fun, avals: Sequence[ir.Aval]) -> Jaxpr:
    return trace.stage_closed(lambda *xs: [fun(*xs)], avals, "expanded")


def scratch(eqn: ir.Eqn) -> ir.Aval | None:
    """The type of what a function of complex numbers keeps in memory beside its operand and its result."""
    num = SCRATCH.get(eqn.primitive.name)
    if num is None or eqn.outvars[0].aval.dtype.kind != "c":
        return None
    shape = eqn.outvars[0].aval.shape
    return ir.ShapedArray((num, *shape), arrays.real_dtype(eqn.outvars[0].aval.dtype))
