"""`while_loop` with a bound: a loop that keeps what its derivative needs, and says so if it is stopped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import custom_vjp, disable_jit, grad, jit, jvp, value_and_grad, vmap
from fiveloop.loops import explain, scan, while_loop
from fiveloop.remat import checkpoint
from fiveloop.state import (
    CheckError,
    all_checks,
    checked,
    checkify,
    debug_callback,
    nan_checks,
    new_ref,
)
from fiveloop.testing.core.gradcheck import check_grads
from fiveloop.testing.core.misuse import assert_misuse

Function = Callable[[Any], Any]
STARTS = np.array([2.0, 30.0, 200.0, 1.1])
TRIPS = [6, 2, 0, 7]
STOPPED = "while_loop: after max_steps={} steps the condition still holds, and the loop was stopped"


def below(x: Any) -> Any:
    return x < 100.0


def grown(x: Any) -> Any:
    return x + 0.4 * x * fnp.sqrt(x) + 0.2


def bounded(x: Any, max_steps: int = 12) -> Any:
    return while_loop(below, grown, x, max_steps=max_steps)


def of_steps(steps: int) -> Function:
    return lambda x: scan(lambda x, _: (grown(x), None), x, length=steps)[0]


def trips(x: float) -> int:
    count = 0
    while x < 100.0:
        x, count = x + 0.4 * x * np.sqrt(x) + 0.2, count + 1
    return count


@pytest.fixture(autouse=True)
def told(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    return caplog


@pytest.mark.parametrize("way", [lambda f: f, jit, lambda f: lambda x: vmap(f)(x[None])[0]])
def test_it_is_the_loop_without_a_bound(way: Any, told: pytest.LogCaptureFixture) -> None:
    for x in STARTS:
        np.testing.assert_array_equal(
            np.asarray(way(bounded)(x)), np.asarray(while_loop(below, grown, x))
        )
    assert not told.messages


@pytest.mark.parametrize("way", [lambda f: f, jit])
@pytest.mark.parametrize("max_steps", [0, 1, 3])
def test_it_stops_at_the_bound_and_says_so(
    way: Any, max_steps: int, told: pytest.LogCaptureFixture
) -> None:
    got = way(lambda x: bounded(x, max_steps))(2.0)
    np.testing.assert_allclose(float(got), float(of_steps(max_steps)(2.0)), rtol=1e-6)
    (message,) = told.messages
    assert message.startswith(STOPPED.format(max_steps))
    assert "test_while_bound.py" in message


def test_python_stops_where_the_compiled_loop_does(told: pytest.LogCaptureFixture) -> None:
    with disable_jit():
        got = [float(bounded(x, 3)) for x in STARTS]
    assert len(told.messages) == sum(n > 3 for n in map(trips, STARTS))
    np.testing.assert_allclose(got, [float(bounded(x, 3)) for x in STARTS], rtol=1e-6)


def test_a_gradient_says_it_once_and_a_batch_for_its_first_lane(
    told: pytest.LogCaptureFixture,
) -> None:
    jit(grad(lambda x: bounded(x, 3)))(2.0)
    jit(grad(checkpoint(lambda x: bounded(x, 3))))(2.0)
    jit(vmap(lambda x: bounded(x, 3)))(STARTS[1:])
    assert len(told.messages) == 3
    assert "(in lane 2)" in told.messages[-1]


@pytest.mark.parametrize("way", [checked, lambda f: checked(f, nan_checks)])
def test_it_is_an_error_where_programs_are_checked(way: Any) -> None:
    assert float(jit(way(bounded))(30.0)) == float(bounded(30.0))
    with pytest.raises(CheckError, match="after max_steps=3 steps the condition still holds"):
        jit(way(lambda x: bounded(x, 3)))(2.0)
    for error, _ in (
        checkify(lambda x: bounded(x, 3), kinds)(2.0) for kinds in (all_checks, nan_checks)
    ):
        assert error


@pytest.mark.parametrize(
    "form",
    [
        grad,
        lambda f: grad(grad(f)),
        lambda f: grad(lambda x: jvp(checkpoint(f), (x,), (1.0,))[1]),
    ],
)
def test_derivatives_are_those_of_as_many_steps(form: Any) -> None:
    assert [trips(x) for x in STARTS] == TRIPS
    want = [float(form(of_steps(n))(x)) for x, n in zip(STARTS, TRIPS, strict=True)]
    lanes = jit(vmap(form(bounded)))(STARTS)
    np.testing.assert_allclose(np.asarray(lanes), want, rtol=1e-10)
    np.testing.assert_allclose(float(form(bounded)(STARTS[0])), want[0], rtol=1e-10)


def test_the_way_back_takes_the_steps_taken() -> None:
    ran: list[int] = []

    def backward(x: Any, ct: Any) -> Any:
        debug_callback(lambda: ran.append(1))
        return (2 * ct,)

    double: Any = custom_vjp(lambda x: 2 * x)
    double.defvjp(lambda x: (2 * x, x), backward)
    f = lambda x: while_loop(below, double, x, max_steps=1000)
    assert jit(value_and_grad(f))(1.0) == (128.0, 128.0)
    assert len(ran) == 7


@pytest.mark.parametrize("way", [lambda f: f, jit])
def test_the_condition_reads_the_ref_that_the_body_writes(way: Any) -> None:
    def total(x: Any) -> Any:
        ref, seen = new_ref(x), new_ref(np.zeros(20))

        def body(k: Any) -> Any:
            seen[k] = ref[...]
            ref[...] = grown(ref[...])
            return k + 1

        steps = while_loop(lambda k: ref[...] < 100.0, body, 0, max_steps=20)
        return ref[...] + (seen[...] ** 2).sum(), steps

    for x, n in zip(STARTS, TRIPS, strict=True):
        (_, steps), dot = way(value_and_grad(total, has_aux=True))(x)[0], None
        assert int(steps) == n
        _, dot = jvp(lambda x: total(x)[0], (x,), (1.0,))
        np.testing.assert_allclose(
            float(way(grad(total, has_aux=True))(x)[0]), float(dot), rtol=1e-10
        )


def test_an_array_is_updated_in_place_in_both_directions() -> None:
    def chase(x: Any) -> Any:
        def body(carry: Any) -> Any:
            at, x = carry
            new = (at + 7) % 50
            return new, x.at[new].set(fnp.sin(x[at]) + x[new])

        start: Any = (1, x)
        return (while_loop(lambda c: c[0] != 0, body, start, max_steps=60)[1] ** 2).sum()

    x = np.linspace(0.0, 1.0, 50)
    assert jit(grad(chase)).lower(x).compile().copies == 0
    check_grads(chase, (x,), order=1)


def newton(a: Any) -> Any:
    """The square root, found by an iteration."""
    step = lambda x: 0.5 * (x + a / x)
    return while_loop(lambda x: fnp.abs(x * x - a) > 1e-13 * a, step, a, max_steps=50)


def test_loops_in_loops_in_loops() -> None:
    def root_of_roots(a: Any) -> Any:
        def outer(x: Any) -> Any:
            return while_loop(lambda x: x > 1.5, newton, x, max_steps=9)

        return scan(lambda c, x: (c + outer(x), None), 0.0, a * np.arange(2.0, 6.0))[0]

    def by_hand(a: float) -> float:
        total = 0.0
        for x in a * np.arange(2.0, 6.0):
            while x > 1.5:
                x = np.sqrt(x)
            total += x
        return total

    np.testing.assert_allclose(float(jit(root_of_roots)(3.0)), by_hand(3.0), rtol=1e-6)
    starts = np.array([3.0, 5.0, 0.1])
    want = [(by_hand(a + 1e-6) - by_hand(a - 1e-6)) / 2e-6 for a in starts]
    np.testing.assert_allclose(np.asarray(jit(vmap(grad(root_of_roots)))(starts)), want, rtol=1e-6)


def test_explain_names_what_it_carries() -> None:
    (loop,) = explain(
        lambda x: while_loop(
            lambda c: c["x"] < 9.0, lambda c: {"x": c["x"] * 2}, {"x": x}, max_steps=7
        ),
        1.0,
    ).loops
    assert (loop.call, loop.steps, loop.may_end) == ("while_loop", 7, True)
    assert [operand.name for operand in loop.operands] == ["val['x']", "ended"]


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (-1, ValueError, "while_loop: max_steps must not be negative, got -1"),
        (2.5, TypeError, "while_loop: max_steps must be an integer, got 2.5"),
        (True, TypeError, "while_loop: max_steps must be an integer, got True"),
        (
            2**31,
            ValueError,
            "while_loop: max_steps must be at most 2147483647, which the counter holds, got 2147483648; nest loops",
        ),
    ],
)
def test_a_bound_that_is_none_is_refused(given: Any, error: type[Exception], message: str) -> None:
    assert_misuse(lambda: while_loop(below, grown, 1.0, max_steps=given), error, message)


def test_a_bound_that_is_traced_is_refused() -> None:
    assert_misuse(
        lambda: jit(lambda n: while_loop(below, grown, 1.0, max_steps=n))(3),
        TypeError,
        "while_loop: max_steps must be an integer known while tracing, got Traced<i32*[]>; if it comes from an "
        "argument, name that one in static_argnums; a number that is computed belongs in the condition that ends "
        "the loop",
    )


def to_a_limit(start: Any, limit: Any, x: Any) -> Any:
    """A loop whose number of steps is known when it begins."""
    step = lambda v: (v[0] + 1, v[1] * x + v[0])
    return while_loop(lambda v: v[0] < limit, step, (start, 1.0), max_steps=12)


def by_its_state(start: Any, limit: Any, x: Any) -> Any:
    """The same, of which that is not seen."""
    step = lambda v: (1 + v[0], v[1] * x + v[0])
    return while_loop(lambda v: v[0] + 1 <= limit, step, (start, 1.0), max_steps=12)


def slope(loop: Callable[[Any, Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda s, n: value_and_grad(lambda x: loop(s, n, x)[1])(1.1)


@pytest.mark.parametrize("dtype", ["int32", "uint8"])
def test_a_counter_tells_the_number_of_steps(dtype: str, told: pytest.LogCaptureFixture) -> None:
    ranges = [(0, 0), (0, 5), (3, 15), (3, 16), (9, 2), (0, 100)]
    starts, limits = np.array(ranges, dtype).T
    for s, n in zip(starts, limits, strict=True):
        told.clear()
        np.testing.assert_allclose(
            jit(slope(to_a_limit))(s, n), jit(slope(by_its_state))(s, n), rtol=1e-6
        )
        assert int(to_a_limit(s, n, 1.1)[0]) == min(max(s, n), s + 12)
        warned = [r for r in told.records if STOPPED.format(12) in r.getMessage()]
        assert len(warned) == (3 if int(n) - int(s) > 12 else 0)
    lanes = jit(vmap(slope(to_a_limit)))(starts, limits)
    np.testing.assert_allclose(lanes, jit(vmap(slope(by_its_state)))(starts, limits), rtol=1e-6)


def to_seven(x: Any) -> Any:
    step = lambda v: (v[0] + 1, v[1] * x)
    return while_loop(lambda v: v[0] < 7, step, (0, x), max_steps=9)[1]


def test_a_loop_that_counts_asks_in_no_step() -> None:
    for loop, asks in ((to_a_limit, False), (by_its_state, True)):
        (report,) = explain(slope(loop), 0, 5).loops[:1]
        assert ("ended" in [o.name for o in report.operands]) is asks
    assert "ended" not in str(explain(to_seven, 1.1))
    assert float(grad(to_seven)(2.0)) == 8 * 2.0**7
