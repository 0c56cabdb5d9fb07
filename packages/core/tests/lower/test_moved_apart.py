"""Arrays that are computed, and of which parts are moved: XLA:CPU computes them once, in a kernel of their own."""

from __future__ import annotations

from typing import Any

import numpy as np

import fiveloop.numpy as fnp
from fiveloop.core import extend, grad, jit
from fiveloop.core.extend import hlo
from fiveloop.core.inspect import recomputes_in_branches
from fiveloop.loops import fori_loop

APART = 'inlineable = "false"' if recomputes_in_branches() else "optimization_barrier"


def dilated(x: Any) -> Any:
    """The largest of each element and its neighbours, several times."""

    def step(_: Any, x: Any) -> Any:
        x = fnp.maximum(fnp.maximum(x, fnp.roll(x, 1, 0)), fnp.roll(x, -1, 0))
        return fnp.maximum(fnp.maximum(x, fnp.roll(x, 1, 1)), fnp.roll(x, -1, 1))

    return (fori_loop(0, 3, step, x) ** 2).sum()


def lowered(size: int) -> str:
    return str(jit(grad(dilated)).lower(np.ones((size, size), "f4")).as_text())


def test_what_is_computed_and_moved_is_computed_first_if_it_is_large() -> None:
    assert APART in lowered(64)
    assert APART not in lowered(8)


def neighbours(steps: int) -> Any:
    """A function that adds neighbours, several times."""

    def run(x: Any) -> Any:
        for _ in range(steps):
            x = x + 0.5 * fnp.roll(x, 1) - 0.25 * fnp.roll(x, -1)
        return x

    return run


def kernels(fun: Any, *args: Any) -> int:
    return str(jit(fun).lower(*args).as_text()).count(APART)


def test_steps_that_read_neighbours_are_computed_one_after_the_other() -> None:
    assert kernels(neighbours(5), np.ones(2**16, "f4")) == 4
    assert kernels(neighbours(5), np.ones(64, "f4")) == 0


def test_in_a_loop_it_pays_to_keep_smaller_arrays() -> None:
    x, run = np.ones(2**10, "f4"), neighbours(3)
    assert kernels(lambda x: fori_loop(0, 5, lambda _, y: run(y), x), x) == 2
    assert kernels(run, x) == (1 if recomputes_in_branches() else 2)


def test_what_nothing_moves_is_left_to_the_compiler() -> None:
    x = np.ones(2**16, "f4")
    assert kernels(lambda x, y: ((fnp.sin(x) * x).sum(), fnp.sin(x) @ y, fnp.sin(x) + y), x, x) == 0


def test_values_of_steps_that_read_neighbours() -> None:
    x = np.random.default_rng(0).standard_normal(2**12).astype("f4")
    want = x.astype("f8")
    for _ in range(5):
        want = want + 0.5 * np.roll(want, 1) - 0.25 * np.roll(want, -1)
    np.testing.assert_allclose(np.asarray(jit(neighbours(5))(x)), want, rtol=1e-4, atol=1e-5)


def test_derivatives_of_what_is_moved() -> None:
    x = np.random.default_rng(0).permutation(64 * 64).reshape(64, 64).astype("f4")
    got = np.asarray(jit(grad(dilated))(x))
    near = range(-3, 4)
    shifted = [np.roll(x, (i, j), (0, 1)) for i in near for j in near]
    values, counts = np.unique(np.max(shifted, axis=0), return_counts=True)
    want = np.zeros_like(x).reshape(-1)
    want[np.searchsorted(np.arange(64 * 64), values)] = 2 * values * counts
    np.testing.assert_allclose(got.reshape(-1)[np.argsort(x.reshape(-1))], want, rtol=1e-6)


def test_a_part_that_nothing_uses() -> None:
    def fun(x: Any) -> Any:
        joined = fnp.concatenate([np.ones(2, "f4"), x])
        return (joined * joined).sum()

    np.testing.assert_array_equal(jit(grad(fun))(np.ones(3, "f4")), np.full(3, 2, "f4"))


turned_p: extend.Primitive[extend.NoParams] = extend.Primitive("turned")
extend.define(
    turned_p,
    abstract_eval=extend.pure(lambda avals, p: [avals[0].strong()]),
    lower=lambda ctx, xs, p: [hlo.neg(ctx.b, xs[0])],
    jvp=extend.Refusal("not needed here"),
    batch=extend.Refusal("not needed here"),
    by_element=True,
)


def test_a_primitive_of_the_user_that_has_no_cost_may_be_moved() -> None:
    def fun(x: Any) -> Any:
        return neighbours(2)(extend.bind1(turned_p, extend.as_value(x, "x")))

    x = np.arange(2.0**12, dtype="f4")
    np.testing.assert_array_equal(jit(fun)(x), jit(neighbours(2))(-x))


def test_what_is_joined_and_used_twice_is_computed_once_anyhow() -> None:
    def exchanges(x: Any) -> Any:
        for _ in range(8):
            first, second = x[0], x[1]
            joined = fnp.stack([fnp.minimum(first, second), fnp.maximum(first, second)], axis=1)
            x = joined.reshape(2, -1)
        return x

    assert kernels(exchanges, np.ones((2, 2**11), "f4")) == 0
