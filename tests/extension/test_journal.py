"""A second effect from outside of the tree, which does something of its own in each step of a loop."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import grad, hessian, jit, make_jaxpr, vmap
from fiveloop.core.extend import typecheck
from fiveloop.loops import cond, for_loop, fori_loop, while_loop
from fiveloop.remat import checkpoint

HERE = Path(__file__).parent
Rows = list[tuple[float, ...]]


@pytest.fixture(scope="module")
def package() -> Any:
    sys.path.insert(0, str(HERE))
    try:
        yield import_module("journal")
    finally:
        sys.path.remove(str(HERE))


def written(package: Any, f: Callable[..., Any], *args: Any) -> Rows:
    """The rows that the one program of `f(*args)` writes down."""
    package.journals.clear()
    f(*args)
    (rows,) = package.journals
    return [tuple(round(x, 3) for x in row) for row in rows]


def looped(package: Any) -> Callable[[Any], Any]:
    """A row, and two more of another length in a loop."""

    def f(x: Any) -> Any:
        def body(i: Any, r: Any) -> None:
            package.write_down(r[...], i)
            r[...] = r[...] * 0.5

        package.write_down(x)
        return for_loop(2, body, x)

    return f


ONE = [(-1.0, 1.0), (0.0, 1.0, 0.0), (1.0, 0.5, 1.0)]
THREE = [(-1.0, 3.0), (0.0, 3.0, 0.0), (1.0, 1.5, 1.0)]
"""The rows from 1 and from 3: the step first."""


def test_once_in_every_transform(package: Any) -> None:
    f = looped(package)
    typecheck(make_jaxpr(f)(1.0))
    one = np.float32(1)
    for way in (
        f,
        jit(f),
        grad(f),
        jit(grad(checkpoint(lambda x: fnp.sin(f(x))))),
        jit(hessian(f)),
    ):
        package.journals.clear()
        way(one)
        assert [row for rows in package.journals for row in rows] == ONE


def test_lanes(package: Any) -> None:
    f = looped(package)
    both = [row for pair in zip(ONE, THREE, strict=True) for row in pair]

    def chosen(x: Any) -> Any:
        return cond(x > 0, f, lambda x: x, x)

    def in_series(x: Any) -> Any:
        return cond(x > 0, f, lambda x: x, x, vmap="serial")

    xs = np.array([1, -2, 3], np.float32)
    assert written(package, jit(vmap(f)), xs[::2]) == both
    assert written(package, jit(vmap(chosen)), xs) == both
    assert written(package, jit(vmap(grad(chosen))), xs) == both
    assert written(package, jit(vmap(in_series)), xs) == ONE + THREE


def test_while_loops_count_their_steps(package: Any) -> None:
    def f(n: Any) -> Any:
        return while_loop(lambda c: c < n, lambda c: (package.write_down(10 * c), c + 1)[1], 0)

    assert written(package, jit(f), 2) == [(0, 0), (1, 10)]
    lanes = written(package, jit(vmap(f)), np.array([2, 0, 3]))
    assert lanes == [(0, 0), (0, 0), (1, 10), (1, 10), (2, 20)]


def test_rows_are_written_in_place(package: Any) -> None:
    def f(x: Any) -> Any:
        return fori_loop(0, 50, lambda i, c: (package.write_down(c), c + 1)[1], x)

    assert jit(f).lower(1.0).compile().copies == 0
    rows = written(package, jit(f), 1.0)
    assert (len(rows), rows[49]) == (50, (49.0, 50.0))
