"""Gradients of loops that write a few elements of a large array: steps are taped together, not copied one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import grad, jit, jvp, make_jaxpr, value_and_grad
from fiveloop.loops import fori_loop, reversal, while_loop
from fiveloop.loops.primitives.replay import replay_p
from fiveloop.state import new_ref

SIZE = 100
DRAW = np.random.default_rng(0)
LINKS = np.empty(SIZE, np.int32)
ORDER = np.append(0, 1 + DRAW.permutation(SIZE - 1)).astype(np.int32)
LINKS[ORDER] = np.roll(ORDER, -1)
X, W = DRAW.standard_normal((2, SIZE)).astype(np.float32)
P = np.float32(0.8)


def step(x: Any, p: Any, y: Any, at: Any) -> Any:
    """Write the next element, computed from the last one written."""
    to = fnp.asarray(LINKS)[at]
    y[to] = fnp.tanh(p * y[at] + x[to])
    return to


def chased(x: Any, p: Any) -> Any:
    """Follow links through an array until they end."""
    y = new_ref(fnp.zeros_like(x))
    y[0] = x[0]
    goes_on = lambda at: fnp.asarray(LINKS)[at] != 0
    while_loop(goes_on, lambda at: step(x, p, y, at), fnp.zeros((), np.int32))
    return fnp.sum(W * y[...] ** 2)


def counted(x: Any, p: Any) -> Any:
    """The same, in a loop whose number of steps is known."""
    y = new_ref(fnp.zeros_like(x))
    y[0] = x[0]
    fori_loop(0, SIZE - 1, lambda _, at: step(x, p, y, at), fnp.zeros((), np.int32))
    return fnp.sum(W * y[...] ** 2)


def sorted_by_insertion(x: Any) -> Any:
    """Sort in place: an element falls while it is smaller than the one before it, then it is the next one's turn."""
    y = new_ref(x)

    def body(val: Any) -> Any:
        i, unsorted = val
        left, right = y[i - 1], y[i]
        falls = right < left
        y[i - 1] = fnp.where(falls, right, left)
        y[i] = fnp.where(falls, left, right)
        goes_on = falls & (i > 1)
        return fnp.where(goes_on, i - 1, unsorted), unsorted + fnp.where(goes_on, 0, 1)

    one = fnp.ones((), np.int32)
    while_loop(lambda val: val[0] < x.shape[0], body, (one, one + 1))
    return y[...]


def replays(fun: Any, *args: Any) -> list[Any]:
    """The params of the replays of a function that have a way back."""
    eqns = make_jaxpr(fun)(*args).eqns
    return [e.params for e in eqns if e.primitive is replay_p and e.params.num_backward]


def test_several_steps_are_taped_together() -> None:
    (params,) = replays(grad(chased, (0, 1)), X, P)
    taped = reversal.leaf_of(params)
    assert taped is not None
    assert 1 < taped.steps < SIZE // 2


def test_a_state_whose_residuals_are_as_large_is_saved_for_each_step() -> None:
    run = lambda x: fnp.sum(while_loop(lambda y: y[0] < 100.0, lambda y: y * y, x))
    (params,) = replays(grad(run), np.full(1000, 1.5, np.float32))
    assert reversal.leaf_of(params) is None


def test_the_gradient_is_that_of_the_counted_loop() -> None:
    got = jit(value_and_grad(chased, (0, 1)))(X, P)
    want = jit(value_and_grad(counted, (0, 1)))(X, P)
    np.testing.assert_allclose(got[0], want[0], rtol=1e-6)
    np.testing.assert_allclose(got[1][0], want[1][0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(got[1][1], want[1][1], rtol=1e-5)


def test_the_second_derivative_is_that_of_the_counted_loop() -> None:
    for fun in (grad, lambda f: lambda x, p: jvp(lambda p: f(x, p), (p,), (fnp.ones(()),))[1]):
        got, want = (jit(fun(grad(f, 1)))(X, P) for f in (chased, counted))
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [3, 40, 90])
def test_the_gradient_of_a_sort_is_its_permutation(size: int) -> None:
    x, w = X[:size], W[:size]
    found, slope = jit(value_and_grad(lambda x: fnp.sum(w * sorted_by_insertion(x))))(x)
    order = np.argsort(x)
    np.testing.assert_allclose(found, np.sum(w * x[order]), rtol=1e-5)
    want = np.empty_like(w)
    want[order] = w
    np.testing.assert_array_equal(slope, want)


def test_nothing_as_large_as_the_state_is_kept_of_a_step() -> None:
    def temp(size: int) -> int:
        def run(x: Any) -> Any:
            return fnp.sum(sorted_by_insertion(x))

        compiled = jit(grad(run)).lower(fnp.zeros((size,), np.float32)).compile()
        return compiled.memory_analysis().temp

    # A hundred times the size takes a hundred times the memory of one step, not ten thousand times.
    assert temp(20_000) < 150 * temp(200)


@pytest.mark.parametrize("length", [0, 1, 63, 64, 65, 200])
def test_small_steps_are_taped_together_where_nobody_says_how_many_states_are_saved(
    length: int,
) -> None:
    def last(x: Any, p: Any) -> Any:
        body = lambda val: (val[0] + 1, fnp.sin(p * val[1]) + 0.1 * val[1])
        return while_loop(lambda val: val[0] < length, body, (fnp.zeros((), np.int32), x))[1]

    def plain(x: Any, p: Any) -> Any:
        return fori_loop(0, length, lambda _, x: fnp.sin(p * x) + 0.1 * x, x)

    x, p = np.float32(0.7), np.float32(0.9)
    (params,) = replays(grad(last, (0, 1)), x, p)
    taped = reversal.leaf_of(params)
    assert taped is not None
    assert taped.steps == 64
    got, want = (jit(grad(f, (0, 1)))(x, p) for f in (last, plain))
    np.testing.assert_allclose(got, want, rtol=1e-5)
