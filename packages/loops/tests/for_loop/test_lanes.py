"""Loops of lanes whose arrays have the batch in any axis: the results, and where the loop leaves the axis."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fiveloop.core import closed_call, grad, jit, make_jaxpr, vmap
from fiveloop.core.primitives.special import tanh
from fiveloop.loops import for_loop, scan
from fiveloop.testing.core.compare import assert_close

STEPS, LANES, WIDTH = 5, 4, 3
RNG = np.random.default_rng(0)


def outputs(xs: Any) -> Any:
    """Every state of a recurrence."""

    def step(h: Any, x: Any) -> tuple[Any, Any]:
        h = tanh(0.5 * h + x)
        return h, h

    return scan(step, np.zeros(xs.shape[1:]), xs)[1]


def by_hand(xs: Any) -> Any:
    """The same, of arrays with the steps in front."""
    h, found = np.zeros_like(xs[0]), []
    for x in xs:
        h = np.tanh(0.5 * h + x)
        found.append(h)
    return np.stack(found)


@pytest.mark.parametrize("out_axis", [0, 1, -1])
@pytest.mark.parametrize("shape", [(STEPS,), (STEPS, WIDTH), (STEPS, WIDTH, 2)])
def test_any_axis_may_be_that_of_the_lanes(shape: tuple[int, ...], out_axis: int) -> None:
    lanes = RNG.normal(size=(LANES, *shape))
    want = np.stack([by_hand(xs) for xs in lanes], out_axis)
    gradient = vmap(grad(lambda xs: (outputs(xs) ** 2).sum()))(lanes)
    for axis in range(len(shape) + 1):
        turned = np.moveaxis(lanes, 0, axis)
        assert_close(vmap(outputs, axis, out_axis)(turned), want)
        of_all = grad(lambda x, axis=axis: (vmap(outputs, axis, out_axis)(x) ** 2).sum())(turned)
        assert_close(of_all, np.moveaxis(np.asarray(gradient), 0, axis))
        of_each = vmap(grad(lambda xs: (outputs(xs) ** 2).sum()), axis, axis)(turned)
        assert_close(of_each, of_all)


def test_lanes_in_lanes() -> None:
    x = RNG.normal(size=(2, STEPS, LANES, WIDTH))
    twice = vmap(vmap(outputs, 1, 1))(x)
    assert_close(twice, np.stack([by_hand(xs) for xs in x]))
    assert_close(
        vmap(vmap(outputs, 1, 1), 1, 1)(x.swapaxes(0, 1)), np.asarray(twice).swapaxes(0, 1)
    )


def test_each_lane_writes_at_its_own_index() -> None:
    """Beside slots that all lanes write at once."""
    at = RNG.integers(0, STEPS, (STEPS, LANES)).astype(np.int32)
    x = RNG.normal(size=(STEPS, LANES))

    def counted(x: Any, at: Any) -> Any:
        def body(i: Any, refs: Any) -> None:
            counts, seen = refs
            counts[at[i]] += x[i]
            seen[i] = counts[at[i]]

        return for_loop(STEPS, body, (0.0 * x, 0.0 * x))

    counts, seen = vmap(counted, 1, 1)(x, at)
    want = np.zeros((STEPS, LANES)), np.zeros((STEPS, LANES))
    for i in range(STEPS):
        for lane in range(LANES):
            want[0][at[i, lane], lane] += x[i, lane]
            want[1][i, lane] = want[0][at[i, lane], lane]
    assert_close(counts, want[0])
    assert_close(seen, want[1])


@pytest.mark.parametrize("shape", [(STEPS, LANES), (STEPS, LANES, WIDTH)])
def test_lanes_in_the_second_axis_stay_there(shape: tuple[int, ...]) -> None:
    """A step reads and writes a block; with the lanes in front, arrays were transposed before the loop and after."""
    loss = lambda xs: vmap(outputs, 1, 1)(xs).sum()
    for fun in (vmap(outputs, 1, 1), grad(loss), vmap(grad(lambda xs: outputs(xs).sum()), 1, 1)):
        assert "transpose" not in str(make_jaxpr(fun)(np.ones(shape)))


def test_numbers_of_lanes_are_written_side_by_side() -> None:
    written = jit(vmap(outputs)).lower(np.ones((LANES, STEPS))).as_text()
    assert f"tensor<{STEPS}x{LANES}xf" in written


@pytest.mark.parametrize("call", [jit, closed_call])
def test_calls_leave_the_axis_where_it_is(call: Any) -> None:
    fun = vmap(call(outputs), 1, 1)
    assert "transpose" not in str(make_jaxpr(fun)(np.ones((STEPS, LANES, WIDTH))))
