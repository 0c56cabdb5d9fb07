"""The memory of loops whose operands and results the compiler lays out in its own way, beside what XLA has counted."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import grad, jit, make_jaxpr
from fiveloop.loops import for_loop, scan
from fiveloop.remat.timeline import upper

W: Any = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)


def test_the_results_of_a_loop_may_come_out_in_their_own_order() -> None:
    """The gradient of the weights is two products: one waits for a result of the loop that comes last, or first."""

    def loss(w: Any, x: Any) -> Any:
        def step(h: Any, y: Any) -> tuple[Any, None]:
            return fnp.tanh((h + y) @ w), None

        return (scan(step, fnp.tanh(x @ w), np.ones((16, 64), np.float32))[0] ** 2).sum()

    f, args = grad(loss, argnums=(0, 1)), (W, np.ones((4, 64), np.float32))
    planned = jit(f).lower(*args).compile().memory_analysis().temp
    assert planned <= 1.01 * upper(make_jaxpr(f)(*args)).peak <= 1.05 * planned


def test_a_matrix_that_is_transposed_before_a_loop_takes_memory() -> None:
    """The cotangents of few rows are multiplied with the transposed weights, which the loop in reverse is given."""
    outs = lambda h, y: (fnp.tanh(h @ W + y), None)
    loss = lambda h, ys: (scan(outs, h, ys)[0] ** 2).sum()
    args = np.ones((4, 64), np.float32), np.ones((16, 4, 64), np.float32)
    planned = jit(grad(loss)).lower(*args).compile().memory_analysis().temp
    simulated = upper(make_jaxpr(grad(loss))(*args)).peak
    assert planned <= 1.01 * simulated <= 1.1 * planned


def test_a_matrix_is_transposed_before_a_loop_that_multiplies_its_transpose() -> None:
    """The steps multiply few rows with the transposed weights: what is transposed before it are the weights."""
    steps = lambda h, y: (fnp.tanh(h @ W.T + y), None)
    loss = lambda h, ys: (scan(steps, h, ys)[0] ** 2).sum()
    args = np.ones((4, 64), np.float32), np.ones((16, 4, 64), np.float32)
    planned = jit(loss).lower(*args).compile().memory_analysis().temp
    simulated = upper(make_jaxpr(loss)(*args)).peak
    assert planned <= 1.01 * simulated <= 1.1 * planned


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


MATRICES = ones(64, 256), ones(64, 8)
"""A product with the first is large, and one with the second small: it matters which is computed first."""

ORDERS = pytest.mark.parametrize(
    ("names", "last_first"),
    [(names, turned) for names in (("exp", "tanh"), ("tanh", "exp")) for turned in (False, True)],
)
"""Which function is written first, and whether the last product comes first among the results."""


def two_products(h: Any, names: Sequence[str], last_first: bool) -> list[Any]:
    """Sums of a large product and of a small one with functions of a value."""
    made = {name: getattr(fnp, name)(h) for name in names}
    outs = [(made[name] @ w).sum() for name, w in zip(("exp", "tanh"), MATRICES, strict=True)]
    return outs[::-1] if last_first else outs


def assert_exact(f: Callable[..., Any], *args: Any) -> None:
    planned = jit(f).lower(*args).compile().memory_analysis().temp
    assert planned <= 1.01 * upper(make_jaxpr(f)(*args)).peak <= 1.02 * planned


@ORDERS
def test_what_uses_a_reshaped_product_comes_in_the_order_in_which_it_was_written(
    names: tuple[str, str], last_first: bool
) -> None:
    """The last one comes first: where the reshape is moved behind all of them, it comes into the place of that."""
    assert_exact(lambda x, w: two_products(x @ w, names, last_first), ones(4, 16, 32), ones(32, 64))


def looped(two: Callable[..., list[Any]], taken_out: bool, **how: Any) -> Callable[..., Any]:
    """Steps with two products. An older compiler takes the product of two numbers out, if that is `taken_out`."""

    def run(ys: Any) -> Any:
        def step(carry: Any, y: Any) -> tuple[Any, None]:
            scale, sums = carry
            outs = two(y, scale)
            scale = scale * 0.3 * 0.7 if taken_out else scale * 0.3
            return (scale, [a + b for a, b in zip(sums, outs, strict=True)]), None

        return scan(step, (fnp.zeros(()), [fnp.zeros(())] * 2), ys, **how)[0]

    return run


@ORDERS
@pytest.mark.parametrize("taken_out", [False, True])
def test_a_step_is_copied_once_something_is_taken_out_of_it(
    names: tuple[str, str], last_first: bool, taken_out: bool
) -> None:
    """The copy is written in the order in which the results need it; before it is that in which it was traced."""

    def run(x: Any, w: Any) -> Any:
        two = lambda y, scale: two_products((x + scale) @ w, names, last_first)
        return looped(two, taken_out)(ones(5))

    assert_exact(run, ones(4, 16, 32), ones(32, 64))


@ORDERS
@pytest.mark.parametrize("taken_out", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_the_last_user_of_what_counts_the_steps_comes_first(
    names: tuple[str, str], last_first: bool, taken_out: bool, reverse: bool
) -> None:
    """By that the values of a step are taken from those of all steps."""
    two = lambda y, scale: two_products(y, names, last_first)
    assert_exact(looped(two, taken_out, reverse=reverse), ones(5, 64, 64))


def repeated(step: Callable[..., Any], num: int) -> Callable[[Any], Any]:
    """Steps with so many values, each of which begins as a multiple of an array, and the sum of their product."""

    def run(x: Any) -> Any:
        given = tuple(x * (k + 2) for k in range(num))
        made = scan(lambda c, _: (step(*c), None), given, None, length=5)[0]
        return math.prod(made).sum()

    return run


def summed_in_turn(x: Any) -> Any:
    """Sums of elements, whose start is that of the gradient in the next loop, too."""

    def add(k: Any, y: Any) -> None:
        y[k % 64] += fnp.sin(x[k])

    return (for_loop(4_096, add, fnp.zeros(4_096, np.float32)) ** 2).sum()


def written_and_read(x: Any) -> Any:
    """A row is written, and then all rows change by that one."""

    def change(k: Any, y: Any) -> None:
        y[k] = y[k] / (1 + y[k] * y[k])
        y[...] = y[...] - y[k] * 0.01

    return (for_loop(64, change, x * 2) ** 2).sum()


PROGRAMS: dict[str, Callable[..., Any]] = {
    "multiplied": lambda x: scan(lambda h, _: (h @ x, None), x, None, length=5)[0],
    "reversed": repeated(lambda h: (h[::-1],), 1),
    "row read elsewhere": repeated(lambda h: (fnp.tanh(h) + h.at[1].set(fnp.sin(h[0])),), 1),
    "swapped": repeated(lambda u, v: (fnp.sin(v), fnp.cos(u)), 2),
    "handed on": repeated(lambda u, v: (fnp.sin(u) - v, u), 2),
    "wave": repeated(lambda u, v: (2 * u - v + 0.1 * (fnp.roll(u, 1, 0) - u), u), 2),
    "leapfrog": repeated(lambda q, p: (q + 0.1 * (p - fnp.sin(q)), p - fnp.sin(q)), 2),
    "each reads all": repeated(lambda a, b, c: (a + b, b * c - a, c + a * b), 3),
    "summed in turn": grad(summed_in_turn),
    "written and read": written_and_read,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_a_step_would_write_over_too_early_is_copied(name: str) -> None:
    assert_exact(PROGRAMS[name], ones(4_096) if name == "summed in turn" else W)
