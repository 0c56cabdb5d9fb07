"""The simulated peak of products of what is normalised, padded or summed is that of the compiler."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import grad, jit, make_jaxpr
from fiveloop.loops import scan
from fiveloop.remat import checkpoint
from fiveloop.remat.timeline import peak, upper

N, WIDE = np.ones((64, 64), np.float32), np.ones((64, 1024), np.float32)


def norms(ws: Any, x: Any) -> Any:
    """The gradient of layers divided by norms: these have inverses, which are computed once and multiplied by."""

    def loss(ws: Any) -> Any:
        h = x
        for w in ws:
            h = h / fnp.sqrt((h * h).mean(-1, keepdims=True) + 1.0) @ w
        return (h * h).mean()

    return grad(loss)(ws)


def squared_relu(ws: Any, us: Any, x: Any) -> Any:
    """The gradient of squares of three axes in checkpoints of a loop: they are flat, as the products are."""
    layer = checkpoint(lambda h, p: (h + fnp.maximum(h @ p[0], 0.0) ** 2 @ p[1], None))
    return grad(lambda p: (scan(layer, x, p)[0] ** 2).mean())((ws, us))


def padded_sums(x: Any, w: Any) -> Any:
    """Two sums of three pads, two of them shared: one of these is also fused into where nothing else has been."""
    s = x @ w
    a, b, c = (fnp.pad(fnp.exp(s[:, k : k + 16]), ((0, 0), (k, 48 - k))) for k in (0, 16, 32))
    return (c + b + a) @ w, (fnp.pad(fnp.sin(s[:, :16]), ((0, 0), (48, 0))) + b + a) @ w.T


def outer_products(x: Any) -> Any:
    """The gradient of outer products of sums: a library takes in both sums of a step, to the last of what adds them."""
    step = checkpoint(lambda x: fnp.tanh(x + fnp.outer(x.sum(0), x.sum(1)) * 0.01))
    return grad(lambda x: (step(step(step(x))) ** 2).sum())(x)


def sums_of_sums(x: Any) -> Any:
    """A sum of sums is one of what they sum, which is read twice."""
    sums = (x * x).sum(axis=0)
    return sums, sums.sum()


@pytest.mark.parametrize(
    ("fun", "args"),
    [
        (sums_of_sums, [np.ones((64, 64), np.float32)]),
        (norms, ([np.ones((4, 4), np.float32) + k for k in range(4)], WIDE.T[:, :4])),
        (
            squared_relu,
            (
                np.ones((3, 64, 128), np.float32),
                np.ones((3, 128, 64), np.float32),
                N + np.zeros((4, 64, 64), np.float32),
            ),
        ),
        (padded_sums, (N, N)),
        (outer_products, (N,)),
    ],
)
def test_the_peak_is_that_of_the_compiler(fun: Any, args: Any) -> None:
    planned = jit(fun).lower(*args).compile().memory_analysis().temp
    told = peak(make_jaxpr(fun)(*args))
    assert 0.95 * planned <= told <= 1.05 * planned


def test_a_matrix_is_not_transposed_before_a_loop_that_saves_few_states() -> None:
    """It would need more memory than the states."""

    def loss(w: Any, xs: Any) -> Any:
        step = lambda h, x: (fnp.tanh((h @ w)[:, :32] + x), None)
        return (scan(step, fnp.zeros((8, 32)), xs, checkpoints=3)[0] ** 2).mean()

    args = WIDE[:32, :256], np.ones((100, 8, 32), np.float32)
    planned = jit(grad(loss)).lower(*args).compile().memory_analysis().temp
    simulated = upper(make_jaxpr(grad(loss))(*args)).peak
    assert planned <= 1.01 * simulated <= 1.05 * planned


def test_an_array_that_no_kernel_computes_again_is_in_memory() -> None:
    """The gradient of a gated recurrence keeps a product in memory that several pads are computed of."""

    def loss(w: Any, u: Any, xs: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            a, b = x @ w, h @ u
            z, r = (1 / (1 + fnp.exp(-(a + b)[:, k : k + 16])) for k in (0, 16))
            h = (1 - z) * h + z * fnp.tanh(a[:, 32:] + r * b[:, 32:])
            return h, (h * h).sum()

        h, sums = scan(step, fnp.zeros((64, 16)), xs)
        return h.mean() + sums.mean()

    derivative = grad(loss, argnums=(0, 1))
    args = WIDE[:16, :48], WIDE[:16, :48], np.ones((2, 64, 16), np.float32)
    planned = jit(derivative).lower(*args).compile().memory_analysis().temp
    assert 0.98 * planned <= upper(make_jaxpr(derivative)(*args)).peak <= 1.02 * planned


def test_a_number_times_an_array_of_ones_is_an_array() -> None:
    """Only what has the shape of the product is the product."""
    x = np.ones((8, 8), np.float32)
    numbers = make_jaxpr(lambda x: (x.sum() * fnp.ones((8, 8))) @ x)(x)
    arrays = make_jaxpr(lambda x: (fnp.sin(x) * fnp.ones((8, 8))) @ x)(x)
    assert peak(numbers) >= x.nbytes
    assert peak(arrays) == x.nbytes


def turned_sums(x: Any, y: Any, u: Any, v: Any, how: str) -> Any:
    """Sums of pads that are transposed and read twice: by arrays that are transposed, too, or are not."""
    first, second = (fnp.pad(a, ((k, 64 - k), (0, 0), (0, 0))) for k, a in ((0, x), (64, y)))
    z = (first + second).transpose(1, 0, 2)
    if how == "behind":
        z = fnp.exp(-z)
    u, v = (a.transpose(1, 0, 2) if how == "alike" else a.reshape(z.shape) for a in (u, v))
    return (z * u + fnp.sin(z * v)) @ np.ones((32, 32), np.float32) @ np.ones((32, 4), np.float32)


@pytest.mark.parametrize("how", ["alike", "apart", "behind"])
def test_what_is_padded_is_in_memory_if_it_is_transposed_for_several(how: str) -> None:
    """Each has a copy of what is transposed, but if all that it computes with is: then its result is transposed."""
    args = [np.ones((n, 8, 32), np.float32) for n in (64, 64, 128, 128)]
    run = partial(turned_sums, how=how)
    planned = jit(run).lower(*args).compile().memory_analysis().temp
    assert planned == upper(make_jaxpr(run)(*args)).peak
