"""A Ref that is not differentiated: writes store values and drop tangents, reads have none, in every transform."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import (
    closed_call,
    custom_jvp,
    custom_vjp,
    grad,
    hessian,
    jit,
    jvp,
    make_jaxpr,
    vmap,
)
from fiveloop.loops import cond, fori_loop, scan, while_loop
from fiveloop.remat import checkpoint
from fiveloop.state import accumulate, addupdate, freeze, new_ref, swap
from fiveloop.testing.core.misuse import assert_misuse

X = np.linspace(0.2, 0.9, 4)
Way = Callable[[Callable[[Any], Any]], Callable[[Any], Any]]
Step = Callable[[Any, Any, Any], Any]


def plainly(log: Any, i: Any, x: Any) -> Any:
    log[i] = x
    return log[i] * x


def summed(log: Any, i: Any, x: Any) -> Any:
    log[i] += x
    addupdate(log, i, x * 2.0)
    accumulate(log, i, x, "max")
    return swap(log, i, x) * x


def in_a_part(log: Any, i: Any, x: Any) -> Any:
    part = log.at[i : i + 1] if isinstance(i, int) else log.at[i]
    part[...] = x
    return fnp.sum(part[...]) * x


def in_a_call(log: Any, i: Any, x: Any) -> Any:
    return closed_call(lambda x: plainly(log, i, x))(x) + jit(lambda x: plainly(log, i, x))(x)


def in_a_branch(log: Any, i: Any, x: Any) -> Any:
    return cond(x > 0.0, lambda: plainly(log, i, x), lambda: x)


def in_a_checkpoint(log: Any, i: Any, x: Any) -> Any:
    return checkpoint(lambda x: plainly(log, i, fnp.sin(x)))(x)


def in_a_scan(log: Any, i: Any, x: Any) -> Any:
    return scan(lambda c, _: (plainly(log, i, c), c), x, None, length=2)[0]


def in_a_rule(log: Any, i: Any, x: Any) -> Any:
    @custom_jvp
    def f(x: Any) -> Any:
        return plainly(log, i, x)

    f.defjvp(lambda p, t: (f(*p), 3.0 * t[0]))
    return f(x)


# of each step: what it gives of x, and its derivative, in which what is read is a constant
STEPS: dict[Step, tuple[Callable[[float], float], Callable[[float], float]]] = {
    plainly: (lambda x: x * x, lambda x: x),
    summed: (lambda x: 3 * x * x, lambda x: 3 * x),
    in_a_part: (lambda x: x * x, lambda x: x),
    in_a_call: (lambda x: 2 * x * x, lambda x: 2 * x),
    in_a_branch: (lambda x: x * x, lambda x: x),
    in_a_checkpoint: (lambda x: np.sin(x) ** 2, lambda x: np.sin(x) * np.cos(x)),
    in_a_scan: (lambda x: x**4, lambda x: x**3),
    in_a_rule: (lambda x: x * x, lambda x: 3.0),
}


def looped(step: Step, log: Any, x: Any) -> Any:
    return fori_loop(0, 3, lambda i, c: step(log, i, c), x)


def once(step: Step, log: Any, x: Any) -> Any:
    return step(log, 1, x)


WAYS: dict[str, Way] = {
    "grad": grad,
    "jit": lambda f: jit(grad(f)),
    "jvp": lambda f: lambda x: jvp(f, (x,), (np.ones(()),))[1],
    "of a call": lambda f: grad(closed_call(f)),
}


def wanted(step: Step, count: int, x: float) -> float:
    value, slope = STEPS[step]
    out = 1.0
    for _ in range(count):
        x, out = value(x), out * slope(x)
    return out


@pytest.mark.parametrize(("how", "count"), [(once, 1), (looped, 3)])
@pytest.mark.parametrize("step", STEPS)
def test_no_derivative_flows_through_the_log(step: Step, how: Any, count: int) -> None:
    def inside(x: Any) -> Any:
        return how(step, new_ref(fnp.zeros(4, np.float64), differentiable=False), x)

    want = [wanted(step, count, x) for x in X.tolist()]
    for way in WAYS.values():
        np.testing.assert_allclose(float(way(inside)(X[1])), want[1])
    np.testing.assert_allclose(np.asarray(vmap(grad(inside))(X)), want)
    plain = new_ref(np.zeros(4))
    how(step, plain, X[1])
    for way in WAYS.values():
        log = new_ref(np.zeros(4), differentiable=False)
        way(partial(how, step, log))(X[1])
        np.testing.assert_allclose(np.asarray(log[...]), np.asarray(plain[...]))


def test_what_it_is_made_from_and_what_it_ends_as_have_no_derivative() -> None:
    def f(x: Any) -> Any:
        log = new_ref(x, differentiable=False)
        log[0] *= 2.0
        return (freeze(log) * x).sum()

    np.testing.assert_allclose(np.asarray(grad(f)(X)), X * [2, 1, 1, 1])
    np.testing.assert_allclose(np.asarray(jit(grad(f))(X)), X * [2, 1, 1, 1])
    np.testing.assert_allclose(np.asarray(hessian(f)(X)), 0.0)


def test_in_a_while_and_beside_a_ref_that_is_differentiated() -> None:
    def f(x: Any) -> Any:
        log, kept = new_ref(x, differentiable=False), new_ref(x)

        def body(k: Any) -> Any:
            log[...] *= x
            kept[...] *= x
            return k + 1

        while_loop(lambda k: k < 2, body, 0)
        return log[...] * kept[...]

    np.testing.assert_allclose(float(jvp(f, (0.5,), (1.0,))[1]), 0.5**3 * 3 * 0.5**2)


def test_an_argument_of_a_function_with_a_rule() -> None:
    @custom_vjp
    def f(log: Any, x: Any) -> Any:
        log[0] = x
        return x * x

    def fwd(log: Any, x: Any) -> tuple[Any, Any]:
        return f(log, x), x

    f.defvjp(fwd, lambda x, ct: (None, 5.0 * x * ct))
    log = new_ref(np.zeros(4), differentiable=False)
    for way in (grad, lambda f: jit(grad(f))):
        assert float(way(lambda x: f(log, x))(2.0)) == 10.0
        assert float(log[0]) == 2.0


def test_how_it_shows_and_travels() -> None:
    log = new_ref(np.zeros(2, np.float32), differentiable=False)
    assert str(log.aval) == "Ref{f32[2], not differentiated}"
    assert "new_ref[differentiable=False]" in str(
        make_jaxpr(lambda x: freeze(new_ref(x, differentiable=False)))(X)
    )
    again = pickle.loads(pickle.dumps(log))
    assert again.aval is log.aval
    assert log.at[0].aval.differentiable is False
    tree = new_ref({"a": X, "b": 1}, differentiable=False)
    assert not tree["a"].aval.differentiable  # type: ignore[attr-defined]  # a Ref in the place of the array


def test_bad_use() -> None:
    assert_misuse(
        lambda: new_ref(X, differentiable=3),  # type: ignore[call-overload]  # that is the point
        TypeError,
        "new_ref: differentiable must be a bool, got 3",
    )
    log = new_ref(X, differentiable=False)
    assert_misuse(
        lambda: grad(lambda r: r[0])(log),
        TypeError,
        "grad of <lambda>: argument `r` must be floating to be differentiated, got "
        "Ref{f64[4], not differentiated}; convert it first, or leave it out of argnums",
    )
