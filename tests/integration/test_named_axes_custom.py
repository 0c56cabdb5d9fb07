"""Named axes in functions with rules of their own, and in the rules, wherever these run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import custom_jvp, custom_vjp, grad, jit, jvp, make_jaxpr, pmean, psum, vmap
from fiveloop.core.extend import axes_of, rename_axes
from fiveloop.core.ir.axes import batch_axis, with_axes
from fiveloop.core.transforms.batch import batch_jaxpr
from fiveloop.loops import cond, scan
from fiveloop.remat import checkpoint
from fiveloop.testing.core.compare import assert_close
from fiveloop.testing.core.oracle import run_jaxpr

Function = Callable[[Any], Any]
X = np.arange(1.0, 5.0)


@custom_vjp
def backward(x: Any) -> Any:
    return psum(fnp.sin(x), "i")


backward.defvjp(lambda x: (psum(fnp.sin(x), "i"), x), lambda x, ct: (psum(ct, "i") * fnp.cos(x),))


@custom_jvp
def forward(x: Any) -> Any:
    return x * psum(x, "i")


@forward.defjvp
def _(primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    return forward(x), t * psum(x, "i") + x * psum(t, "i")


@custom_vjp
def averaged(x: Any) -> Any:
    """Only the rule talks to the other lanes."""
    return x * x


averaged.defvjp(lambda x: (x * x, x), lambda x, ct: (pmean(2.0 * x * ct, "i"),))

FUNCTIONS: dict[str, tuple[Function, Function]] = {
    "vjp": (backward, lambda x: psum(fnp.sin(x), "i")),
    "jvp": (forward, lambda x: x * psum(x, "i")),
}


def lanes_of(f: Function) -> Function:
    return vmap(f, axis_name="i")


def squares(f: Function) -> Function:
    return lambda x: (f(x) ** 2).sum()


def looped(f: Function) -> Function:
    return lambda a: scan(lambda c, _: (fnp.sin(f(c)), c), a, length=3)[0]


WAYS: dict[str, Callable[[Function], Any]] = {
    "values": lambda f: lanes_of(f)(X),
    "grad inside": lambda f: lanes_of(grad(squares(f)))(X),
    "grad outside": lambda f: grad(squares(lanes_of(f)))(X),
    "jit of grad inside": lambda f: lanes_of(jit(grad(squares(f))))(X),
    "grad outside of jit": lambda f: jit(grad(squares(lanes_of(jit(f)))))(X),
    "scan inside": lambda f: lanes_of(grad(looped(f)))(X),
    "scan outside": lambda f: grad(squares(lanes_of(looped(f))))(X),
    "checkpoint": lambda f: grad(squares(lanes_of(checkpoint(lambda x: fnp.sin(f(x))))))(X),
    "cond": lambda f: grad(squares(lanes_of(lambda x: cond(psum(x, "i") > 0, f, lambda a: a, x))))(
        X
    ),
    "shared inside": lambda f: lanes_of(lambda x: x + grad(f)(2.0))(X),
    "shared outside": lambda f: grad(lambda y: (lanes_of(lambda x: x * f(y))(X)).sum())(2.0),
    "two axes": lambda f: grad(squares(vmap(lanes_of(f), axis_name="j")))(np.stack([X, 2 * X])),
    "hidden": lambda f: grad(squares(lanes_of(lambda x: lanes_of(f)(x * X))))(X),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_rules_talk_to_the_lanes_that_the_function_knows(name: str, way: str) -> None:
    custom, plain = FUNCTIONS[name]
    assert_close(WAYS[way](custom), WAYS[way](plain), scale=100.0)


def test_forward_mode_outside() -> None:
    got = jvp(lanes_of(jit(forward)), (X,), (np.cos(X),))
    want = jvp(lanes_of(FUNCTIONS["jvp"][1]), (X,), (np.cos(X),))
    assert_close(got[1], want[1])


@pytest.mark.parametrize("way", ["grad inside", "grad outside", "grad outside of jit"])
def test_only_the_rule_talks(way: str) -> None:
    want = np.full(4, (4 * X**3).mean())
    assert_close(WAYS[way](averaged), want)


def test_a_renamed_axis_is_still_the_one_that_the_rule_knows() -> None:
    jaxpr = make_jaxpr(jit(lambda x: forward(x) + backward(x)), axis_env=[("i", 4)])(X[0])
    renamed = rename_axes(jaxpr, {"i": "rows"})
    (rows,) = axes_of(renamed.effects)
    assert rows.name == "rows"
    batched, _ = batch_jaxpr(with_axes(renamed, {rows: batch_axis(4)}), 4, (True,))
    want = lanes_of(lambda x: x * psum(x, "i") + psum(fnp.sin(x), "i"))(X)
    assert_close(run_jaxpr(batched, [X])[0], want)


def test_a_pullback_called_under_an_inner_axis_of_the_same_name() -> None:
    def outer(x: Any) -> Any:
        pull = grad(backward)
        return vmap(lambda s: s * pull(x) + psum(0.0 * s, "i"), axis_name="i")(np.ones(2))

    got = vmap(outer, axis_name="i")(X)
    assert np.asarray(got).shape == (4, 2)
    assert_close(got, np.repeat((2 * np.cos(X))[:, None], 2, 1))


@pytest.mark.parametrize("way", [lambda f: f, jit])
def test_what_the_lanes_of_a_rule_share_needs_no_axis(way: Function) -> None:
    """Neither what is computed from it: the rule has it for each lane, but it is the same in all of them."""
    total = vmap(lambda x: 3.0 * backward(x) + 1.0, out_axes=None, axis_name="i")
    assert_close(way(total)(X), 3.0 * np.sin(X).sum() + 1.0)
    assert_close(way(grad(total))(X), 3.0 * np.cos(X))
    shared = lambda w: vmap(lambda x, w: backward(w), (0, None), out_axes=None, axis_name="i")(X, w)
    assert_close(way(shared)(np.float64(2.0)), 4 * np.sin(2.0))
    assert_close(way(grad(shared))(np.float64(2.0)), 4 * np.cos(2.0))
    of_mean: Any = custom_jvp(lambda x: pmean(x * x, "i"))
    rule: Any = lambda p, t: (of_mean(p[0]), pmean(2 * p[0] * t[0], "i"))
    of_mean.defjvp(rule)
    differing: Any = lambda x: of_mean(x) * x
    mean: Any = vmap(of_mean, out_axes=None, axis_name="i")
    assert_close(way(lambda x: jvp(mean, (x,), (x,))[1])(X), 2 * (X * X).mean())
    with pytest.raises(ValueError, match="out_axes is None for a result that depends"):
        way(vmap(differing, out_axes=None, axis_name="i"))(X)
