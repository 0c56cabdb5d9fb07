"""`scan` of a computed length: the first slices of its inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import disable_jit, grad, jit, jvp, vmap
from fiveloop.loops import scan
from fiveloop.state import new_ref

STEPS = 7
XS: Any = np.random.default_rng(0).normal(size=(STEPS, 3))
W: Any = np.random.default_rng(1).normal(size=(3, 3)) / 2
COUNTS = (-2, 0, 1, 4, STEPS, 9)
FORMS = [(False, None), (False, 2), (True, None), (True, 2)]


def loss(w: Any, xs: Any, length: Any, reverse: bool, checkpoints: int | None = None) -> Any:
    def step(c: Any, x: Any) -> tuple[Any, Any]:
        return fnp.tanh(w @ c + x), c * x

    how: dict[str, Any] = {"reverse": reverse, "checkpoints": checkpoints}
    carry, ys = scan(step, np.ones(3), xs, length, **how)
    return (carry**2).sum() + (ys**2 * np.arange(1.0, 1 + len(xs))[:, None]).sum()


def of_first(n: int, reverse: bool) -> Callable[[Any], Any]:
    """The loss of as many slices."""
    return lambda w: loss(w, XS[: max(n, 0)], None, reverse)


@pytest.mark.parametrize(("reverse", "checkpoints"), FORMS)
def test_the_first_slices_are_taken(reverse: bool, checkpoints: int | None) -> None:
    chosen = lambda w, n: loss(w, XS, n, reverse, checkpoints)
    value, slope = jit(chosen), jit(grad(chosen))
    second = jit(lambda w, n: jvp(lambda w: grad(chosen)(w, n), (w,), (w,))[1])
    for n in COUNTS:
        want = of_first(n, reverse)
        np.testing.assert_allclose(value(W, n), want(W))
        np.testing.assert_allclose(slope(W, n), grad(want)(W), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(second(W, 4), jvp(grad(of_first(4, reverse)), (W,), (W,))[1])
    lanes = jit(vmap(grad(chosen), (None, 0)))(W, np.array(COUNTS))
    for lane, n in zip(lanes, COUNTS, strict=True):
        np.testing.assert_allclose(lane, grad(of_first(n, reverse))(W), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("reverse", [False, True])
def test_an_array_counts_as_computed_in_eager_loops(reverse: bool) -> None:
    for n in COUNTS:
        want = of_first(n, reverse)(W)
        np.testing.assert_allclose(loss(W, XS, fnp.asarray(n), reverse), want)
        with disable_jit():
            np.testing.assert_allclose(loss(W, XS, fnp.asarray(n), reverse), want)


def test_slices_of_a_ref_that_are_not_taken_stay() -> None:
    rows = new_ref(fnp.ones((4, 2)))

    def doubled(c: Any, row: Any) -> tuple[Any, None]:
        row[...] = c * row[...]
        return 2 * c, None

    jit(lambda n: scan(doubled, 2.0, rows, n)[0])(3)
    assert rows[...].tolist() == [[2, 2], [4, 4], [8, 8], [1, 1]]


REFUSED: dict[str, Callable[[Any], Any]] = {
    "without xs, length must be an integer known": lambda n: scan(
        lambda c, _: (c, c), 0.0, None, n
    ),
    "known while tracing where `until` is given": lambda n: scan(
        lambda c, x: (c, x), 0.0, XS, n, until=lambda c: c > 1
    ),
    "length must be an integer scalar, got f32": lambda n: scan(
        lambda c, x: (c, x), 0.0, XS, n * 0.5
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_refused(message: str) -> None:
    with pytest.raises(TypeError, match=message) as caught:
        jit(REFUSED[message])(3)
    assert "test_scan_length.py:" in str(caught.value)
