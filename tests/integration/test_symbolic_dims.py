"""Loops, Refs and checkpoints are traced, and differentiated, with one dim that is no number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fiveloop.core as core
from fiveloop.core import tree_leaves
from fiveloop.core.extend import ShapedArray, stage, typecheck
from fiveloop.core.ir.avals import SymbolicDim
from fiveloop.core.primitives.special import tanh
from fiveloop.loops import cond, explain, for_loop, fori_loop, scan, while_loop
from fiveloop.loops.plan.passes import plan
from fiveloop.remat import checkpoint
from fiveloop.state import freeze, new_ref


class Dim(SymbolicDim):
    """An unknown size: any question about the number is an error."""

    __slots__ = ()

    def __mul__(self, other: Any) -> Dim:
        return self

    __rmul__ = __add__ = __radd__ = __mul__

    def __bool__(self) -> bool:
        raise TypeError("a dim that is no number was asked for a bool")

    def __index__(self) -> int:
        raise TypeError("a dim that is no number was asked for a number")


N: Any = Dim()
X = ShapedArray((N, 3), np.float32)
grad: Any = core.grad
untyped_scan: Any = scan


def by_ref(x: Any) -> Any:
    ref = new_ref(x)
    ref[...] *= x
    ref[...] += x
    return freeze(ref)


PROGRAMS: dict[str, Any] = {
    "scan": lambda x: untyped_scan(lambda c, _: (c * x, c.sum()), x, None, length=3)[0],
    "fori": lambda x: fori_loop(0, 3, lambda i, c: c * x, x),
    "for": lambda x: for_loop(3, lambda i, r: r.__setitem__(..., r[...] * 2.0), x),
    "cond": lambda x: cond(x.sum() > 0, lambda y: y * x, lambda y: y, x),
    "checkpoint": lambda x: checkpoint(lambda y: y * y)(x),
    "Ref": by_ref,
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_traced_and_differentiated(program: Any) -> None:
    for fun in (program, grad(lambda x: program(x).sum())):
        jaxpr = stage(lambda x, fun=fun: tree_leaves(fun(x)), [X]).jaxpr
        typecheck(jaxpr)
        assert jaxpr.out_avals[0].shape == (N, 3)


def test_while() -> None:
    def fun(x: Any) -> Any:
        return while_loop(lambda c: c.sum() < 3.0, lambda c: c * 2.0, x)

    jaxpr = stage(lambda x: [fun(x)], [X]).jaxpr
    typecheck(jaxpr)
    assert jaxpr.out_avals[0].shape == (N, 3)


def test_whole_axes_of_an_index() -> None:
    def fun(x: Any) -> Any:
        ref = new_ref(x)
        ref[:, 0] += x[:, 1]
        return freeze(ref)

    jaxpr = stage(lambda x: [fun(x), x[:, 2]], [X]).jaxpr
    typecheck(jaxpr)
    assert [a.shape for a in jaxpr.out_avals] == [(N, 3), (N,)]


def recurrent(x: Any, w: Any, xs: Any) -> Any:
    """A loop whose derivative adds up products."""

    def step(h: Any, x: Any) -> tuple[Any, Any]:
        h = tanh(w @ h + x)
        return h, h

    ys = scan(step, x, xs)[1]
    return (ys * ys).sum()


@pytest.mark.parametrize("width", [3, 32])
@pytest.mark.parametrize("shares", [True, False])
def test_loops_of_a_batch_of_any_size_are_planned(width: int, shares: bool) -> None:
    def weights(x: Any, w: Any, xs: Any) -> Any:
        if shares:
            total = lambda w: core.vmap(recurrent, in_axes=(0, None, 1))(x, w, xs).sum()
            return core.grad(total)(w)
        return core.vmap(core.grad(recurrent, argnums=1), in_axes=(0, 0, 1))(x, w, xs)

    size = Dim()
    shapes: list[Any] = [
        (size, width),
        (width, width) if shares else (size, width, width),
        (5, size, width),
    ]
    avals = [ShapedArray(s, np.float32) for s in shapes]
    jaxpr = stage(lambda *args: tree_leaves(weights(*args)), avals).jaxpr
    typecheck(plan(jaxpr))
    decisions = [d for loop in explain(weights, *avals).loops for d in loop.decisions]
    (told,) = [d for d in decisions if d.step == "sink" and d.subject == "cotangent of w"]
    assert not told.done
