"""Which indices a loop need not resolve, and that the results are the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fiveloop.testing.loops  # noqa: F401  # what the oracle knows of loops
from fiveloop.core import Jaxpr, grad, jit, make_jaxpr
from fiveloop.core.extend import jaxprs_in
from fiveloop.core.passes import run_passes
from fiveloop.core.primitives.elementwise import clamp
from fiveloop.loops import cond, for_loop, fori_loop
from fiveloop.loops.plan.ranges import drop_resolving
from fiveloop.state import discharge_state
from fiveloop.testing.core.oracle import run_jaxpr

X = np.arange(6, dtype=np.float32)


def resolved(jaxpr: Jaxpr) -> int:
    """How many indices are resolved, in all loops."""
    here = sum(eqn.primitive.name == "resolve_index" for eqn in jaxpr.eqns)
    return here + sum(resolved(inner) for eqn in jaxpr.eqns for inner in jaxprs_in(eqn.params))


def loop(step: Callable[[Any, Any], None], nsteps: int = 4) -> Callable[[Any], Any]:
    """The contents of a Ref of six elements after a loop."""
    return lambda x: for_loop(nsteps, step, x)


def forward(i: Any, ref: Any) -> None:
    ref[i + 1] = ref[i] + 1


def backward(i: Any, ref: Any) -> None:
    ref[4 - i] += ref[5 - i]


def folded(i: Any, ref: Any) -> None:
    ref[i // 2] += ref[i % 2 + 1]


def around(i: Any, ref: Any) -> None:
    ref[(3 - 5 * i) % 6] += ref[(i * i) & 3] * ref[(i - 2 >> 1) + 1]


def doubled(i: Any, ref: Any) -> None:
    ref[i] = ref[2 * i]


def before(i: Any, ref: Any) -> None:
    ref[i] = ref[i - 1]


def nested(i: Any, ref: Any) -> None:
    def inner(j: Any, _: Any) -> None:
        ref[i + j] = ref[i + j] * 2

    for_loop(2, inner, None)


def within_cond(i: Any, ref: Any) -> None:
    def inner(j: Any, _: Any) -> None:
        ref[j] += 1

    cond(ref[0] > 2, lambda: for_loop(3, inner, None), lambda: None)


def clamped(i: Any, ref: Any) -> None:
    ref[clamp(0, ref[i].astype(np.int32), 5)] += (
        1  # a number of which its dtype is all that is known
    )


CASES: list[tuple[Callable[[Any, Any], None], int]] = [
    (forward, 0),
    (backward, 0),
    (folded, 0),
    (around, 0),
    (nested, 0),
    (within_cond, 0),
    (doubled, 0),  # 2 * 3 is beyond the end, where the read clamps it
    (clamped, 0),
    (before, 1),  # -1 is the last element
]


@pytest.mark.parametrize(("step", "left"), CASES, ids=lambda x: getattr(x, "__name__", str(x)))
def test_only_indices_out_of_range_are_resolved(
    step: Callable[[Any, Any], None], left: int
) -> None:
    jaxpr = discharge_state(make_jaxpr(loop(step))(X))
    simple = drop_resolving(jaxpr)
    assert resolved(jaxpr) > left
    assert resolved(simple) == left
    (want,), (got,) = run_jaxpr(jaxpr, [X]), run_jaxpr(simple, [X])
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(jit(loop(step))(X), want)


@pytest.mark.parametrize("nsteps", [0, 1, 6, 7])
def test_a_loop_beyond_the_end_clamps(nsteps: int) -> None:
    def step(i: Any, ref: Any) -> None:
        ref[i] = -1

    want = X.copy()
    want[:nsteps] = -1
    np.testing.assert_array_equal(jit(loop(step, nsteps))(X), want)


def test_numbers_that_overflow_have_no_range() -> None:
    def step(i: Any, ref: Any) -> None:
        ref[i + (2**31 - 2)] = 7  # wraps to negative numbers, which count from the end

    want = run_jaxpr(make_jaxpr(loop(step))(X), [X])[0]
    np.testing.assert_array_equal(jit(loop(step))(X), want)


def test_carried_and_outer_numbers() -> None:
    def f(x: Any, n: Any) -> Any:
        return fori_loop(0, 3, lambda i, c: (c[0].at[c[1] + n].add(i), c[1] - 1), (x, 0))[0]

    jaxpr = run_passes(make_jaxpr(f)(X, np.int32(1)))
    # Where it is, to read and to write, which clamp it themselves; and where that fits, which both are masked by.
    assert resolved(jaxpr) == 2
    np.testing.assert_array_equal(jit(f)(X, np.int32(1)), [1, 1, 2, 3, 4, 7])


def masks(jaxpr: Jaxpr) -> int:
    """How many choices there are in all loops."""
    here = sum(eqn.primitive.name == "select" for eqn in jaxpr.eqns)
    return here + sum(masks(inner) for eqn in jaxpr.eqns for inner in jaxprs_in(eqn.params))


@pytest.mark.parametrize("step", [before, nested, within_cond], ids=lambda step: step.__name__)
def test_a_write_that_the_counter_shows_in_bounds_is_not_masked(step: Any) -> None:
    assert not masks(discharge_state(make_jaxpr(loop(step))(X)))


def test_a_write_that_may_be_out_of_bounds_is_masked_and_left_out() -> None:
    def step(i: Any, ref: Any) -> None:
        ref[2 * i] = 9.0

    assert masks(discharge_state(make_jaxpr(loop(step))(X)))
    np.testing.assert_array_equal(jit(loop(step))(X), [9, 1, 9, 3, 9, 5])
    slope = jit(grad(lambda x: (loop(step)(x) * X).sum()))(X)
    np.testing.assert_array_equal(slope, [0, 1, 0, 3, 0, 5])
