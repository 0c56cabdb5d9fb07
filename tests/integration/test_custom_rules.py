"""Custom rules with Refs, in loops, branches and checkpoints, and through discharge."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest

import fiveloop.testing.remat.references  # noqa: F401  # the oracle learns what a checkpoint is
from fiveloop.core import (
    custom_derivative,
    custom_jvp,
    custom_linear_solve,
    custom_vjp,
    custom_vmap,
    grad,
    jit,
    jvp,
    linear_transpose,
    make_jaxpr,
    vjp,
    vmap,
)
from fiveloop.core.extend import eval_jaxpr
from fiveloop.core.primitives.special import cos, sin
from fiveloop.loops import cond, for_loop, fori_loop, scan, while_loop
from fiveloop.remat import checkpoint, everything_saveable, policies, saved_residuals
from fiveloop.state import discharge_state, freeze, new_ref
from fiveloop.testing.core.compare import assert_all_near, assert_near
from fiveloop.testing.core.cube import TRANSFORMS, check_chain
from fiveloop.testing.core.golden import assert_prints
from fiveloop.testing.core.misuse import raised
from fiveloop.testing.core.samples import sample
from fiveloop.testing.loops.laws import check_function

Function = Callable[..., Any]
X = np.array([0.3, -0.7, 1.1])


def same(f: Function) -> Function:
    return f


WRAPS = [same, jit, checkpoint]


@custom_vjp
def steep(x: Any) -> Any:
    return sin(x)


steep.defvjp(lambda x: (sin(x), cos(x)), lambda res, ct: (3.0 * res * ct,))


def in_scan(x: Any) -> Any:
    return scan(lambda c, _: (steep(c), None), x, None, length=3)[0]


def in_for(x: Any) -> Any:
    def body(i: Any, r: Any) -> Any:
        return steep(r)

    return fori_loop(0, 3, body, x)


def in_cond(x: Any) -> Any:
    return cond(x > 0, lambda x: steep(steep(steep(x))), lambda x: x, x)


def plainly(x: Any) -> Any:
    return steep(steep(steep(x)))


@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("program", [in_scan, in_for, in_cond, plainly])
def test_in_control_flow(program: Function, wrap: Function) -> None:
    x = np.float64(0.8)
    slope = 27 * np.cos(x) * np.cos(np.sin(x)) * np.cos(np.sin(np.sin(x)))
    f = wrap(program)
    assert_near(f(x), np.sin(np.sin(np.sin(x))))
    assert_near(grad(f)(x), slope)
    assert_near(jit(grad(f))(x), slope)
    assert_near(jvp(f, (x,), (1.0,))[1], slope)
    assert_near(vmap(grad(f))(np.array([x, x])), np.array([slope, slope]))
    assert_near(grad(jit(grad(f)))(x), grad(grad(plainly))(x))


def test_forward_mode_in_a_while_loop() -> None:
    def f(x: Any) -> Any:
        return while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, steep(s[1])), (0, x))[1]

    assert_near(jvp(f, (np.float64(0.8),), (1.0,))[1], grad(plainly)(np.float64(0.8)))


@custom_vjp
def watch(log: Any, i: Any, x: Any) -> Any:
    """The identity, which writes down the cotangents that pass."""
    return x


def watch_bwd(res: Any, ct: Any) -> Any:
    log, i = res
    log[i] = ct
    return None, None, ct


watch.defvjp(lambda log, i, x: (x, (log, i)), watch_bwd)


def watched(log: Any, x: Any) -> Any:
    return scan(lambda c, i: (0.5 * watch(log, i, c), None), x, np.arange(3))[0]


@pytest.mark.parametrize("wrap", WRAPS)
def test_a_backward_rule_writes_to_a_ref(wrap: Function) -> None:
    want = np.array([0.125, 0.25, 0.5])
    for compute in (grad(watched, 1), jit(grad(watched, 1)), grad(wrap(watched), 1)):
        log = new_ref(np.zeros(3))
        assert_near(compute(log, 1.0), 0.125)
        assert_near(log[...], want)
    log = new_ref(np.zeros((2, 3)))
    jit(vmap(grad(watched, 1)))(log, np.ones(2))
    assert_near(log[...], np.stack([want, want]))


def test_what_a_backward_rule_writes_has_no_forward_mode() -> None:
    log = new_ref(np.zeros(3))
    message = str(raised(lambda: jvp(lambda x: watched(log, x), (1.0,), (1.0,))))
    assert "must be linear in the cotangent, but it writes to a Ref" in message


@custom_jvp
def push(ref: Any, x: Any) -> Any:
    """Add to a Ref and give what it then holds times x; the derivative of the product is said to be tenfold."""
    ref[...] += x
    return ref[...] * x


@push.defjvp
def push_jvp(primals: Any, tangents: Any) -> Any:
    (ref, x), (ref_dot, x_dot) = primals, tangents
    ref[...] += x
    ref_dot[...] += x_dot
    held = ref[...]
    return held * x, 10.0 * (ref_dot[...] * x + held * x_dot)


def pushed(x: Any) -> Any:
    ref = new_ref(x * x)
    y = push(ref, x)
    return y + freeze(ref)


@pytest.mark.parametrize("wrap", WRAPS)
def test_a_rule_takes_a_ref_and_its_tangent(wrap: Function) -> None:
    x = np.float64(0.5)
    want = 10 * ((2 * x + 1) * x + x * x + x) + 2 * x + 1
    f = wrap(pushed)
    assert_near(f(x), x**3 + x**2 + x**2 + x)
    for compute in (grad(f), jit(grad(f)), lambda x: jvp(f, (x,), (1.0,))[1]):
        assert_near(compute(x), want)
    assert_near(vmap(grad(f))(np.array([x, x])), np.array([want, want]))


def test_a_rule_in_a_loop_over_refs() -> None:
    def f(x: Any) -> Any:
        ref = new_ref(x)
        y = fori_loop(0, 3, lambda i, c: c + push(ref, c), x)
        return y + freeze(ref)

    x = np.float64(0.1)
    got = [grad(f)(x), jit(grad(f))(x), grad(jit(f))(x), jvp(f, (x,), (1.0,))[1]]
    assert_all_near(got, [float(got[0])] * 4)
    assert_near(jit(f)(x), f(x))


def test_a_tangent_that_nobody_would_see_is_refused() -> None:
    ref = new_ref(np.float64(0.0))
    message = str(raised(lambda: grad(lambda x: push(ref, x))(np.float64(1.0))))
    assert message.startswith(
        "the custom rule of push: expected its jvp to leave the tangent of leaf 0 of its arguments as it is, a Ref "
        "that is not differentiated, but it writes to it"
    )


def test_discharge_keeps_the_rule() -> None:
    jaxpr = make_jaxpr(push)(new_ref(np.float32(1.0)), np.float32(2.0))
    assert_prints(
        discharge_state(jaxpr),
        """
        { lambda a:f32[] b:f32[] ; let
            c:f32[] d:f32[] = custom_rule[name=push rule=jvp] a b
              jaxpr { lambda e:f32[] f:f32[] ; let
                  g:f32[] = add e f
                  h:f32[] = mul g f
                in (h, g) }
          in (c, d) }
        """,
    )


def test_discharge_keeps_the_transpose_of_a_solve_by_steps_that_are_not_linear() -> None:
    a, b = np.array([[4.0, 1.0], [1.0, 3.0]]), np.array([1.0, 2.0])

    def solve(matvec: Function, b: Any) -> Any:
        def step(i: Any, x: Any) -> None:
            x[...] += (b - matvec(x[...])) / 5.0
            x[...] *= (x[...] * x[...]).sum() / (x[...] * x[...]).sum()

        return for_loop(60, step, np.ones(2))

    solved = make_jaxpr(lambda b: custom_linear_solve(lambda x: x @ a, b, solve, symmetric=True))(b)
    for jaxpr in (solved, discharge_state(solved)):
        run: Function = partial(lambda jaxpr, b: eval_jaxpr(jaxpr, [b])[0], jaxpr)
        assert_near(linear_transpose(run, b)(b)[0], np.linalg.solve(a, b))


def true_push(ref: Any, x: Any) -> Any:
    """As `push`, with the derivative that it has."""

    def f(ref: Any, x: Any) -> Any:
        ref[...] += x
        return ref[...] * x

    with_rule = custom_jvp(f)
    with_rule.defjvp(lambda primals, tangents: jvp(f, primals, tangents))
    return with_rule(ref, x)


def with_refs(x: Any) -> Any:
    ref = new_ref(sin(x))
    y = true_push(ref, x)
    z = scan(lambda c, _: (c + true_push(ref, 0.5 * c), None), y, None, length=2)[0]
    return z, freeze(ref)


def in_a_checkpoint_of_a_scan(x: Any) -> Any:
    def body(c: Any, _: Any) -> Any:
        f = custom_vjp(lambda c: sin(c) * c)
        f.defvjp(lambda c: (f(c), c), lambda c, ct: ((cos(c) * c + sin(c)) * ct,))
        return f(c), f(0.5 * c)

    return scan(checkpoint(body), x, None, length=2)


def test_laws() -> None:
    for fun in (with_refs, in_a_checkpoint_of_a_scan):
        check_function(fun, X)


@pytest.mark.oracle
@pytest.mark.parametrize("names", list(product(sorted(TRANSFORMS), repeat=2)), ids="-".join)
def test_pairs_of_transforms(names: tuple[str, ...]) -> None:
    check_chain(sample(with_refs, X), names)


def test_a_policy_reaches_into_fwd() -> None:
    kept = [
        str(r.origin) for r in saved_residuals(checkpoint(steep, policy=everything_saveable), X)
    ]
    assert kept == ["result of cos"]
    nothing = checkpoint(steep, policy=policies.nothing_saveable)
    assert [str(r.origin) for r in saved_residuals(nothing, X)] == ["argument `x`"]


@pytest.mark.parametrize("wrap", [same, jit])
def test_a_ref_that_fwd_has_made_is_not_kept(wrap: Function) -> None:
    f = custom_vjp(lambda x: 2.0 * x)

    def pulls(ref: Any, ct: Any) -> Any:
        ref[...] += ct
        return (ref[...],)

    f.defvjp(lambda x: (2.0 * x, {"log": new_ref(0.0 * x)}), lambda r, ct: pulls(r["log"], ct))

    def twice(x: Any) -> Any:
        _, back = vjp(f, x)
        return back(1.0), back(1.0)

    for use in (twice, grad(f), lambda x: jvp(f, (x,), (x,))):
        message = str(raised(lambda use=use: wrap(use)(3.0)))  # type: ignore[misc]
        assert "must keep only Refs that are arguments of <lambda>" in message
        assert "as the residual['log'] that is not: each pull would find what the one" in message


@pytest.mark.parametrize("wrap", [same, jit])
def test_functions_with_rules_return_no_refs(wrap: Function) -> None:
    outside = new_ref(1.0)
    functions: list[Any] = [new_ref, lambda x: (x, {"a": new_ref(x)}), lambda x: outside]
    for fun in functions:
        by_jvp: Any = custom_jvp(fun)
        by_vjp: Any = custom_vjp(fun)
        by_jvp.defjvp(lambda p, t: (p, t))
        by_vjp.defvjp(lambda x, fun=fun: (fun(x), ()), lambda res, ct: (1.0,))
        for f in (by_jvp, by_vjp):
            error = raised(lambda f=f: wrap(lambda x: (f(x), 0)[1])(2.0))  # type: ignore[misc]
            assert isinstance(error, TypeError)
            assert "that a function with a derivative rule cannot return" in str(error)


def times_held(fwd_writes: bool) -> Function:
    """`r[0] * y`; its rule says that the slope by `r[0]` is 7, and may write y there."""
    f = custom_vjp(lambda r, y: r[0] * y)

    def fwd(r: Any, y: Any) -> Any:
        held = r[0]
        if fwd_writes:
            r[0] = y
        return held * y, held

    f.defvjp(fwd, lambda held, ct: (np.array([7.0, 0.0]) * ct, held * ct))
    return f


def of_contents(fwd_writes: bool, x: Any) -> Any:
    r = new_ref(np.array([1.0, 0.0]) * x * x + np.array([0.0, 5.0]) * x)
    out = times_held(fwd_writes)(r, 2.0 * x)
    return out + r[0] + r[1]


@pytest.mark.parametrize("wrap", [same, jit])
def test_a_backward_rule_speaks_of_what_a_ref_holds(wrap: Function) -> None:
    for fwd_writes in (False, True):
        # 7 for x * x, which counts itself, too, unless a value without derivative is written over it.
        slope: Any = lambda x, w=fwd_writes: 7 * 2 * x + 2 * x**2 + 5 + (0.0 if w else 2 * x)
        f: Any = lambda x, w=fwd_writes: of_contents(w, x)
        x3 = np.array(3.0)
        assert_near(wrap(grad(f))(x3), slope(x3))
        assert_near(wrap(lambda x, f=f: jvp(f, (x,), (x,))[1])(x3), slope(x3) * x3)
        assert_near(wrap(vmap(grad(f)))(X), slope(X))
        around: Any = lambda s, f=f: vmap(lambda x: f(s * x))(X).sum()
        assert_near(wrap(grad(around))(np.array(1.0)), slope(X) @ X)
        assert_near(wrap(grad(grad(f)))(x3), 7 * 2 + 4 * x3 + (0.0 if fwd_writes else 2.0))


@pytest.mark.parametrize("wrap", [same, jit])
def test_a_backward_rule_does_not_speak_of_a_part_of_a_ref(wrap: Function) -> None:
    def of_part(slope: Any, x: Any) -> Any:
        f = custom_vjp(lambda r, y: r[...] * y)
        f.defvjp(lambda r, y: (r[...] * y, r[...]), lambda held, ct: (slope, held * ct))
        r = new_ref(np.ones(2) * x)
        return f(r.at[0], x) + r[1]

    x = np.array(3.0)
    assert_near(wrap(grad(lambda x: of_part(None, x)))(x), x + 1.0)
    message = str(raised(lambda: wrap(grad(lambda x: of_part(np.array(7.0), x)))(x)))
    assert "must return None for argument [0], a part of a Ref whose contents are diff" in message


@pytest.mark.parametrize("wrap", [same, jit])
def test_a_ref_that_is_a_log_has_no_derivative(wrap: Function) -> None:
    f = custom_vjp(lambda log, i, y: y * y)

    def fwd(log: Any, i: Any, y: Any) -> Any:
        log[i] = y
        return y * y, y

    f.defvjp(fwd, lambda y, ct: (None, None, 2.0 * y * ct))

    def steps(log: Any, x: Any) -> Any:
        return scan(lambda y, i: (f(log, i, y), None), x, np.arange(3))[0]

    def inside(x: Any) -> Any:
        log = new_ref(0.0 * X)
        return steps(log, x), log[...]

    x = np.array(1.1)
    assert_all_near(wrap(grad(inside, has_aux=True))(x), [8 * x**7, [x, x**2, x**4]])
    assert_near(wrap(grad(lambda x: inside(x)[1].sum()))(x), 0.0)
    outside = new_ref(0.0 * X)
    assert_near(wrap(grad(steps, argnums=1))(outside, x), 8 * x**7)
    assert_near(outside[...], [x, x**2, x**4])


def test_a_ref_of_a_rule_of_both_modes_has_no_derivative() -> None:
    f = custom_derivative(
        lambda r, y: r[...] * y,
        jvp=lambda p, t: (p[0][...] * p[1], p[0][...] * t[1]),
        fwd=lambda r, y: (r[...] * y, ()),
        bwd=lambda res, ct: (None, ct),
    )
    message = str(raised(lambda: grad(lambda x: f(new_ref(x), x))(2.0)))
    assert (
        "expected Refs whose contents are not differentiated, since it has both a jvp and a"
        in message
    )
    assert message.count(__file__) == 1


@pytest.mark.parametrize("wrap", [same, jit])
def test_what_fwd_writes_has_a_derivative_by_the_contents_alone(wrap: Function) -> None:
    def scale(ref: Any, p: Any) -> Any:
        ref[0] = ref[0] * p
        return p

    scaled = custom_vjp(scale)
    scaled.defvjp(lambda ref, p: (scale(ref, p), ()), lambda res, ct: (None, 10.0 * ct))

    def f(x: Any, p: Any) -> Any:
        ref = new_ref(x)
        out = scaled(ref, p)
        return freeze(ref).sum() + out

    by_x, by_p = wrap(grad(f, argnums=(0, 1)))(np.array([2.0, 3.0]), np.float64(0.8))
    assert_near(by_x, [0.8, 1.0])
    assert_near(by_p, 10.0)


@pytest.mark.parametrize("wrap", [same, jit])
def test_a_function_with_a_batch_of_its_own_writes_once(wrap: Function) -> None:
    count = new_ref(np.array(0.0))
    f = custom_vmap(lambda x: (count.__setitem__(..., count[...] + 1.0), x * x)[1])
    f.def_vmap(lambda size, batched, xs: (xs * xs, True))
    x = np.array(3.0)
    assert_near(wrap(lambda x: jvp(f, (x,), (x,))[1])(x), 18.0)
    assert_near(count[...], 1.0)
    assert_near(wrap(grad(f))(x), 6.0)
    assert_near(count[...], 2.0)


def mixed(r: Any, x: Any) -> Any:
    """A loop that is linear in x, and computes along with it what is not linear in r."""
    return fori_loop(0, 3, lambda i, c: (sin(c[0]) + 0.1 * i, c[1] * c[0]), (r, x))[1]


@custom_vjp
def slope_by_loop(x: Any) -> Any:
    return sin(x)


slope_by_loop.defvjp(lambda x: (sin(x), x), lambda x, ct: (mixed(x, ct),))


@custom_vmap
def batched_by_loop(x: Any) -> Any:
    return mixed(x, x)


@batched_by_loop.def_vmap
def batched_by_loop_vmap(axis_size: int, in_batched: list[bool], xs: Any) -> Any:
    return vmap(lambda x: mixed(x, x))(xs), True


def solved_by_loop(p: Any, b: Any) -> Any:
    one = np.array(1.0)
    divide = lambda matvec, y: y / matvec(one)
    return custom_linear_solve(lambda x: mixed(p, x), b, divide, divide)


@pytest.mark.parametrize("wrap", WRAPS)
def test_a_rule_s_loop_may_compute_what_is_linear_along_with_what_is_not(wrap: Function) -> None:
    one, p, b = np.array(1.0), np.array(0.7), np.array(2.0)
    assert_near(wrap(lambda x: jvp(slope_by_loop, (x,), (one,))[1])(p), mixed(p, one))
    wanted = grad(lambda x: mixed(x, x))(p)
    assert_near(wrap(grad(batched_by_loop))(p), wanted)
    assert_near(wrap(vmap(grad(batched_by_loop)))(p[None]), wanted[None])
    found = wrap(grad(solved_by_loop, (0, 1)))(p, b)
    assert_all_near(found, grad(lambda p, b: b / mixed(p, one), (0, 1))(p, b))
