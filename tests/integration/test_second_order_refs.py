"""Second derivatives, taken eagerly, of functions that hand a Ref of their own to a call, a loop or a branch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import closed_call, grad, jit, jvp, vmap
from fiveloop.loops import cond, for_loop, scan
from fiveloop.remat import checkpoint
from fiveloop.state import addupdate, freeze, new_ref, set, swap

X = np.float64(1.5)


def call_adds(x: Any) -> Any:
    ref = new_ref(fnp.zeros((), np.float64))
    closed_call(lambda: addupdate(ref, ..., x * x))()
    return ref[...]


def call_sets(x: Any) -> Any:
    ref = new_ref(x)
    closed_call(lambda: set(ref, ..., x * x))()
    return freeze(ref)


def calls_read_and_add(x: Any) -> Any:
    ref = new_ref(fnp.zeros(3, np.float64))
    closed_call(lambda: addupdate(ref, 0, fnp.sin(x) * x))()
    closed_call(lambda: addupdate(ref, 1, ref[0] * x))()
    return (ref[...] * ref[...]).sum()


def jit_takes_it(x: Any) -> Any:
    def scale(ref: Any, v: Any) -> None:
        ref[...] = ref[...] * v

    ref = new_ref(x * x)
    jit(scale)(ref, x)
    return freeze(ref) * x


def loop_adds(x: Any) -> Any:
    ref = new_ref(x * x)
    for_loop(2, lambda i, q: addupdate(ref, ..., x * x * ref[...]), fnp.zeros(()))
    return ref[...]


def scan_swaps(x: Any) -> Any:
    ref = new_ref(x * x)
    scan(lambda c, _: (swap(ref, ..., c * ref[...]), None), x, None, length=2)
    return freeze(ref)


def branch_sets(x: Any) -> Any:
    ref = new_ref(x * x)
    cond(x > 0, lambda: set(ref, ..., ref[...] * x), lambda: None)
    return freeze(ref)


def checkpoint_adds(x: Any) -> Any:
    ref = new_ref(x * x)
    checkpoint(lambda v: addupdate(ref, ..., v * v * ref[...]))(x)
    return freeze(ref)


FUNCTIONS = [
    call_adds,
    call_sets,
    calls_read_and_add,
    jit_takes_it,
    loop_adds,
    scan_swaps,
    branch_sets,
    checkpoint_adds,
]


def along(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The derivative of `f` by forward mode."""
    return lambda x: jvp(f, (x,), (fnp.ones_like(x),))[1]


@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_second_derivatives_without_jit(f: Callable[[Any], Any]) -> None:
    slope = jit(grad(f))
    step = 1e-5
    want = (slope(X + step) - slope(X - step)) / (2 * step)
    for way in (grad(grad(f)), grad(along(f)), along(grad(f)), along(along(f)), jit(grad(grad(f)))):
        np.testing.assert_allclose(way(X), want, rtol=1e-7)


@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_second_derivatives_of_lanes(f: Callable[[Any], Any]) -> None:
    def both(x: Any) -> Any:
        return vmap(f)(fnp.stack([x, 2 * x])).sum()

    second = jit(grad(grad(f)))
    want = second(X) + 4 * second(2 * X)
    np.testing.assert_allclose(grad(grad(both))(X), want, rtol=1e-9)


@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_third_derivatives(f: Callable[[Any], Any]) -> None:
    want = jit(grad(grad(grad(f))))(X)
    np.testing.assert_allclose(grad(lambda x: grad(lambda y: grad(f)(y))(x))(X), want, rtol=1e-9)
