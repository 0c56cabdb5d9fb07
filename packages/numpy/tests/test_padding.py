"""Padding and diagonals: the elements are NumPy's, and no array of places is passed to the program."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fiveloop import numpy as fnp
from fiveloop.core import grad, jit, make_jaxpr, vmap
from fiveloop.numpy import manipulation

MODES = ("edge", "wrap", "reflect", "symmetric")
X = np.arange(24.0, dtype=np.float32).reshape(2, 3, 4)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_pads_narrower_and_wider_than_the_axis(mode: str, size: int) -> None:
    x = np.arange(1.0, size + 1)
    widths = [(0, 1), (1, 0), (1, 1), (2, 3), (4, 5), (6, 13), (40, 7), (75, 75)]
    run = jit(lambda x: tuple(fnp.pad(x, pair, mode=mode) for pair in widths))
    for got, pair in zip(run(x), widths, strict=True):
        np.testing.assert_array_equal(got, np.pad(x, pair, mode=mode))  # type: ignore[call-overload]


@pytest.mark.parametrize("mode", MODES)
def test_axes_are_padded_one_after_the_other(mode: str) -> None:
    for widths in (1, (2, 0), [(0, 1), (5, 2), (0, 0)]):
        want = np.pad(X, widths, mode=mode)  # type: ignore[call-overload]
        np.testing.assert_array_equal(jit(lambda x, w=widths: fnp.pad(x, w, mode=mode))(X), want)
    empty = np.ones((0, 2))
    assert fnp.pad(empty, [(0, 0), (1, 1)], mode=mode).shape == (0, 4)
    with pytest.raises(ValueError, match="empty axis"):
        fnp.pad(empty, 1, mode=mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("pair", [(1, 1), (3, 2), (7, 9), (75, 75)])
def test_the_gradient_of_a_pad_adds_up(mode: str, pair: tuple[int, int]) -> None:
    x = np.arange(1.0, 5.0)
    places = np.pad(np.arange(4), pair, mode=mode)  # type: ignore[call-overload]
    weights = np.arange(1.0, len(places) + 1)
    got = jit(grad(lambda x: (fnp.pad(x, pair, mode=mode) * weights).sum()))(x)
    np.testing.assert_allclose(got, np.bincount(places, weights), rtol=1e-12)


@pytest.mark.parametrize("mode", MODES)
def test_a_pad_joins_slices(mode: str) -> None:
    jaxpr = make_jaxpr(lambda x: fnp.pad(x, 1, mode=mode))(X)
    assert not jaxpr.consts
    assert "resolve_index" not in str(jaxpr)


def test_as_few_pieces_as_possible() -> None:
    runs = manipulation._runs(np.array([2, 1, 0, 0, 1, 2, 7, 7, 7]))
    assert runs == [(2, -1, 3), (0, 1, 3), (7, 0, 3)]


AXES = [(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (-1, -2)]


@pytest.mark.parametrize("axes", AXES)
def test_diagonals_at_all_offsets(axes: tuple[int, int]) -> None:
    offsets = range(-5, 6)
    run: Any = lambda m: [m.diagonal(X, k, *axes) for k in offsets]
    for got, want in zip(jit(lambda: run(fnp))(), run(np), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("axes", AXES)
def test_the_gradient_of_a_diagonal(axes: tuple[int, int]) -> None:
    want = np.zeros_like(X)
    for place in np.diagonal(np.arange(X.size).reshape(X.shape), 1, *axes).ravel():
        want.flat[place] = 2 * X.flat[place]
    square = lambda x: (fnp.diagonal(x, 1, *axes) ** 2).sum()
    np.testing.assert_array_equal(jit(grad(square))(X), want)
    np.testing.assert_array_equal(jit(vmap(grad(square)))(X[None])[0], want)


def test_a_diagonal_is_passed_no_places() -> None:
    jaxpr = make_jaxpr(lambda x: fnp.diagonal(x, 1) + fnp.diagonal(x, -1))(X[0, :, :3])
    assert not jaxpr.consts
