"""What lanes share, in branches that not all of them take: no cotangent comes from a lane that has not taken one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiveloop.core import closed_call, custom_jvp, grad, hessian, jit, jvp, make_jaxpr, psum, vmap
from fiveloop.core.primitives.elementwise import exp, log, sqrt
from fiveloop.core.primitives.special import sin
from fiveloop.loops import cond, for_loop, fori_loop, scan, switch
from fiveloop.state import freeze, new_ref

WAYS: Any = ["select", "serial", "group"]
W = np.array([1.0, 2.0, 3.0])
XS = np.array([0.0, 2.0, -1.0, 0.0, 4.0])
NONE = np.array([0.0, -1.0, 0.0])


@custom_jvp
def log_of(x: Any) -> Any:
    return log(x)


log_of.defjvp(lambda xs, dots: (log(xs[0]), dots[0] / xs[0]))  # type: ignore[attr-defined,unused-ignore]


def from_a_ref(x: Any, w: Any) -> Any:
    r = new_ref(x)
    return (w / r[...]).sum()


def in_a_loop(x: Any, w: Any) -> Any:
    return fori_loop(0, 3, lambda i, y: y * w[i] / x, 1.0 * x)


def over_refs(x: Any, w: Any) -> Any:
    def body(i: Any, r: Any) -> None:
        r[i] = w[i] * log(x) + r[i - 1]

    return for_loop(3, body, w * 0.5).sum()


def of_a_choice(x: Any, w: Any) -> Any:
    return cond(x > 3, lambda: (w * sqrt(x - 3)).sum(), lambda: (w**2 / x).sum())


RISKY: list[Callable[[Any, Any], Any]] = [
    lambda x, w: (w / x).sum(),
    lambda x, w: (w * log(x)).sum(),
    lambda x, w: sin(w * x**-0.5) @ (w / x),
    lambda x, w: ((w[:, None] * w) @ (log(x) * np.ones(3))).sum(),
    lambda x, w: closed_call(lambda x, w: (w / x).sum())(x, w),
    lambda x, w: (log_of(x) * w).sum(),
    from_a_ref,
    in_a_loop,
    over_refs,
    of_a_choice,
]


def one_lane(risky: Any, way: Any) -> Callable[[Any, Any], Any]:
    return lambda x, w: cond(x > 0, lambda: risky(x, w), lambda: x * 2.0, vmap=way)


@pytest.mark.parametrize("xs", [XS, NONE], ids=["some", "none"])
@pytest.mark.parametrize("risky", RISKY)
def test_what_lanes_share_takes_nothing_from_a_lane_not_taken(risky: Any, xs: Any) -> None:
    one = one_lane(risky, "select")
    total = lambda xs, w: vmap(one, (0, None))(xs, w).sum()
    got = jit(grad(total, argnums=(0, 1)))(xs, W)
    lanes = [jit(grad(one, argnums=(0, 1)))(x, W) for x in xs]
    np.testing.assert_allclose(np.asarray(got[0]), [float(x) for x, _ in lanes], rtol=1e-10)
    np.testing.assert_allclose(np.asarray(got[1]), sum(np.asarray(w) for _, w in lanes), rtol=1e-10)


@pytest.mark.parametrize("way", WAYS)
def test_second_derivatives(way: Any) -> None:
    one = one_lane(RISKY[2], way)
    got = jit(hessian(lambda w: vmap(one, (0, None))(XS, w).sum()))(W)
    want = sum(np.asarray(jit(hessian(one, argnums=1))(x, W)) for x in XS)
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-9)


@pytest.mark.parametrize("way", WAYS)
def test_batches_within_batches(way: Any) -> None:
    """In some of the outer lanes no inner one takes the branch; `v` is of the outer lanes."""
    one = lambda x, v, w: cond(x > 0, lambda: (w * v / x).sum(), lambda: x, vmap=way)
    inner = vmap(one, (0, None, None))
    xs, vs = np.array([[0.0, 2.0], [0.0, 0.0], [-1.0, 0.5]]), np.array([1.0, -2.0, 0.5])

    def total(v: Any, w: Any) -> Any:
        return vmap(inner, (0, 0, None))(xs, v, w).sum()

    v_bar, w_bar = jit(grad(total, argnums=(0, 1)))(vs, W)
    np.testing.assert_allclose(np.asarray(v_bar), [W.sum() / 2.0, 0.0, W.sum() / 0.5])
    np.testing.assert_allclose(np.asarray(w_bar), np.full(3, vs[0] / 2.0 + vs[2] / 0.5))
    printed = str(make_jaxpr(lambda v, w: vmap(inner, (0, 0, None))(xs, v, w))(vs, np.ones(77)))
    assert "[77]" in printed
    assert "= follow" in printed or way != "select"


def test_an_array_that_lanes_share_stays_one() -> None:
    one = lambda x, w: cond(x[0] > 0, lambda: w @ log(x), lambda: x)
    two = vmap(vmap(one, (0, None)), (0, None))
    xs, w = np.ones((4, 6, 9)), np.ones((9, 9))
    for f in (two, lambda xs, w: jvp(lambda w: two(xs, w), (w,), (w,))[1]):
        printed = str(make_jaxpr(f)(xs, w))
        assert "[9,9]" in printed
        assert ",9,9]" not in printed
    xs[1] = -1.0
    bar = jit(grad(lambda w: two(xs, w).sum()))(w)
    np.testing.assert_array_equal(np.asarray(bar), np.zeros((9, 9)))


@pytest.mark.parametrize("way", WAYS)
def test_a_ref_that_lanes_share(way: Any) -> None:
    def total(w: Any) -> Any:
        r = new_ref(w)
        one = lambda x: cond(x > 0, lambda: r[0] / x + r[1] * r[2], lambda: x, vmap=way)
        return vmap(one)(XS).sum() + freeze(r).sum()

    bar = jit(grad(total))(W)
    np.testing.assert_allclose(np.asarray(bar), [1 + 0.5 + 0.25, 1 + 2 * 3.0, 1 + 2 * 2.0])


@pytest.mark.parametrize("way", WAYS)
def test_a_table_read_at_indices_of_lanes(way: Any) -> None:
    ks, table = np.array([0, 1, 2, 1]), np.array([2.0, 0.0, 4.0])

    def one(k: Any, table: Any) -> Any:
        return switch(k, [lambda: log(table[k]), lambda: table[2], lambda: exp(table[k])], vmap=way)

    bar = jit(grad(lambda t: vmap(one, (0, None))(ks, t).sum()))(table)
    np.testing.assert_allclose(np.asarray(bar), [0.5, 0.0, 2.0 + np.exp(4.0)])


@pytest.mark.parametrize("way", WAYS)
def test_in_a_scan(way: Any) -> None:
    def total(w: Any) -> Any:
        def step(x: Any, _: Any) -> Any:
            one = lambda x: cond(x > 0.5, lambda: (w / x).sum(), lambda: x * 0.0, vmap=way)
            return vmap(one)(x), None

        return scan(step, XS, length=2)[0].sum()

    bar = jit(grad(total))(W)
    # Two steps of x -> s / x give x back.
    np.testing.assert_allclose(np.asarray(bar), np.zeros(3), atol=1e-12)


def test_lanes_that_end_early_give_nothing() -> None:
    """A lane that has ended steps on in vain, here from zero."""

    def run(x: Any, w: Any) -> Any:
        step = lambda c, _: ((c - 1.0) * (w / c).sum() / w.sum() * c, None)
        return scan(step, x, length=4, until=lambda c: c <= 0)[0]

    xs = np.array([1.0, 3.0, 2.0])
    bar = jit(grad(lambda w: vmap(run, (0, None))(xs, w).sum()))(W)
    want = sum(np.asarray(jit(grad(run, argnums=1))(x, W)) for x in xs)
    np.testing.assert_allclose(np.asarray(bar), want, atol=1e-12)
    assert np.isfinite(np.asarray(bar)).all()


def test_lanes_that_communicate_have_values_of_their_own() -> None:
    def one(x: Any, w: Any) -> Any:
        return cond(x > 0, lambda: (w * psum(x, "lanes")).sum(), lambda: x)

    got = vmap(one, (0, None), axis_name="lanes")(XS, W)
    np.testing.assert_allclose(np.asarray(got), np.where(XS > 0, W.sum() * XS.sum(), XS))
