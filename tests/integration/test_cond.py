"""cond and switch: values, derivatives, batches, Refs; what is not taken leaves no trace."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import closed_call, eval_shape, grad, jit, jvp, linearize, make_jaxpr, vjp, vmap
from fiveloop.core.testing.gradcheck import check_grads
from fiveloop.core.testing.laws import check_laws
from fiveloop.core.testing.misuse import assert_misuse
from fiveloop.core.testing.samples import sample
from fiveloop.loops import cond, for_loop, scan, switch, while_loop
from fiveloop.loops.testing import references
from fiveloop.state import freeze, new_ref
from fiveloop.state.testing.laws import check_law_discharge

assert references.__name__

XS = np.array([0.5, -0.5, 2.0, -1.5])
W = np.array([1.5, -2.0, 0.25])


def smooth(x: Any) -> Any:
    """sin(x) * x above zero, x ** 3 below."""
    return cond(x > 0, lambda: fnp.sin(x) * x, lambda: x**3)


def smooth_by_hand(x: Any) -> Any:
    return np.where(x > 0, np.sin(x) * x, x**3)


def smooth_slope(x: Any) -> Any:
    return np.where(x > 0, np.cos(x) * x + np.sin(x), 3 * x**2)


# values


@pytest.mark.parametrize("way", [lambda f: f, jit, closed_call])
@pytest.mark.parametrize("x", XS)
def test_one_branch_runs(way: Callable[[Any], Any], x: float) -> None:
    np.testing.assert_allclose(float(way(smooth)(x)), smooth_by_hand(x), rtol=1e-6)


@pytest.mark.parametrize("pred", [True, np.bool_(True), np.array(True), fnp.array(True)])
def test_a_predicate_is_one_bool(pred: Any) -> None:
    assert int(cond(pred, lambda: 1, lambda: 2)) == 1


def test_a_single_operand_may_be_given_by_name() -> None:
    assert int(cond(False, lambda x: x, lambda x: -x, operand=3)) == -3
    assert int(cond(True, lambda x: int(x is None), lambda x: 3, operand=None)) == 1
    assert int(switch(1, [lambda xy: xy[0], lambda xy: xy[1]], operand=(3, 4))) == 4


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "int64"])
@pytest.mark.parametrize("index", [0, 1, 2, 3, 100, -1, -100])
def test_an_index_out_of_range_takes_the_nearest_branch(index: int, dtype: str) -> None:
    given = np.asarray(index).astype(dtype)
    got = jit(lambda i: switch(i, [lambda: 10, lambda: 11, lambda: 12]))(given)
    assert int(got) == 10 + int(np.clip(given, 0, 2))


def test_more_branches_than_an_index_can_name() -> None:
    branches = [lambda k=k: k for k in range(130)]
    assert int(switch(np.int8(127), branches)) == 127
    assert int(switch(np.int32(129), branches)) == 129


def test_one_branch_alone() -> None:
    assert float(jit(lambda i, x: switch(i, [fnp.exp], x))(3, 0.0)) == 1.0


def test_operands_and_results_are_pytrees() -> None:
    def swapped(t: dict[str, Any], n: Any) -> dict[str, Any]:
        return {"a": t["b"] + n, "b": t["a"], "none": None}

    def kept(t: dict[str, Any], n: Any) -> dict[str, Any]:
        return {"a": t["a"], "b": t["b"], "none": None}

    tree = {"a": np.arange(3.0), "b": np.ones(3)}
    got = jit(lambda p, t: cond(p, swapped, kept, t, 2))(True, tree)
    np.testing.assert_array_equal(np.asarray(got["a"]), [3.0, 3.0, 3.0])
    np.testing.assert_array_equal(np.asarray(got["b"]), tree["a"])
    assert got["none"] is None
    assert cond(False, lambda: (), lambda: ()) == ()


def test_weak_results_take_the_type_of_the_others() -> None:
    def mixed(p: Any, x: Any) -> tuple[Any, Any, Any]:
        return cond(p, lambda: (x, 1, 2), lambda: (0, 2.5, 3))

    for p, want in ((True, [4.0, 1.0, 2]), (False, [0.0, 2.5, 3])):
        x, y, z = jit(mixed)(p, np.float64(4.0))
        assert (x.dtype, y.dtype, z.dtype) == (np.float64, np.float32, np.int32)
        assert [float(x), float(y), int(z)] == want
    shapes = eval_shape(mixed, True, np.float64(4.0))
    assert [s.dtype.name for s in shapes] == ["float64", "float32", "int32"]


def test_only_the_branch_taken_runs() -> None:
    def forever(x: Any) -> Any:
        return while_loop(lambda y: y > 0, lambda y: y, x)

    assert float(jit(lambda x: cond(x > 5, forever, lambda y: -y, x))(1.0)) == -1.0


# derivatives


@pytest.mark.parametrize("x", XS)
def test_derivatives_of_either_branch(x: float) -> None:
    check_grads(jit(smooth), (x,), order=1)
    np.testing.assert_allclose(float(grad(smooth)(x)), smooth_slope(x), rtol=1e-5)


@pytest.mark.parametrize("k", [0, 1, 2])
def test_branches_with_different_residuals(k: int) -> None:
    """Residuals of other numbers and shapes; operands, closed-over values and constants among them."""

    def f(i: Any, x: Any, w: Any) -> Any:
        branches = [
            lambda v: (fnp.sin(v) @ w, v * 2.0),
            lambda v: (fnp.outer(v, w).sum() * v[0], fnp.exp(v) * fnp.cos(w)),
            lambda v: (w[0] * 1.0, fnp.zeros(3, "float64")),
        ]
        return switch(i, branches, x)

    check_grads(jit(lambda x, w: f(k, x, w)), (XS[:3], W), order=1 + (k == 0))


def test_a_tangent_that_only_one_branch_gives() -> None:
    def f(x: Any) -> Any:
        return cond(x < 1.0, lambda: x * x, lambda: 7.0)

    assert [float(v) for v in jvp(f, (0.5,), (1.0,))] == [0.25, 1.0]
    assert [float(v) for v in jvp(f, (2.0,), (1.0,))] == [7.0, 0.0]
    assert [float(grad(f)(x)) for x in (0.5, 2.0)] == [1.0, 0.0]


def test_integer_operands_and_results() -> None:
    def f(n: Any, x: Any) -> Any:
        k, y = cond(n > 2, lambda m: (m + 1, x * m), lambda m: (m, x), n)
        return y * k

    assert float(grad(f, argnums=1)(np.int32(3), 2.0)) == 12.0
    assert float(jit(grad(f, argnums=1))(np.int32(1), 2.0)) == 1.0


def test_linearize_keeps_the_branch() -> None:
    out, lin = linearize(smooth, 0.5)
    np.testing.assert_allclose(float(out), smooth_by_hand(0.5), rtol=1e-6)
    np.testing.assert_allclose(float(lin(2.0)), 2 * smooth_slope(0.5), rtol=1e-6)
    _, pull = vjp(smooth, -1.5)
    np.testing.assert_allclose(float(pull(1.0)[0]), smooth_slope(-1.5), rtol=1e-6)


def test_nested_conds() -> None:
    def f(x: Any, y: Any) -> Any:
        return cond(
            x > 0,
            lambda: cond(y > 0, lambda: x * y, lambda: fnp.sin(x) - y),
            lambda: cond(y > 0, lambda: x / y, lambda: fnp.exp(x) * y),
        )

    xs, ys = np.array([0.5, 0.5, -0.5, -0.5]), np.array([1.5, -1.5, 1.5, -1.5])
    check_grads(jit(vmap(f)), (xs, ys), order=1)
    got = jit(vmap(vmap(f, in_axes=(None, 0)), in_axes=(0, None)))(XS, XS)
    one = jit(f)
    want = [[float(one(x, y)) for y in XS] for x in XS]
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-12)


# batches


@pytest.mark.parametrize("way", [lambda f: f, jit])
def test_each_lane_takes_its_branch(way: Callable[[Any], Any]) -> None:
    np.testing.assert_allclose(np.asarray(way(vmap(smooth))(XS)), smooth_by_hand(XS), rtol=1e-12)
    if way is jit:
        slopes = way(vmap(grad(smooth)))(XS)
        np.testing.assert_allclose(np.asarray(slopes), smooth_slope(XS), rtol=1e-12)

    def total(xs: Any) -> Any:
        return vmap(smooth)(xs).sum()

    slopes = way(grad(total))(XS)
    np.testing.assert_allclose(np.asarray(slopes), smooth_slope(XS), rtol=1e-12)


def test_one_predicate_for_all_lanes_runs_one_branch() -> None:
    def f(p: Any, x: Any, w: Any) -> Any:
        return cond(p, lambda: x * w, lambda: fnp.sin(x))

    batched = vmap(f, in_axes=(None, 0, None))
    assert "select" not in repr(make_jaxpr(batched)(True, XS, 2.0))
    np.testing.assert_allclose(np.asarray(batched(True, XS, 2.0)), XS * 2.0)
    np.testing.assert_allclose(np.asarray(batched(False, XS, 2.0)), np.sin(XS))
    shared = vmap(f, in_axes=(None, None, None), axis_size=3, out_axes=None)
    assert float(shared(True, 3.0, 2.0)) == 6.0


def test_switch_under_vmap() -> None:
    branches = [fnp.sin, lambda x: x * x, lambda x: 1.0 / x]
    ks = np.array([0, 1, 2, 7, -3])
    xs = np.array([0.5, 2.0, 4.0, 8.0, 0.25])
    want = [np.sin(0.5), 4.0, 0.25, 0.125, np.sin(0.25)]
    got = vmap(lambda k, x: switch(k, branches, x))(ks, xs)
    np.testing.assert_allclose(np.asarray(got), want)


@pytest.mark.parametrize(
    "risky", [lambda x: 1.0 / x, fnp.log, fnp.sqrt, lambda x: fnp.log(x) / x, lambda x: x**0.5 / x]
)
def test_nothing_comes_back_from_a_branch_not_taken(risky: Callable[[Any], Any]) -> None:
    def f(x: Any, scale: Any) -> Any:
        return cond(x > 0, lambda: risky(x) * scale, lambda: x * 2.0)

    xs = np.array([0.0, 1.0, -1.0, 4.0])

    def total(xs: Any, scale: Any) -> Any:
        return vmap(f, in_axes=(0, None))(xs, scale).sum()

    bar, scale_bar = jit(grad(total, argnums=(0, 1)))(xs, 1.0)
    slope, value = jit(vmap(grad(risky))), jit(vmap(risky))
    slopes = np.where(xs > 0, np.asarray(slope(xs)), 2.0)
    np.testing.assert_allclose(np.asarray(bar), slopes)
    np.testing.assert_allclose(float(scale_bar), np.asarray(value(xs))[xs > 0].sum())
    dots = jit(lambda xs: jvp(vmap(lambda x: f(x, 1.0)), (xs,), (np.ones(4),))[1])(xs)
    np.testing.assert_allclose(np.asarray(dots), slopes)


def test_nothing_comes_back_from_a_ref_in_a_branch_not_taken() -> None:
    def f(x: Any) -> Any:
        r = new_ref(fnp.zeros(2, "float64"))
        r[0] = x

        def risky() -> Any:
            r[1] = 1.0 / r[0]
            return r[1] * 2.0

        y = cond(x > 0, risky, lambda: x * 5.0)
        return y + freeze(r)[1]

    xs = np.array([0.0, 2.0, -1.0])
    bar = grad(lambda xs: vmap(f)(xs).sum())(xs)
    np.testing.assert_allclose(np.asarray(bar), [5.0, -0.75, 5.0])


def test_a_loop_that_one_lane_would_never_end() -> None:
    def halve(x: Any) -> Any:
        return cond(
            x > 0,
            lambda: while_loop(lambda y: y != 1.0, lambda y: fnp.where(y > 1.0, y / 2, y + 1), x),
            lambda: x,
        )

    got = jit(vmap(halve))(np.array([8.0, -3.0, 2.0, 0.0]))
    np.testing.assert_array_equal(np.asarray(got), [1.0, -3.0, 1.0, 0.0])


# Refs


def writes(r: Any, s: Any, k: Any, x: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Two branches that do different things to two Refs."""

    def one() -> Any:
        old = r[k]
        r[k] = x * old
        s[...] += old
        return old + 1.0

    def other() -> Any:
        r[0] += s[...] * x
        r[k + 1] = fnp.sin(r[k])
        return x * x

    return one, other


def stepwise(p: Any, k: Any, x: Any, init: Any) -> tuple[Any, Any, Any]:
    """A cond on two Refs of its own."""
    r, s = new_ref(init), new_ref(fnp.float64(0.5))
    one, other = writes(r, s, k, x)
    y = cond(p, one, other)
    return y, freeze(r), freeze(s)


def stepwise_by_hand(p: Any, k: int, x: float, init: Any) -> tuple[float, Any, float]:
    r, s = np.array(init), 0.5
    if p:
        old = r[k]
        r[k] = x * old
        return old + 1.0, r, s + old
    r[0] += s * x
    r[k + 1] = np.sin(r[k])
    return x * x, r, s


@pytest.mark.parametrize("p", [True, False])
def test_branches_change_refs(p: bool) -> None:
    want = stepwise_by_hand(p, 1, 3.0, W)
    for way in (lambda f: f, jit):
        got = way(stepwise)(p, 1, 3.0, W)
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(np.asarray(a), b)
    check_grads(jit(lambda x, init: stepwise(p, 1, x, init)), (np.float64(3.0), W), order=1 + p)


def test_each_lane_changes_its_own_refs() -> None:
    ps, ks = np.array([True, False, True]), np.array([0, 1, 2])
    xs, inits = XS[:3], np.stack([W, W + 1, W * 2])
    got = jit(vmap(stepwise))(ps, ks, xs, inits)
    lanes = [stepwise_by_hand(*lane) for lane in zip(ps, ks, xs, inits, strict=True)]
    for a, b in zip(got, zip(*lanes, strict=True), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.stack([np.asarray(v) for v in b]))
    check_grads(jit(lambda xs, inits: vmap(stepwise)(ps, ks, xs, inits)), (xs, inits), order=1)


@pytest.mark.parametrize("inner", ["for", "while", "call", "cond"])
def test_writes_inside_loops_and_calls_of_a_branch_not_taken(inner: str) -> None:
    def add_three(r: Any) -> None:
        def step(i: Any, _: Any) -> None:
            r[i] += 1.0

        def steps() -> Any:
            for i in range(3):
                step(i, None)
            return ()

        if inner == "for":
            for_loop(3, step, ())
        elif inner == "while":

            def body(i: Any) -> Any:
                step(i, None)
                return i + 1

            while_loop(lambda i: i < 3, body, 0)
        elif inner == "call":
            closed_call(steps)()
        else:
            cond(r[2] < 5.0, steps, lambda: ())

    def f(p: Any, init: Any) -> Any:
        r = new_ref(init)

        def branch() -> Any:
            add_three(r)
            return ()

        cond(p, branch, lambda: ())
        return freeze(r)

    inits = np.stack([W, W, W])
    got = jit(vmap(f))(np.array([True, False, True]), inits)
    np.testing.assert_allclose(np.asarray(got), inits + np.array([[1.0], [0.0], [1.0]]))


def bump(a: Any, b: Any, x: Any) -> Any:
    a[0] = x
    b[0] = a[0] + 1.0
    return b[0]


def test_parts_of_one_ref_as_operands() -> None:
    def f(x: Any) -> Any:
        r = new_ref(fnp.zeros(2))
        y = cond(x > 0, bump, lambda a, b, x: a[0], r.at[:1], r.at[1:], x)
        return y, freeze(r)

    for way in (lambda g: g, jit):
        y, r = way(f)(3.0)
        assert float(y) == 4.0
        np.testing.assert_array_equal(np.asarray(r), [3.0, 4.0])


def test_one_ref_as_two_operands_is_refused() -> None:
    def f(x: Any) -> Any:
        r = new_ref(fnp.zeros(2))
        return cond(x > 0, bump, lambda a, b, x: a[0], r, r, x)

    for fun in (f, jit(f)):
        assert_misuse(
            partial(fun, 3.0),
            ValueError,
            "cond: operands[0] and operands[1] are one Ref{f32[2]}, so that what is written through one would "
            "change the other; pass it once",
            within=f,
        )


def test_a_ref_outside_any_trace() -> None:
    r = new_ref(np.zeros(3, np.float32))

    def write(k: int) -> Callable[[], Any]:
        def branch() -> Any:
            r[k] += 1.0
            return r[k]

        return branch

    assert float(cond(True, write(0), write(2))) == 1.0
    assert float(jit(lambda p: cond(p, write(0), write(2)))(False)) == 1.0
    np.testing.assert_array_equal(np.asarray(r[...]), [1.0, 0.0, 1.0])


def test_lanes_add_to_a_ref_that_they_share() -> None:
    r = new_ref(np.zeros(2))

    def f(x: Any) -> Any:
        def add() -> Any:
            r[0] += x
            return ()

        return cond(x > 0, add, lambda: ())

    vmap(f)(XS)
    np.testing.assert_allclose(np.asarray(r[...]), [2.5, 0.0])


def test_lanes_cannot_write_to_a_ref_that_they_share() -> None:
    r = new_ref(np.zeros(2))

    def f(x: Any) -> Any:
        def write() -> Any:
            r[0] = 1.0
            return ()

        return cond(x > 0, write, lambda: ())

    with pytest.raises(TypeError, match="a Ref that all lanes share"):
        vmap(f)(XS)


def test_scan_with_a_branch_each_step() -> None:
    def f(xs: Any, w: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            c = cond(x > 0, lambda: fnp.tanh(c * w) + x, lambda: c * x)
            return c, c * w

        return scan(step, 1.0, xs)

    check_grads(jit(f), (XS, np.float64(0.7)), order=1)


# the laws


def test_the_laws_hold() -> None:
    def f(k: Any, x: Any, w: Any) -> Any:
        r = new_ref(w)

        def first() -> Any:
            r[0] = fnp.sin(x) * r[1]
            return x * r[2]

        def second() -> Any:
            r[1] += x
            return fnp.exp(r[1])

        y = switch(k, [first, second, lambda: x])
        return y, freeze(r) * 2.0

    for k in (0, 1, 2):
        s = sample(f, np.int32(k), np.float64(0.3), W)
        check_laws(s)
        check_law_discharge(s)


def test_dead_results_and_operands_go() -> None:
    def f(p: Any, x: Any, y: Any) -> Any:
        return cond(p, lambda: (x * 2.0, y), lambda: (x, fnp.sin(y)))[0]

    text = jit(f).lower(True, 1.0, 2.0).as_text()
    assert "sine" not in text


def handing_through(p: Any, x: Any, y: Any) -> Any:
    def grown(x: Any, y: Any) -> Any:
        return scan(lambda c, _: ((c[0], c[1] + 1.0), None), (x, y), None, 3)[0]

    def until(x: Any, y: Any) -> Any:
        return while_loop(lambda c: c[1] < 3.0, lambda c: (c[0], c[1] + 1.0), (x, y))

    def kept(x: Any, y: Any) -> Any:
        return jit(lambda x: x)(x), y * y

    return switch(p, [grown, until, kept], x, y)


def test_what_all_branches_hand_through_is_not_chosen() -> None:
    """It keeps the batch axis that it has, or has none; and so does what a loop around hands through."""
    p, x, y = np.arange(3), np.arange(5.0), np.array([1.0, 0.5, 3.0])

    def repeated(p: Any, x: Any, y: Any) -> Any:
        return scan(lambda c, _: (handing_through(p, *c), None), (x, y), None, 2)[0]

    for fun in (handing_through, repeated):
        for way in (lambda f: f, jit):
            shared, mine = way(vmap(fun, (0, None, 0), (None, 0)))(p, x, y)
            np.testing.assert_array_equal(np.asarray(shared), x)
            each = [fun(a, x, b)[1] for a, b in zip(p, y, strict=True)]
            np.testing.assert_allclose(np.asarray(mine), np.stack(each))
        wide = np.broadcast_to(x[:, None], (5, 3))
        batched = jit(vmap(fun, (0, 1, 0), (1, 0)))
        assert "f64[5,3] = " not in str(make_jaxpr(batched)(p, wide, y))
        np.testing.assert_array_equal(np.asarray(batched(p, wide, y)[0]), wide)
        loss = lambda x: (vmap(fun, (0, None, 0), (None, 0))(p, x, y)[0] ** 2).sum()  # noqa: B023
        np.testing.assert_allclose(np.asarray(grad(loss)(x)), 2 * x)
