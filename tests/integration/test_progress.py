"""Bars of loops under checkpoint: the steps of the primal loop, and none for those that run again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import grad, jit
from fiveloop.loops import Progress, for_loop, scan, while_loop
from fiveloop.loops.progress import bars
from fiveloop.remat import checkpoint

X = np.linspace(0.1, 0.9, 9, dtype=np.float32)
LAST: dict[str, list[int]] = {}


class Drawn:
    """A bar that keeps how far it was."""

    def __init__(self, progress: Progress, total: int | None) -> None:
        self.counts = LAST.setdefault(str(progress.desc), [])

    def show(self, count: int) -> None:
        """Nothing."""

    def close(self, count: int) -> None:
        self.counts.append(count)


def whole(x: Any) -> Any:
    return scan(lambda c, y: (fnp.sin(c) * y, c), 1.0, x, progress="whole")[0]


def step_by_step(x: Any) -> Any:
    step = checkpoint(lambda c, y: (fnp.sin(c) * y, c))
    return scan(step, 1.0, x, progress="steps")[0]


def nested(x: Any) -> Any:
    def row(i: Any, r: Any) -> None:
        def column(j: Any, inner: Any) -> None:
            inner[j] = fnp.sin(inner[j]) * x[i]

        r[...] = for_loop(3, column, r[...], progress="inner")

    return for_loop(4, row, x, progress="outer").sum()


def unknown_length(x: Any) -> Any:
    return while_loop(
        lambda c: c[0] < 5, lambda c: (c[0] + 1, fnp.sin(c[1])), (0, x), progress="while"
    )[1]


def computed_length(x: Any) -> Any:
    return whole(x) * unknown_length(2.0)


@pytest.mark.parametrize("is_jitted", [False, True])
@pytest.mark.parametrize(
    ("fun", "want"),
    [
        (whole, {"whole": [9]}),
        (step_by_step, {"steps": [9]}),
        (nested, {"inner": [3] * 4, "outer": [4]}),
        (computed_length, {"whole": [9], "while": [5]}),
    ],
)
def test_checkpoints_draw_no_bar_again(
    fun: Any, want: dict[str, list[int]], is_jitted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bars, "new_bar", Drawn)
    LAST.clear()
    gradient = grad(checkpoint(fun))
    got = (jit(gradient) if is_jitted else gradient)(X)
    assert want == LAST
    np.testing.assert_allclose(np.asarray(got), np.asarray(grad(fun)(X)), rtol=1e-5)
