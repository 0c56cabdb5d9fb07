"""What branches in loops read and write: at places that Refs hold, around writes that wait, and in calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiveloop.core import disable_jit, grad, jit, jvp, make_jaxpr
from fiveloop.core.passes import run_passes
from fiveloop.loops import cond, for_loop, fori_loop, switch
from fiveloop.testing.loops.laws import check_function

N = 40
X = np.random.default_rng(0).uniform(-1, 1, N)
THREE = np.asarray([3, 5, 3])
Body = Callable[[Any, Any], None]


def nothing() -> None:
    return None


def read_below(i: Any, r: Any) -> None:
    """A branch that reads and writes near a write that waits around it, at the same place or not."""

    def update() -> None:
        r[i] = r[i - 1] * 0.5

        def deeper() -> None:
            r[(7 * i) % N] = r[i] + r[(7 * i) % N]
            cond(r[i] > 0.1, lambda: r.__setitem__(i, r[i - 2] * r[i]), nothing)

        cond(r[(3 * i) % N] > 0, deeper, lambda: r.__setitem__(i, r[i] * 0.3))

    cond(r[i] > -0.5, update, nothing)


def add_around(i: Any, r: Any) -> None:
    """A branch around which an addition waits that may name a place twice: it reads all that the Ref holds."""

    def update() -> None:
        r[THREE] += r[i] * 0.1
        cond(r[3] > 0, lambda: r.__setitem__(i, r[i - 1]), nothing)

    cond(i % 2 == 0, update, nothing)


def whole_below(i: Any, r: Any) -> None:
    def update() -> None:
        r[i] = r[i - 1] * 0.5
        cond(r[i] > 0, lambda: r.__setitem__(..., r[...] * 0.9), nothing)

    cond(i % 4 == 0, update, nothing)


def choices(i: Any, r: Any) -> None:
    """Branches in branches, each with writes of its own before and after."""

    def one() -> None:
        r[i - 1] = r[i] * 0.7
        switch(i % 3, [nothing, lambda: r.__setitem__(i, r[i - 1]), lambda: r.__setitem__(0, r[i])])
        r[i] += r[0] * 0.1

    def other() -> None:
        r[0] = r[i] * 0.5
        cond(r[0] > 0, lambda: r.__setitem__(i, r[0] + r[i - 1]), nothing)

    cond(i % 2 == 0, one, other)


called = jit(lambda r, i: r.__setitem__(i, r[i - 1] * r[i]))


def calls(i: Any, r: Any) -> None:
    called(r, i)
    y = r[i]
    cond(i % 3 == 0, lambda: called(r, i - 1), nothing)
    r[i] = r[i] * 0.5 + y


BODIES: dict[str, Body] = {
    "read below": read_below,
    "add around": add_around,
    "whole below": whole_below,
    "choices": choices,
    "calls": calls,
}


@pytest.mark.parametrize("name", BODIES)
def test_values_are_those_of_python(name: str) -> None:
    got = for_loop(N, BODIES[name], X)
    with disable_jit():
        want = for_loop(N, BODIES[name], X)
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-12)


@pytest.mark.parametrize("name", BODIES)
def test_all_laws_hold(name: str) -> None:
    s = check_function(lambda x: for_loop(3, BODIES[name], x), X[:8])
    assert s.jaxpr.eqns


@pytest.mark.parametrize("form", ["value", "gradient", "jvp of gradient"])
@pytest.mark.parametrize("name", ["read below", "choices", "calls"])
def test_no_step_copies_the_array(name: str, form: str) -> None:
    def total(x: Any) -> Any:
        y = for_loop(N, BODIES[name], x)
        return (y * y).sum()

    forms: dict[str, Callable[[Any], Any]] = {
        "value": total,
        "gradient": grad(total),
        "jvp of gradient": lambda x: jvp(grad(total), (x,), (x,))[1],
    }
    assert f"f64[{N}] = cond" not in str(run_passes(make_jaxpr(forms[form])(X)))
    assert jit(forms[form]).lower(X).compile().copies == 0


def test_calls_are_taken_apart_where_a_loop_gives_them_refs() -> None:
    traced = make_jaxpr(lambda x: for_loop(N, calls, x))(X)
    assert str(traced).count("closed_call") == 2
    assert "closed_call" not in str(run_passes(traced))


def test_a_branch_writes_at_a_place_that_a_ref_holds() -> None:
    def body(i: Any, refs: Any) -> None:
        r, k = refs

        def update() -> None:
            j = k[...]
            r[j] = r[j - 1] * 0.9 + r[j]
            k[...] = j + 1

        cond(i % 3 == 0, update, nothing)

    got, place = for_loop(9, body, (np.arange(9.0), 1))
    np.testing.assert_allclose(np.asarray(got), [0, 1, 2.9, 5.61, 4, 5, 6, 7, 8], rtol=1e-12)
    assert int(place) == 4


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("form", [lambda f: f, grad])
def test_a_loop_in_a_branch_copies_no_array_whichever_branch_it_is(form: Any, first: bool) -> None:
    def total(x: Any) -> Any:
        def step(k: Any, x: Any) -> Any:
            def body(i: Any, x: Any) -> Any:
                at = 4 * k + i
                return x.at[at + 1].set(np.sin(x[at]))

            loop = lambda x: fori_loop(0, 4, body, x)
            keep = lambda x: x
            return cond((k % 3 == 1) == first, *((loop, keep) if first else (keep, loop)), x)

        return fori_loop(0, 12, step, x).sum()

    def by_hand(x: Any) -> Any:
        for at in range(48):
            if (at // 4) % 3 == 1:
                x = x.at[at + 1].set(np.sin(x[at]))
        return x.sum()

    x = np.linspace(0.1, 0.9, 49)
    assert jit(form(total)).lower(x).compile().copies == 0
    np.testing.assert_allclose(
        np.asarray(jit(form(total))(x)), np.asarray(jit(form(by_hand))(x)), rtol=1e-12
    )
