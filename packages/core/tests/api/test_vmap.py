"""`vmap`: axes in and out, pytrees, nesting, sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fiveloop.core import Array, grad, jit, jvp, vmap
from fiveloop.core.extend import as_value
from fiveloop.core.primitives.special import sin
from fiveloop.core.pytree import tree_leaves
from fiveloop.testing.core.compare import assert_all_close, assert_close

X = np.arange(3, dtype=np.float32)
M = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize("in_axis", [0, 1, -1, -2])
@pytest.mark.parametrize("out_axis", [0, 1, -1])
def test_axes(in_axis: int, out_axis: int) -> None:
    got = vmap(lambda row: row * 2 + 1, in_axes=in_axis, out_axes=out_axis)(M)
    assert_close(got, np.moveaxis(np.moveaxis(M * 2 + 1, in_axis, 0), 0, out_axis))


def test_shared_arguments() -> None:
    assert_close(vmap(lambda a, b: a * b, in_axes=(None, 0))(X, M), X * M)
    assert_close(vmap(lambda a, b: a * b, in_axes=[0, None])(M, 2.0), M * 2)


def test_pytrees_and_prefixes() -> None:
    def f(d: Any, y: Any) -> Any:
        return {"p": d["a"] * d["b"], "q": [y]}

    got = vmap(f, in_axes=({"a": 0, "b": None}, 0), out_axes={"p": 0, "q": 1})(
        {"a": M, "b": 2.0}, M
    )
    assert_all_close(tree_leaves(got), [M * 2, M.T])


def test_keyword_arguments_are_batched_in_front() -> None:
    assert_close(vmap(lambda a, *, b: a * b)(M, b=M), M * M)


def test_results_that_do_not_depend_on_the_batch() -> None:
    assert_close(vmap(lambda a: 1.0)(X), np.ones(3, np.float32))
    one: object = vmap(lambda a: 1.0, out_axes=None)(X)
    assert isinstance(one, Array)
    assert_close(one, np.float32(1))


def test_axis_size() -> None:
    assert_close(vmap(lambda: 2.0, axis_size=3)(), np.full(3, 2, np.float32))
    assert_close(vmap(lambda a: a, in_axes=None, axis_size=2)(X), np.stack([X, X]))


def test_nested() -> None:
    outer = vmap(vmap(lambda a, b: a * b, in_axes=(None, 0)), in_axes=(0, None))
    assert_close(outer(X, X), np.outer(X, X))
    assert_close(vmap(vmap(sin))(M), np.sin(M))


def test_within_and_around_jit() -> None:
    assert_close(jit(vmap(lambda a: a.sum()))(M), M.sum(1))
    assert_close(vmap(jit(lambda a: a.sum()))(M), M.sum(1))


def test_closures_over_a_batched_value() -> None:
    got = vmap(lambda row: vmap(lambda a: a * row.sum())(row))(M)
    assert_close(got, M * M.sum(1, keepdims=True))
    assert_close(
        vmap(lambda row: jit(lambda a: a * row.sum())(row))(M), M * M.sum(1, keepdims=True)
    )


def test_derivatives() -> None:
    assert_close(vmap(grad(lambda row: (row**3).sum()))(M), 3 * M * M)
    value, change = vmap(lambda row, dot: jvp(sin, (row,), (dot,)))(M, M)
    assert_all_close([value, change], [np.sin(M), np.cos(M) * M])


def test_arrays_without_elements() -> None:
    assert_close(vmap(lambda a: a * 2)(np.zeros((0, 3), np.float32)), np.zeros((0, 3), np.float32))
    assert_close(vmap(lambda a: a.sum())(np.zeros((2, 0), np.float32)), np.zeros(2, np.float32))


def test_integers_and_wide_types() -> None:
    x = np.arange(4, dtype=np.int64)
    assert_close(vmap(lambda a: a * 2 + 1)(x), x * 2 + 1)
    assert_close(vmap(lambda a: a * 2)(x.astype(np.float64)), x * 2.0)


@pytest.mark.parametrize("way", [lambda f: f, jit])
def test_no_lanes_with_an_index_of_their_own(way: Any) -> None:
    x, k = np.zeros((0, 4)), np.zeros(0, np.int32)
    assert way(vmap(lambda x, k: x[k]))(x, k).shape == (0,)
    assert way(vmap(lambda x, k: as_value(x).at[k].set(1.0)))(x, k).shape == (0, 4)
    shared = as_value(np.ones(4))
    assert way(vmap(lambda k: shared.at[k].add(1.0)))(k).shape == (0, 4)
    assert way(vmap(grad(lambda x, k: x[k] * 2.0)))(x, k).shape == (0, 4)
