"""Where a check fails: the steps of loops and the lanes of batches; and for which lanes checks count at all."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import closed_call, grad, jit, jvp, make_jaxpr, vmap
from fiveloop.loops import cond, for_loop, fori_loop, scan, while_loop
from fiveloop.remat import checkpoint
from fiveloop.state import CheckError, check, checked, checkify, div_checks, index_checks
from fiveloop.testing.core.misuse import raised

XS = np.arange(6, dtype=np.float32)


def message(call: Callable[[], object]) -> str:
    """The first line of the CheckError that a call raises."""
    error = raised(call)
    assert isinstance(error, CheckError), error
    return str(error).split("\n")[0]


def small(x: Any) -> Any:
    """A check that fails for what is not less than five."""
    check(x < 5, "{:.0f}", x)
    return x


# where


def counted(n: Any, x: Any, reverse: bool = False) -> Any:
    """A loop over what may be a traced number of steps."""

    def body(i: Any, r: Any) -> None:
        small(i)
        r[...] += 1.0

    return for_loop(n, body, x, reverse=reverse)


def serial(x: Any) -> Any:
    """A choice that lanes make one after the other."""
    return cond(x > 3, small, lambda x: -x, x, vmap="serial")


def serial_rows(x: Any) -> Any:
    """The same with lanes in the branch."""
    return cond(x.sum() > 3, vmap(small), lambda x: -x, x, vmap="serial")


def deep(depth: int, x: Any) -> Any:
    """Loops of two steps in each other."""
    if not depth:
        return small(x) + 1
    return scan(lambda c, _: (deep(depth - 1, c), None), x, None, length=2)[0]


def grows(x: Any) -> Any:
    """A `while` whose condition and body are checked."""

    def holds(c: Any) -> Any:
        check(c < 9, "the condition sees {:.0f}", c)
        return c < 100

    return while_loop(holds, lambda c: small(c) + 1, x)


PLACES: dict[str, tuple[Callable[[], object], str]] = {
    "a batch": (lambda: vmap(small)(XS), "5 (in lane 5)"),
    "two batches": (lambda: vmap(vmap(small))(XS.reshape(2, 3)), "5 (in lane (1, 2))"),
    "three batches": (
        lambda: vmap(vmap(vmap(small)))(XS.reshape(1, 3, 2)),
        "5 (in lane (0, 2, 1))",
    ),
    "a sum of lanes": (
        lambda: vmap(lambda x: vmap(lambda y: small(x + y))(XS))(XS[2:]),
        "5 (in lane (0, 3))",
    ),
    "a loop": (lambda: counted(8, 0.0), "5 (in step 5)"),
    "a loop with a traced count": (lambda: jit(counted)(8, 0.0), "5 (in step 5)"),
    "a loop backwards": (lambda: counted(8, 0.0, True), "7 (in step 0)"),
    "the same, traced": (lambda: jit(partial(counted, reverse=True))(8, 0.0), "7 (in step 0)"),
    "counts of lanes": (
        lambda: vmap(counted)(np.array([3, 8]), np.zeros(2)),
        "5 (in step 5, lane 1)",
    ),
    "a range": (lambda: fori_loop(2, 9, lambda i, c: small(i), 0), "5 (in step 3)"),
    "a traced range": (
        lambda: jit(lambda n: fori_loop(2, n, lambda i, c: small(i), 0))(9),
        "5 (in step 3)",
    ),
    "traced in traced": (
        lambda: jit(
            lambda n, m: fori_loop(
                0, n, lambda i, c: fori_loop(0, m, lambda j, c: small(2 * i + j), c), 0
            )
        )(3, 4),
        "5 (in step (1, 3))",
    ),
    "a while": (lambda: jit(grows)(0), "5 (in step 5)"),
    "the derivative of a while": (lambda: jvp(grows, (0.0,), (1.0,)), "5 (in step 5)"),
    "a while's first condition": (lambda: jit(grows)(12), "the condition sees 12"),
    "a while's condition": (lambda: jit(grows)(6), "6 (in step 0)"),
    "lanes in series": (lambda: vmap(serial)(XS), "5 (in lane 5)"),
    "a batch of lanes in series": (
        lambda: vmap(vmap(serial))(XS.reshape(2, 3)),
        "5 (in lane (1, 2))",
    ),
    "batches in series": (lambda: vmap(serial_rows)(XS.reshape(2, 3)), "5 (in lane (1, 2))"),
    "in series within a batch": (
        lambda: vmap(vmap(serial_rows))(XS.reshape(1, 2, 3)),
        "5 (in lane (0, 1, 2))",
    ),
    "a loop of lanes in series": (
        lambda: vmap(lambda x: fori_loop(0, 3, lambda i, c: serial(x + i), 0.0))(XS[:4]),
        "5 (in step 2, lane 3)",
    ),
    "four loops": (lambda: jit(partial(deep, 4))(0), "5 (in step (0, 1, 0, 1))"),
    "more loops than are told": (lambda: jit(partial(deep, 5))(0), "5 (in step (0, 1, 0, 1))"),
}


@pytest.mark.parametrize("name", PLACES)
def test_the_place(name: str) -> None:
    run, want = PLACES[name]
    assert message(run) == message(jit(run)) == want


def test_the_place_in_a_value() -> None:
    error, _ = jit(vmap(checkify(vmap(serial))))(XS.reshape(2, 3))
    assert (error.get() or "").startswith("5 (in lane (1, 2))\n")
    assert (error[1].get() or "").startswith("5 (in lane 2)\n")
    assert not error[0]


# which lanes


def inverse(x: Any) -> Any:
    """One over what is not zero."""
    return cond(x != 0, lambda x: 1.0 / x, lambda x: x, x)


def looped(x: Any) -> Any:
    """The same in a loop."""
    return scan(lambda c, _: (inverse(c), None), x, None, length=3)[0]


FORMS: dict[str, Callable[[Any], Any]] = {
    "plain": inverse,
    "jit": jit(inverse),
    "call": closed_call(inverse),
    "checkpoint": checkpoint(inverse),
    "scan": looped,
    "scan of checkpoint": lambda x: scan(
        checkpoint(lambda c, _: (inverse(c), None)), x, None, length=3
    )[0],
    "serial": lambda x: cond(x != 0, lambda x: 1.0 / x, lambda x: x, x, vmap="serial"),
    "group": lambda x: cond(x != 0, lambda x: 1.0 / x, lambda x: x, x, vmap="group"),
}


@pytest.mark.parametrize("name", FORMS)
def test_branches_that_lanes_do_not_take(name: str) -> None:
    f = FORMS[name]
    ways: list[Callable[[Any], Any]] = [
        checked(vmap(f)),
        jit(checked(vmap(f))),
        checked(jit(vmap(f))),
        checked(vmap(grad(f))),
        checked(grad(lambda x: vmap(f)(x).sum())),
        vmap(checked(f)),
    ]
    xs = np.array([1, 0, 2, 0], np.float32)
    plain = np.asarray(vmap(f)(xs))
    slopes = np.asarray(vmap(grad(f))(xs))
    for k, way in enumerate(ways):
        np.testing.assert_allclose(np.asarray(way(xs)), slopes if k in (3, 4) else plain)


def test_branches_that_lanes_take() -> None:
    def f(x: Any) -> Any:
        return cond(x < 1, lambda x: 1.0 / x, lambda x: x, x)

    def entry(v: Any, i: Any) -> Any:
        return cond(i < 6, lambda i: v[i], lambda i: 0.0, i)

    xs = np.array([[3, 2], [0, 1]], np.float32)
    for way in (checked(vmap(vmap(f))), vmap(checked(vmap(f))), checked(jit(vmap(jit(vmap(f)))))):
        assert message(partial(way, xs)) == "`div` divides by zero (in lane (1, 0))"
    run = checked(vmap(entry, in_axes=(None, 0)), errors=index_checks)
    run(fnp.arange(4.0), np.array([0, 3, 9]))
    assert message(lambda: run(fnp.arange(4.0), np.array([0, 9, 5]))) == (
        "index 5 is out of bounds for an axis of size 4 (in lane 2)"
    )
    error, _ = checkify(vmap(f), errors=div_checks)(xs[1])
    assert (error.get() or "").startswith("`div` divides by zero (in lane 0)")


def test_steps_that_lanes_do_not_make() -> None:
    def total(n: Any) -> Any:
        step = lambda c: (c[0] - 1.0, c[1] + 1.0 / c[0])
        return while_loop(lambda c: c[0] > 0, step, (n, 0.0))[1]

    xs = np.array([3, 1, 5], np.float32)
    np.testing.assert_allclose(np.asarray(checked(vmap(total))(xs)), np.asarray(vmap(total)(xs)))
    assert message(lambda: checked(vmap(lambda n: total(n) + 1.0 / (n - 1.0)))(xs)) == (
        "`div` divides by zero"
    )


def test_what_is_traced_for_checks_is_kept_for_them() -> None:
    f = jit(inverse)
    xs = np.array([1, 0], np.float32)
    before = str(make_jaxpr(vmap(f))(xs))
    checked(vmap(f))(xs)
    assert str(make_jaxpr(vmap(f))(xs)) == before
    assert "check" not in before
