"""What users of the peer's `while` ask for since 2019 and do not have, by the number of the issue or of the fact.

Above each test stands what the peer (version 0.12, on a CPU) does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import grad, jit, jvp, value_and_grad, vmap
from fiveloop.loops import fori_loop, scan, while_loop
from fiveloop.state import new_ref

BOUNDS: list[dict[str, Any]] = [{}, {"checkpoints": 3}, {"max_steps": 40}]
IDS = ["default", "checkpoints", "max_steps"]


def assert_same(got: Any, want: Any) -> None:
    """Equal but for rounding."""
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-5, atol=1e-6)


def is_far(x: Any, y: Any) -> Any:
    """Whether a guess of the square root of `x` is not good enough."""
    return abs(y * y - x) > 1e-5 * x


def root(x: Any, **bound: Any) -> Any:
    """The square root by Newton's method, from a guess that depends on `x`."""
    better = lambda y: 0.5 * (y + x / y)
    return while_loop(partial(is_far, x), better, 0.3 * x + 0.1, **bound)


def counted_root(x: Any) -> Any:
    """The same in more steps than it takes, of which those that are not needed keep the guess."""
    step = lambda y, _: (fnp.where(is_far(x, y), 0.5 * (y + x / y), y), None)
    return scan(step, 0.3 * x + 0.1, None, length=20)[0]


# Reverse mode of a loop that ends when its value says so (#2469, open; #83, #650): an error about while_loop.
@pytest.mark.parametrize("bound", BOUNDS, ids=IDS)
@pytest.mark.parametrize("wrap", [lambda f: f, jit], ids=["eager", "jit"])
def test_2469_a_loop_that_ends_when_its_value_says_so(
    wrap: Callable[..., Any], bound: dict[str, Any]
) -> None:
    x = np.float32(2.0)
    fun = partial(root, **bound)
    assert_same(wrap(value_and_grad(fun))(x), value_and_grad(counted_root)(x))
    curvature = wrap(grad(grad(fun)))(x)
    assert_same(curvature, grad(grad(counted_root))(x))


# A scan whose gradient keeps some states and computes the others again (#2139, open): by hand, with nested scans.
def test_2139_a_scan_that_saves_some_of_its_states() -> None:
    xs = fnp.linspace(0.0, 1.0, 1000)

    def last(w: Any, **bound: Any) -> Any:
        step = lambda h, x: (fnp.tanh(w @ h + x), None)
        return fnp.sum(scan(step, fnp.ones((16,)), xs, **bound)[0])

    w = 0.1 * fnp.ones((16, 16))
    plain = jit(grad(last)).lower(w).compile()
    saved = jit(grad(partial(last, checkpoints=10))).lower(w).compile()
    assert_same(saved(w), plain(w))
    assert saved.memory_analysis().temp < 0.1 * plain.memory_analysis().temp


# Reverse mode under vmap, of a solver whose lanes take different numbers of steps (#18311, open).
@pytest.mark.parametrize("bound", BOUNDS, ids=IDS)
def test_18311_lanes_that_take_different_numbers_of_steps(bound: dict[str, Any]) -> None:
    lanes = np.array([1.0, 9.0, 100.0, 4.0], np.float32)
    got = jit(vmap(grad(lambda x: root(x, **bound))))(lanes)
    assert_same(got, vmap(grad(counted_root))(lanes))
    summed = jit(grad(lambda x: fnp.sum(vmap(lambda x: root(x, **bound))(x))))(lanes)
    assert_same(summed, got)


# Reverse mode of a fori_loop whose bounds are traced (#1112, #3457): an error about while_loop.
def test_1112_a_fori_loop_with_traced_bounds() -> None:
    def power(x: Any, first: Any, last: Any) -> Any:
        return fori_loop(first, last, lambda i, y: y * x, fnp.ones(()))

    slope = jit(grad(power))
    for first, last in ((0, 5), (2, 4), (3, 3), (4, 1)):
        count = max(last - first, 0)
        assert_same(slope(np.float32(1.5), first, last), count * 1.5 ** (count - 1) if count else 0)
    dots = jit(lambda x, n: jvp(lambda x: power(x, 0, n), (x,), (fnp.ones(()),))[1])
    assert_same(dots(np.float32(1.5), 3), 3 * 1.5**2)
    assert_same(
        jit(vmap(grad(power), (0, None, 0)))(np.ones(3, np.float32), 0, np.arange(3)), [0, 1, 2]
    )


# A condition that reads a Ref which the body writes (F3): it sees the value from before the loop, and never ends.
@pytest.mark.parametrize("bound", BOUNDS, ids=IDS)
@pytest.mark.parametrize("wrap", [lambda f: f, jit], ids=["eager", "jit"])
def test_f3_a_condition_that_reads_what_the_body_writes(
    wrap: Callable[..., Any], bound: dict[str, Any]
) -> None:
    def grown(x: Any) -> Any:
        total = new_ref(fnp.ones(()))

        def body(k: Any) -> Any:
            total[...] *= x
            return k + 1

        steps = while_loop(lambda _: total[...] < 30.0, body, 0, **bound)
        return total[...], steps

    (value, steps), slope = wrap(value_and_grad(grown, has_aux=True))(np.float32(3.0))
    assert (float(value), int(steps)) == (81.0, 4)
    assert_same(slope, 4 * 3.0**3)


# A condition that writes is refused, with the line.
@pytest.mark.parametrize("bound", BOUNDS, ids=IDS)
@pytest.mark.parametrize("wrap", [lambda f: f, jit], ids=["eager", "jit"])
def test_f3_a_condition_that_writes(wrap: Callable[..., Any], bound: dict[str, Any]) -> None:
    def summed(x: Any) -> Any:
        total = new_ref(fnp.zeros(()))

        def goes_on(power: Any) -> Any:
            total[...] += power
            return total[...] < 30.0

        return while_loop(goes_on, lambda power: power * x, x, **bound)

    with pytest.raises(TypeError) as caught:
        wrap(summed)(np.float32(2.0))
    line = summed.__code__.co_firstlineno + 4
    message = str(caught.value)
    assert "cond_fun must only read Refs" in message
    assert f"{Path(__file__).name}:{line} (goes_on); write in body_fun" in message
