"""Windows of rows, written with what other windows of the same row hold: XLA:CPU must not write before it reads.

It replaces a window in place, in one kernel with what computes the new elements. Where it read these in the shape that
the array had before (a row of a matrix, a reshaped array), it took them after they were replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import ds, grad, jit
from fiveloop.loops import scan
from fiveloop.remat import checkpoint

ROWS: dict[str, Callable[[Any, Any], Any]] = {
    "row": lambda a, i: a[1 - i],
    "fixed row": lambda a, i: a[1],
    "reshaped": lambda a, i: a[1 - i].reshape(-1, 1)[:, 0],
    "transposed": lambda a, i: a.T[:, 0],
    "flat": lambda a, i: a.reshape(-1)[: a.shape[1]],
    "computed": lambda a, i: a[0] * 1.0,
}
SUMS: tuple[Callable[[Any, Any, Any, int], Any], ...] = (
    lambda xp, x, y, width: y.sum() + (x * x).sum(),
    lambda xp, x, y, width: (xp.cos(y[:width]) * x[-width:]).sum(),
    lambda xp, x, y, width: (y * x).sum() + xp.cos(y[1 : width + 1]).sum(),
)
WRAPS: tuple[Callable[[Any], Any], ...] = (lambda f: f, checkpoint, jit)


class Writes:
    """A sum over a few steps that write windows of a row, drawn by a seed."""

    def __init__(self, seed: int) -> None:
        draw = Random(seed)
        self.size, self.width = draw.choice([5, 8, 12]), draw.choice([2, 3, 4])
        self.row = ROWS[draw.choice([*ROWS])]
        places = range(self.size - self.width)
        self.writes = [
            (draw.choice("+=*"), draw.choice(places), draw.choice(places), draw.random() < 0.5)
            for _ in range(draw.randint(1, 3))
        ]
        self.wrap, self.sum = draw.choice(WRAPS), draw.choice(SUMS)
        self.table = np.random.default_rng(seed).random((2, self.size))

    def windows(self, xp: Any, x: Any, i: Any, put: Callable[..., Any]) -> Any:
        """The row after its writes."""
        for kind, to, of, is_sine in self.writes:
            v = x[of : of + self.width]
            x = put(x, i + to, kind, xp.sin(v) if is_sine else v + 0.1)
        return x

    def traced(self, table: Any) -> Any:
        """The sum, by a scan."""

        def put(x: Any, start: Any, kind: str, v: Any) -> Any:
            at = x.at[ds(start, self.width)]
            return {"+": at.add, "=": at.set, "*": at.multiply}[kind](v)

        def step(total: Any, i: Any) -> tuple[Any, None]:
            x = self.row(table, i)
            y = self.wrap(lambda x: self.windows(fnp, x, i, put))(x)
            return total + self.sum(fnp, x, y, self.width), None

        return scan(step, fnp.zeros((), table.dtype), np.arange(2, dtype=np.int32))[0]

    def plain(self, table: Any) -> Any:
        """The sum, by NumPy."""

        def put(x: Any, start: Any, kind: str, v: Any) -> Any:
            x, window = x.copy(), slice(start, start + self.width)
            x[window] = {"+": x[window] + v, "=": v, "*": x[window] * v}[kind]
            return x

        rows = [(self.row(table, i), i) for i in range(2)]
        return sum(self.sum(np, x, self.windows(np, x, i, put), self.width) for x, i in rows)


@pytest.mark.parametrize("seed", range(32))
def test_a_window_is_written_after_what_is_written_was_read(seed: int) -> None:
    writes = Writes(seed)
    np.testing.assert_allclose(
        jit(writes.traced)(writes.table), writes.plain(writes.table), rtol=1e-12
    )


@pytest.mark.parametrize("seed", range(100, 108))
def test_a_gradient_reads_before_it_writes(seed: int) -> None:
    writes = Writes(seed)
    slope = np.zeros_like(writes.table)
    for place in np.ndindex(*slope.shape):
        step = np.zeros_like(slope)
        step[place] = 1e-6
        above, below = (writes.plain(writes.table + s) for s in (step, -step))
        slope[place] = (above - below) / 2e-6
    np.testing.assert_allclose(jit(grad(writes.traced))(writes.table), slope, rtol=1e-5, atol=1e-7)


def test_steps_that_are_computed_again_read_before_they_write() -> None:
    def f(x: Any, wrap: Callable[[Any], Any]) -> Any:
        def write(x: Any, i: Any) -> Any:
            return x.at[ds(i + 1, 3)].add(fnp.sin(x[0:3]))

        step = lambda x, i: (write(write(x, i), i), None)
        return (scan(wrap(step), x, np.arange(2, dtype=np.int32))[0] ** 2).sum()

    x = np.array([0.1, 0.2, 0.3, 0.4, 0.5])
    np.testing.assert_allclose(
        grad(lambda x: f(x, checkpoint))(x), grad(lambda x: f(x, lambda s: s))(x), rtol=1e-12
    )


def test_a_reshaped_array_is_written_after_the_original_was_read() -> None:
    def f(
        xp: Any, x: Any, put: Callable[[Any, slice, Any], Any], call: Callable[[Any], Any]
    ) -> list[Any]:
        y, z = xp.sin(x), xp.cos(x)
        flat, row = slice(2, 7), slice(1, 2)
        flat_y = xp.tan(x.reshape(25))

        def write(z: Any, v: Any) -> Any:
            return put(z, flat, v * 0.7)

        return [
            write(y.reshape(25), y[0]),
            write(y.reshape(1, 25)[0], y[0]),
            write(xp.exp(x).reshape(25), xp.exp(x)[0]),  # XLA computes it once
            call(write)(z.reshape(25), z[0]),
            put(flat_y.reshape(5, 5), row, flat_y[3:8] * 0.7),
        ]

    def put(x: Any, at: slice, v: Any) -> Any:
        x = x.copy()
        x[at] = v
        return x

    x = np.random.default_rng(0).random((5, 5))
    found = jit(lambda x: f(fnp, x, lambda x, at, v: x.at[at].set(v), jit))(x)
    for got, want in zip(found, f(np, x, put, lambda f: f), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)
