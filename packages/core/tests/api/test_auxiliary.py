"""`has_aux`: what a function gives beside its result comes back as it is, arrays and anything else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiveloop.core import (
    Array,
    grad,
    hessian,
    jacfwd,
    jacrev,
    jit,
    jvp,
    linearize,
    value_and_grad,
    vjp,
    vmap,
)
from fiveloop.testing.core.compare import assert_close

X = np.array([0.5, -1.0, 2.0])


class Note:
    """Something that is no array."""


NOTE = Note()


def noted(x: Any) -> Any:
    return (x * x).sum(), {"half": x / 2.0, "name": "x", "note": (NOTE, None, X), "count": 3}


WAYS: list[Callable[[Any, Any], Any]] = [
    lambda f, x: grad(f, has_aux=True)(x)[1],
    lambda f, x: value_and_grad(f, has_aux=True)(x)[0][1],
    lambda f, x: jvp(f, (x,), (x,), has_aux=True)[2],
    lambda f, x: linearize(f, x, has_aux=True)[2],
    lambda f, x: vjp(f, x, has_aux=True)[2],
    lambda f, x: jacfwd(f, has_aux=True)(x)[1],
    lambda f, x: jacrev(f, has_aux=True, chunk=1)(x)[1],
    lambda f, x: hessian(f, has_aux=True, chunk=2)(x)[1],
]


@pytest.mark.parametrize("way", WAYS)
def test_leaves_that_are_no_arrays(way: Callable[[Any, Any], Any]) -> None:
    aux = way(noted, X)
    assert_close(aux["half"], X / 2)
    assert aux["name"] == "x" and aux["note"][0] is NOTE and aux["note"][1] is None
    assert isinstance(aux["note"][2], Array) and aux["count"].item() == 3


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("around", [jit, vmap])
def test_within_other_transforms(way: Callable[[Any, Any], Any], around: Any) -> None:
    seen: list[Any] = []

    def f(x: Any) -> Any:
        aux = way(noted, x)
        seen.append((aux["name"], aux["note"][0]))
        return aux["half"]

    assert_close(around(f)(X), X / 2)
    assert seen == [("x", NOTE)]
