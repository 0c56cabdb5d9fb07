"""The switches: loops keep what was chosen where they were traced, and results do not depend on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiveloop.core import grad, jit, jvp, make_jaxpr, vmap
from fiveloop.core.passes import run_passes
from fiveloop.core.primitives.special import tanh
from fiveloop.loops import Planning, fori_loop, planning, scan
from fiveloop.loops.options import STEPS
from fiveloop.testing.core.samples import sample
from fiveloop.testing.loops.laws import check_function, check_law_planning

N = 40
RNG = np.random.default_rng(0)
W = RNG.normal(size=(N, N)) / N**0.5
X: Any = RNG.normal(size=N)
PICKS = RNG.integers(0, N, 6)


def updated(w: Any) -> Any:
    step = lambda i, x: x.at[i].set(x[(7 * i) % N] * 0.5).at[(7 * i) % N].add(x[i])
    return (fori_loop(0, 6, step, w[0]) ** 2).sum()


def recurrent(w: Any) -> Any:
    return (scan(lambda h, k: (tanh(w @ h + w[k]), h[0]), X, PICKS)[0] ** 2).sum()


FUNCTIONS = [updated, recurrent]
FORMS: dict[str, Callable[[Any], Any]] = {
    "value": lambda f: f,
    "gradient": grad,
    "jvp of gradient": lambda f: lambda w: jvp(grad(f), (w,), (w,))[1],
    "lanes": lambda f: lambda w: vmap(f)(np.stack([np.ones((N, N)), np.full((N, N), 0.5)]) * w),
}


@pytest.mark.parametrize("fun", FUNCTIONS)
def test_results_are_the_same_without_each_step_and_without_all(fun: Any) -> None:
    program = jit(lambda w: {name: form(fun)(w) for name, form in FORMS.items()})
    want = program(W)

    def assert_same_results() -> None:
        for name, found in program(W).items():
            np.testing.assert_allclose(np.asarray(found), want[name], rtol=1e-11, err_msg=name)

    for step in STEPS:
        with planning(**{step: False}):
            assert_same_results()
    with planning(False):
        assert_same_results()


@pytest.mark.parametrize("step", [*STEPS, "everything"])
def test_all_laws_hold_without_a_step(step: str) -> None:
    def small(x: Any) -> Any:
        def body(carry: Any, k: Any) -> Any:
            total, y = carry
            return (total + y[k], y.at[k].set(total * x[k])), y[0]

        return scan(body, (1.0, x * 2.0), np.asarray([2, 0, 1, 2]))

    with planning(False) if step == "everything" else planning(**{step: False}):
        s = check_function(small, np.asarray([0.3, -0.7, 1.1]))
    check_law_planning(s)
    assert len(s.run()) == 3


@pytest.mark.parametrize("number", range(len(STEPS)))
def test_the_law_of_planning(number: int) -> None:
    s = sample(grad(recurrent), W)
    check_law_planning(s, number)
    assert s.jaxpr.eqns


def printed(fun: Any, *args: Any) -> str:
    return str(run_passes(make_jaxpr(fun)(*args)))


def test_promotion_off_leaves_the_array_a_value() -> None:
    assert ".at[" not in str(make_jaxpr(updated)(W))
    with planning(promote=False):
        assert ".at[" in str(make_jaxpr(updated)(W))


def test_constants_off_leaves_them_values() -> None:
    table = lambda t: fori_loop(0, 3, lambda i, s: s + t[i], 0.0)
    assert " = d[g]" not in str(make_jaxpr(table)(X))
    with planning(constants=False):
        assert " = d[g]" in str(make_jaxpr(table)(X))


def test_sinking_off_adds_up_in_the_loop() -> None:
    def plain(w: Any) -> Any:
        return (scan(lambda h, x: (tanh(w @ h + x), None), X, np.ones((6, N)))[0] ** 2).sum()

    def carried() -> int:
        ready = run_passes(make_jaxpr(grad(plain))(W))
        loops = [e for e in ready.eqns if e.primitive.name == "for"]
        return sum(v.aval.shape == (N, N) for e in loops for v in e.outvars)

    first = carried()
    with planning(sink=False):
        assert carried() > first


def test_ranges_off_resolves_every_index() -> None:
    table = lambda t: fori_loop(0, 3, lambda i, s: s + t[i], 0.0)
    assert "resolve_index" not in printed(table, X)
    with planning(ranges=False):
        assert "resolve_index" in printed(table, X)


def test_blocks_nest_and_loops_keep_what_was_chosen() -> None:
    with planning(False), planning(sink=True) as chosen:
        jaxpr = make_jaxpr(grad(recurrent))(W)
    assert chosen == Planning(**{**dict.fromkeys(STEPS, False), "sink": True})
    loops = [e.params.off for e in jaxpr.eqns if e.primitive.name == "for"]
    assert loops == [chosen.off, chosen.off]


def test_a_step_that_there_is_not() -> None:
    expected = (
        r"planning: expected True or False, for all steps or for one of promote, .*; got sinks=True"
    )
    with pytest.raises(TypeError, match=expected), planning(sinks=True):
        pass
    with pytest.raises(TypeError, match=r"got sink=1"), planning(sink=1):  # type: ignore[arg-type]
        pass
    with pytest.raises(TypeError, match=r"one of promote, .*; got 3"), planning(3):  # type: ignore[arg-type]
        pass
