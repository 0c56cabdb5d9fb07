"""Matrices that a loop multiplies with vectors: transposed before it where that pays, and else as they are."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from fiveloop.core import grad, jit, vmap
from fiveloop.core.primitives.special import tanh
from fiveloop.loops import fori_loop, scan, while_loop

RNG = np.random.default_rng(0)
W: Any = RNG.normal(size=(64, 16)).astype(np.float32) / 4
H: Any = RNG.normal(size=16).astype(np.float32)


def cell(w: Any, h: Any) -> Any:
    parts = tanh(w @ h).reshape(4, -1)
    return 0.3 * (parts[0] * h + parts[1] * parts[2] + parts[3])


def recurrent(w: Any, h: Any, steps: int = 64, **options: Any) -> Any:
    return scan(lambda h, _: (cell(w, h), None), h, None, steps, **options)[0]


def nested(w: Any, h: Any) -> Any:
    return fori_loop(0, 8, lambda _, h: recurrent(w, h, 8), h)


def until(w: Any, h: Any) -> Any:
    return while_loop(lambda h: (h * h).sum() < 1e6, lambda h: cell(w, h), h, max_steps=1024)


def counted(w: Any, h: Any, **options: Any) -> Any:
    return while_loop(lambda h: (h * h).sum() < 1e6, lambda h: cell(w, h), h, **options)


def gradient(fun: Callable[..., Any], slots: int) -> Callable[..., Any]:
    """The gradient of a loop that saves so many states; it needs the loop's result."""
    return grad(lambda w, h: (fun(w, h, checkpoints=slots) ** 2).sum(), argnums=(0, 1))


def transposes(fun: Callable[..., Any], *args: Any) -> list[int]:
    """How many loops are written before each transposition."""
    text = jit(fun).lower(*args).as_text()
    return [part.count("stablehlo.while") for part in text.split("stablehlo.transpose")[:-1]]


@pytest.mark.parametrize("fun", [recurrent, nested, until])
def test_a_matrix_is_transposed_once_before_all_loops(fun: Callable[..., Any]) -> None:
    assert transposes(fun, W, H) == [0]


@pytest.mark.parametrize("fun", [partial(recurrent, steps=128), counted])
def test_matrices_are_transposed_where_what_is_saved_takes_half_as_much_again(
    fun: Callable[..., Any],
) -> None:
    enough = W.nbytes * 3 // 2 // H.nbytes
    assert transposes(gradient(fun, enough), W, H) == [0]
    assert transposes(gradient(fun, 3 * enough // 4), W, H) == []
    text = jit(gradient(fun, enough)).lower(W, H).as_text()
    assert (
        "contracting_dims = [1] x [0] : (tensor<64x16xf32>" not in text
    )  # the steps run again use it too


def test_what_a_loop_stacks_is_not_taken_for_a_state() -> None:
    def stacking(w: Any, h: Any) -> Any:
        return scan(lambda h, _: (cell(w, h), h), h, None, 64, checkpoints=3)

    assert transposes(stacking, W, H) == []


@pytest.mark.parametrize(
    ("fun", "w"),
    [
        (lambda w, h: recurrent(w, h, 63), W),
        (lambda w, h: recurrent(w, h, checkpoints=3), W),
        (lambda w, h: recurrent(w, h[:10]), W[:40, :10]),
        (counted, W),
        (cell, W),
        (lambda w, h: recurrent(w, h.astype(np.float64)), W.astype(np.float64)),
        (lambda w, h: scan(lambda c, _: ((c[0] * 2, cell(*c)), None), (w, h), None, 64)[0], W),
    ],
    ids=["few steps", "few states", "rows", "nobody knows", "no loop", "float64", "it changes"],
)
def test_other_matrices_stay_as_they_are(fun: Callable[..., Any], w: Any) -> None:
    assert transposes(fun, w, H) == []


@pytest.mark.parametrize(
    ("vectors", "steps", "found"), [(1, 64, [0]), (32, 16, [0]), (33, 64, []), (4, 15, [])]
)
def test_a_matrix_of_several_vectors(vectors: int, steps: int, found: list[int]) -> None:
    h = RNG.normal(size=(vectors, 16)).astype(np.float32)
    each = lambda w, h: vmap(lambda h: recurrent(w, h, steps))(h)
    assert transposes(each, W, h) == found
    want = np.stack([jit(partial(recurrent, steps=steps))(W, x) for x in h])
    np.testing.assert_allclose(jit(each)(W, h), want, rtol=1e-5, atol=1e-6)


def test_the_cotangents_of_rows_are_several_vectors() -> None:
    """The gradient of h @ w multiplies by w transposed."""
    rows = lambda w, h: scan(lambda h, _: (tanh(h @ w), None), h, None, 64)[0].sum()
    w, h = W[:16], RNG.normal(size=(4, 16)).astype(np.float32)
    assert transposes(rows, w, h) == []
    assert transposes(grad(rows, argnums=1), w, h) == [1]


def test_a_transpose_that_is_multiplied_in_each_step_is_not_made_there() -> None:
    """Rows of `w.T` are summed as they lie in `w`; those of `w`, of several vectors, are transposed before the loop."""
    w, h = RNG.normal(size=(64, 64)).astype(np.float32) / 8, W[:, 0]
    each = lambda w, h: fori_loop(0, 64, lambda _, h: tanh(w.T @ h), h)
    text = jit(each).lower(w, h).as_text()
    assert "[0] x [0] : (tensor<64x64xf32>, tensor<64xf32>)" in text
    rows = lambda w, h: fori_loop(0, 64, lambda _, h: tanh(h @ w.T), h)
    hs = RNG.normal(size=(4, 64)).astype(np.float32)
    assert transposes(rows, w, hs) == [0, 1]  # the second has no use: XLA drops it
    want = np.stack([jit(each)(w.T.copy(), h) for h in hs])
    np.testing.assert_allclose(jit(rows)(w, hs), want, rtol=1e-4, atol=1e-5)


def test_values_and_gradients_are_those_of_the_steps_alone() -> None:
    def steps(w: Any, h: Any) -> Any:
        for _ in range(64):
            h = cell(w, h)
        return h

    def loss(fun: Callable[..., Any]) -> Callable[..., Any]:
        return lambda w, h: (fun(w, h) ** 2).sum()

    for fun in (recurrent, nested):
        np.testing.assert_allclose(jit(fun)(W, H), steps(W, H), rtol=1e-4, atol=1e-5)
        found = jit(grad(loss(fun), argnums=(0, 1)))(W, H)
        want = grad(loss(steps), argnums=(0, 1))(W, H)
        for x, y in zip(found, want, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-4)


def test_a_loop_that_saves_states_has_the_gradient_of_one_that_keeps_its_steps() -> None:
    kept = lambda w, h: (recurrent(w, h, 128) ** 2).sum()
    found = jit(gradient(partial(recurrent, steps=128), 96))(W, H)
    want = jit(grad(kept, argnums=(0, 1)))(W, H)
    for x, y in zip(found, want, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-6)
