"""Loops, branches and calls outside of `jit` whose functions are made anew at each call: what is compiled and kept."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import closed_call, compilation_counts, jit
from fiveloop.core.lower.dispatch import _shared
from fiveloop.core.trace.same_function import FEW, _traced
from fiveloop.loops import cond, for_loop, fori_loop, scan, switch, while_loop
from fiveloop.state import new_ref

Make = Callable[[Any], Any]


class Settings:
    """Something mutable that a body reads."""

    rate = 0.0


def written(k: Any) -> Any:
    ref = new_ref(fnp.ones(3))

    def body(i: Any, ref: Any) -> None:
        ref[i] = ref[i] * k + 1.0

    for_loop(3, body, ref)
    return ref[...]


def of_settings(k: Any) -> Any:
    Settings.rate = k
    return fori_loop(0, 3, lambda i, c: c * Settings.rate, fnp.ones(3))


# Each is called with a number, or with an array.
CALLS: dict[str, Make] = {
    "fori_loop": lambda k: fori_loop(0, 3, lambda i, c: c * k + 2.0, fnp.ones(3)),
    "scan": lambda k: scan(lambda c, y: (c * k + y, c), fnp.ones(3), fnp.ones((3, 3))),
    "while_loop": lambda k: while_loop(
        lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * k), (0, fnp.ones(3))
    ),
    "cond": lambda k: cond(fnp.ones(()) > 0, lambda x: x * k, lambda x: x - k, fnp.ones(3)),
    "switch": lambda k: switch(1, [lambda x: x * k, lambda x: x - k], fnp.ones(3)),
    "for_loop": written,
    "closed_call": lambda k: closed_call(lambda x: x * k)(fnp.ones(3)),
    "mutable": of_settings,
}


@pytest.mark.parametrize("name", CALLS)
def test_a_number_that_changes_compiles_nothing_and_keeps_nothing(name: str) -> None:
    run = CALLS[name]
    run(0.5)
    run(1.5)
    compiled, shared, traced = (
        compilation_counts().compiled,
        len(_shared._items),
        len(_traced._items),
    )
    for k in range(2 * FEW):
        got = run(k + 0.25)
    assert compilation_counts().compiled == compiled
    assert len(_shared._items) == shared
    assert len(_traced._items) <= traced + FEW
    if name != "mutable":
        same(got, jit(run)(fnp.float32(2 * FEW - 0.75)))


def same(got: Any, want: Any) -> None:
    for a, b in zip(leaves(got), leaves(want), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-6)


def leaves(tree: Any) -> list[Any]:
    return [leaf for part in tree for leaf in leaves(part)] if isinstance(tree, tuple) else [tree]


@pytest.fixture
def few_objects() -> Iterator[None]:
    """Collections that pass over all objects that are there already."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("few_objects")
@pytest.mark.parametrize("name", CALLS)
def test_an_array_that_a_function_closed_over_goes_when_its_user_lets_go(name: str) -> None:
    for _ in range(2):
        array = fnp.arange(3.0) + 1.0
        gone = weakref.ref(array)
        first = CALLS[name](array[0] if name == "for_loop" else array)
        same(CALLS[name](array[0] if name == "for_loop" else array), first)
        Settings.rate = 0.0
        del array
        gc.collect()
        assert gone() is None


def test_numbers_that_come_again_are_told_apart() -> None:
    for k in (1, 1.0, 2.0, -0.0, 0.0, 1, 3, 2.0):
        got = fori_loop(0, 2, lambda i, c, k=k: c * k, fnp.ones(2))  # type: ignore[misc]
        want = np.ones(2, "f4") * np.float32(k) * np.float32(k)
        assert np.asarray(got).tobytes() == want.tobytes()


def test_integers_at_which_a_body_reads_and_writes_may_change() -> None:
    x = fnp.arange(6.0)
    for k in (1, 2, 3, 1, 4):
        got = fori_loop(0, 2, lambda i, c, k=k: c.at[i + k].set(c[k] + k), x)  # type: ignore[misc]
        want = np.arange(6.0, dtype="f4")
        for i in range(2):
            want[i + k if i + k < 6 else 5] = want[k] + k
        np.testing.assert_array_equal(np.asarray(got), want)


def test_closures_and_programs_that_are_dropped_leave_nothing() -> None:
    x = fnp.ones(3)
    kept: list[weakref.ref[Any]] = []

    def call(k: int) -> None:
        def scaled(y: Any) -> Any:
            return y * len([k] * 3)

        kept.append(weakref.ref(scaled))
        closed_call(scaled)(x)

    for k in range(300):
        call(k)
    gc.collect()
    assert sum(each() is not None for each in kept) == 0
    programs: list[weakref.ref[Any]] = []
    for k in range(10):
        f = jit(lambda y, held=[k]: y + held[0])  # what may change is traced anew
        f(x)
        programs.append(weakref.ref(f._entries[next(iter(f._entries))].staged.jaxpr))
        del f
    gc.collect()
    assert sum(each() is not None for each in programs) == 0
