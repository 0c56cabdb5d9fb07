"""Matrices that a loop multiplies with vectors: transposed before it where that pays, and else as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiveloop.core import grad, jit
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


def counted(w: Any, h: Any) -> Any:
    return while_loop(lambda h: (h * h).sum() < 1e6, lambda h: cell(w, h), h)


def transposes(fun: Callable[..., Any], *args: Any) -> list[int]:
    """How many loops are written before each transposition."""
    text = jit(fun).lower(*args).as_text()
    return [part.count("stablehlo.while") for part in text.split("stablehlo.transpose")[:-1]]


@pytest.mark.parametrize("fun", [recurrent, nested, until])
def test_a_matrix_is_transposed_once_before_all_loops(fun: Callable[..., Any]) -> None:
    assert transposes(fun, W, H) == [0]


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
