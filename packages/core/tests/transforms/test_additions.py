"""The derivative of adding to a block lets cotangents pass, rather than to set them to zero and add them again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import make_jaxpr, vjp
from fiveloop.loops import fori_loop

X = np.arange(12.0).reshape(4, 3)

ADDING: dict[str, Callable[[Any], Any]] = {
    "added": lambda x: x.at[1:].add(x[:-1] * x[0]),
    "set to a sum": lambda x: x.at[1:].set(x[1:] + x[:-1] * x[0]),
    "set to a difference": lambda x: x.at[1:].set(x[1:] - x[:-1] * x[0]),
    "set to a sum of three": lambda x: x.at[1:, 1:].set(
        x[1:, 1:] + x[:-1, 1:] * x[0, 0] + x[1:, :-1]
    ),
}


def weighted_square(x: Any) -> Any:
    return (x * x * np.arange(12.0).reshape(4, 3)).sum()


def numerical(fun: Callable[[Any], Any]) -> np.ndarray:
    """Differences of a quadratic or cubic function of whole numbers, in the middle of a step."""
    out = np.zeros(X.shape)
    for place in np.ndindex(*X.shape):
        step = np.zeros(X.shape)
        step[place] = 1e-4
        out[place] = (float(fun(X + step)) - float(fun(X - step))) / 2e-4
    return out


@pytest.mark.parametrize("name", ADDING)
def test_nothing_is_set_to_zero(name: str) -> None:
    def back(x: Any, ct: Any) -> Any:
        return vjp(ADDING[name], x)[1](ct)

    forward, both = str(make_jaxpr(ADDING[name])(X)), str(make_jaxpr(back)(X, X))
    assert both.count(".set(") <= forward.count(".set(") == 1


@pytest.mark.parametrize("name", ADDING)
def test_derivatives_of_additions(name: str) -> None:
    def fun(x: Any) -> Any:
        return weighted_square(ADDING[name](fnp.asarray(x)))

    (got,) = vjp(fun, X)[1](1.0)
    np.testing.assert_allclose(got, numerical(fun), rtol=1e-5, atol=1e-3)


def test_what_is_set_to_more_of_itself_in_a_loop() -> None:
    def fun(x: Any) -> Any:
        def step(k: Any, x: Any) -> Any:
            x = x.at[k].set(x[k] * 0.5 + x[k + 1])
            return x.at[1:].set(x[1:] + x[1:] * x[:-1])

        return weighted_square(fori_loop(0, 2, step, fnp.asarray(x) * 0.25))

    (got,) = vjp(fun, X)[1](1.0)
    np.testing.assert_allclose(got, numerical(fun), rtol=1e-5, atol=1e-3)


def test_several_elements_at_one_place_are_set_to_the_last() -> None:
    rows = np.array([2, 2])

    def fun(x: Any) -> Any:
        return weighted_square(x.at[rows].set(x[rows] + x[:2] * 3))

    (got,) = vjp(fun, X)[1](1.0)
    np.testing.assert_allclose(got, numerical(lambda x: fun(fnp.asarray(x))), rtol=1e-5, atol=1e-3)
