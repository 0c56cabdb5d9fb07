"""Steps that write to several Refs, each with its own elements alone: nothing is ordered, and nothing is copied.

What a step writes is read again here, and not carried to the next, as it would be otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from fiveloop.core import disable_jit, jit, jvp
from fiveloop.loops import explain, for_loop, planning
from fiveloop.testing.core.compare import assert_all_close

N = 64
X = np.linspace(-1.0, 1.0, N)

Loop = Callable[[Any], Any]


@pytest.fixture(autouse=True)
def nothing_is_carried() -> Iterator[None]:
    """Without the step of planning that would make most of these loops carry numbers."""
    with planning(carry=False):
        yield


def recurrence(x: Any) -> Any:
    def body(i: Any, y: Any) -> None:
        y[i + 1] = 0.5 * y[i] + x[i]

    return for_loop(N - 1, body, 0.0 * x)


def walk(x: Any) -> Any:
    """Where to write is in a Ref of its own, of one element."""

    def body(i: Any, refs: Any) -> None:
        y, place = refs
        here = place[...]
        y[here] += 0.5 * x[i]
        place[...] = (here + 7) % N

    return for_loop(N, body, (0.0 * x, np.int32(0)))[0]


def two_sums(x: Any) -> Any:
    def body(i: Any, refs: Any) -> None:
        y, z = refs
        y[i + 1] = y[i] + x[i]
        z[i + 1] = z[i] * x[i]

    y, z = for_loop(N - 1, body, (0.0 * x, 1.0 + 0.0 * x))
    return y + z


def one_feeds_the_other(x: Any) -> Any:
    def body(i: Any, refs: Any) -> None:
        y, z = refs
        y[i + 1] = y[i] + x[i]
        z[i + 1] = z[i] * y[i]

    return for_loop(N - 1, body, (0.0 * x, 1.0 + 0.0 * x))[1]


def read_whole_by_the_other(x: Any) -> Any:
    def body(i: Any, refs: Any) -> None:
        y, z = refs
        z[i] = y[...].sum()
        y[i] = x[i]

    return for_loop(N, body, (x, 0.0 * x))[1]


def written_twice(x: Any) -> Any:
    def body(i: Any, y: Any) -> None:
        y[i], y[i + 1] = x[i], 0.5 * y[i] + x[i]

    return for_loop(N - 1, body, 0.0 * x)


def tangents(f: Loop) -> Loop:
    """The loop and its derivative along the squares."""
    return lambda x: jvp(f, (x,), (x * x,))


APART = [recurrence, walk, two_sums, tangents(recurrence), tangents(walk)]
ENTANGLED = [one_feeds_the_other, written_twice, tangents(two_sums)]


@pytest.mark.parametrize("f", APART)
def test_writes_that_keep_apart_are_not_ordered(f: Loop) -> None:
    (loop,) = explain(f, X).loops
    assert loop.in_place.startswith("no write uses an element of another array")
    assert loop.copies == 0


@pytest.mark.parametrize("f", ENTANGLED)
def test_a_write_that_uses_another_array_or_comes_again_is_ordered(f: Loop) -> None:
    (loop,) = explain(f, X).loops
    assert "ordered" in loop.in_place
    assert not loop.in_place.startswith("no write")
    assert loop.copies == 0


@pytest.mark.parametrize("f", [*APART, *ENTANGLED, read_whole_by_the_other])
def test_results_are_those_of_running_step_by_step(f: Loop) -> None:
    with disable_jit():
        want = f(X)
    assert_all_close([*np.atleast_2d(jit(f)(X))], [*np.atleast_2d(want)])
