"""What steps add to the same few elements has a sum for each element; anything else stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiveloop.core import grad, jit, jvp, make_jaxpr, vmap
from fiveloop.core.primitives.elementwise import mul as multiply
from fiveloop.core.primitives.special import sin
from fiveloop.core.transforms import typecheck
from fiveloop.loops import cond, explain, for_loop, planning, scan
from fiveloop.loops.plan.passes import plan
from fiveloop.state import new_ref
from fiveloop.testing.core.gradcheck import check_grads
from fiveloop.testing.core.samples import sample
from fiveloop.testing.loops.laws import check_law_planning

N = 9
RNG = np.random.default_rng(0)
X: Any = RNG.normal(size=N)
Y: Any = RNG.normal(size=3)
TABLE: Any = RNG.normal(size=(2, 2))

Body = Callable[[Any, Any], Any]


def adding(body: Callable[[Any, Any, Any], None], y: Any = Y, n: int = N, **options: Any) -> Any:
    def run(x: Any) -> Any:
        x = multiply(x, 1.0)
        return for_loop(n, lambda i, r: body(i, r, x), y * x[0], **options)

    return run


def two(i: Any, r: Any, x: Any) -> None:
    r[0] += x[i]
    r[-1] += sin(x[i])


def again(i: Any, r: Any, x: Any) -> None:
    r[1] += x[i]
    r[1:2] += sin(x[i])


def in_branches(i: Any, r: Any, x: Any) -> None:
    def more(r: Any) -> None:
        r[0] += x[i]

    def other(r: Any) -> None:
        r[2] += 2 * x[i]

    cond(x[i] > 0, lambda: more(r), lambda: other(r))


def in_an_inner_loop(i: Any, r: Any, x: Any) -> None:
    for_loop(4, lambda j, _: two(j, r, x * x[i]), ())


def in_a_call(i: Any, r: Any, x: Any) -> None:
    r[2] += jit(lambda: x[i] * 2)()


def corners(i: Any, r: Any, x: Any) -> None:
    r[0, 1] += x[i]
    r[1, 0] += 2 * x[i]


def read_too(i: Any, r: Any, x: Any) -> None:
    r[0] += x[i] * r[1]


def whole_too(i: Any, r: Any, x: Any) -> None:
    two(i, r, x)
    r[...] += x[:3]


def a_slice(i: Any, r: Any, x: Any) -> None:
    r[0:2] += x[i]


def at_the_counter(i: Any, r: Any, x: Any) -> None:
    two(i, r, x)
    r[i % 3] += x[i]


SUMS: dict[str, tuple[Callable[[Any], Any], int]] = {
    "two": (adding(two), 2),
    "twice the same": (adding(again), 1),
    "downward": (adding(two, reverse=True), 2),
    "several steps a turn": (adding(two, unroll=4), 2),
    "branches": (adding(in_branches), 2),
    "an inner loop": (adding(in_an_inner_loop), 2),
    "a call": (adding(in_a_call), 1),
    "two axes": (adding(corners, TABLE), 2),
    "two steps": (adding(two, n=2), 2),
    "one step": (adding(two, n=1), 0),
    "no step": (adding(two, n=0), 0),
    "read": (adding(read_too), 0),
    "whole": (adding(whole_too), 0),
    "a slice": (adding(a_slice), 0),
    "at the counter": (adding(at_the_counter), 0),
}


def loops_in(fun: Any, *args: Any) -> Any:
    planned = plan(make_jaxpr(fun)(*args))
    typecheck(planned)
    return [e for e in planned.eqns if e.primitive.name == "for"]


def scalar_operands(fun: Any) -> int:
    return sum(not a.aval.shape for e in loops_in(fun, X) for a in e.invars)


@pytest.mark.parametrize("name", SUMS)
def test_each_element_has_a_sum(name: str) -> None:
    fun, count = SUMS[name]
    with planning(scalars=False):
        without = scalar_operands(fun)
    assert scalar_operands(fun) - without == count


@pytest.mark.parametrize("name", SUMS)
def test_values_and_derivatives_are_the_same(name: str) -> None:
    fun = SUMS[name][0]
    loss = lambda x: (fun(x) ** 2).sum()
    forms = [
        fun,
        grad(loss),
        lambda x: jvp(grad(loss), (x,), (x,))[1],
        lambda x: vmap(fun)(x * np.ones((3, 1))),
    ]
    together = lambda x: [form(x) for form in forms]
    with planning(False):
        plain = sample(together, X).run()
    for got, want in zip(jit(together)(X), plain, strict=True):
        np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-12, atol=1e-14)
    check_grads(loss, (X,), order=1)
    check_law_planning(sample(grad(loss), X))


def test_a_ref_outside_the_loop_gets_the_totals() -> None:
    def outside(x: Any) -> Any:
        ref = new_ref(Y)
        for_loop(N, lambda i, _: two(i, ref, x), ())
        return ref[...]

    want = Y + np.asarray([X.sum(), 0, np.sin(X).sum()])
    np.testing.assert_allclose(np.asarray(jit(outside)(X)), want, rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.int32, np.float32, np.complex64])
def test_any_dtype(dtype: Any) -> None:
    x = np.arange(N).astype(dtype)

    def run(x: Any) -> Any:
        def body(i: Any, r: Any) -> None:
            r[1] += x[i]

        return for_loop(N, body, x[:3])

    got = np.asarray(jit(run)(x))
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, np.asarray([0, 37, 2], dtype))


def filtered(p: Any) -> Any:
    """The cotangents of two parameters that each step reads."""

    def step(h: Any, x: Any) -> Any:
        h = sin(p[0] * h + p[1] * x)
        return h, h

    return scan(step, X[0], X)[1].sum()


def test_it_is_told() -> None:
    backward = explain(grad(filtered), Y).loops[1]
    decision = backward.decision("scalars", "cotangent of p")
    assert decision.done
    assert "each has a sum of its own" in decision.reason
    assert {"cotangent of p[0]", "cotangent of p[1]"} <= {o.name for o in backward.operands}


def test_more_elements_stay_together() -> None:
    def body(i: Any, r: Any) -> None:
        for k in range(5):
            r[k] += X[0] * i

    decision = explain(lambda r: for_loop(N, body, r), X).loops[0].decision("scalars", "state")
    assert not decision.done
    assert "there are 5 of them, more than 4" in decision.reason
