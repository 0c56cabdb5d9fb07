"""Ways back whose steps are not run forward again, because the state after a step is at hand."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
import fiveloop.testing.loops.references  # noqa: F401  # the oracle learns what a loop is
from fiveloop.core import Jaxpr, ShapeDtype, grad, ir, jit, jvp, make_jaxpr, vmap
from fiveloop.loops import explain, machine, scan, while_loop
from fiveloop.loops.schedules import Binomial, Online, TwoLevel
from fiveloop.loops.schedules.simulation import evaluations
from fiveloop.state import pure_callback
from fiveloop.state.predicate import live
from fiveloop.testing.core.samples import sample

W = np.random.default_rng(0).normal(0, 0.4, (4, 4)).astype(np.float32)
X = np.array([0.1, -0.4, 0.3, 0.9], np.float32)


def unknown(w: Any, x: Any, length: Any, f: Any = fnp.tanh, **options: Any) -> Any:
    """A loop that ends when its state says so."""
    step = lambda val: (val[0] + 1, f(w @ val[1]))
    return fnp.sum(while_loop(lambda val: val[0] < length, step, (np.int32(0), x), **options)[1])


def counted(w: Any, x: Any, length: int, **options: Any) -> Any:
    """The same with a number of steps that is known while tracing."""
    return fnp.sum(scan(lambda x, _: (fnp.tanh(w @ x), None), x, length=length, **options)[0])


def by_hand(length: int) -> np.ndarray:
    """The gradient in the matrix."""
    xs = [X.astype(np.float64)]
    for _ in range(length):
        xs.append(np.tanh(W @ xs[-1]))
    ct, found = np.ones(4), np.zeros((4, 4))
    for before, after in zip(xs[-2::-1], xs[:0:-1], strict=True):
        ct = ct * (1 - after**2)
        found += np.outer(ct, before)
        ct = W.T @ ct
    return found


@pytest.mark.parametrize(
    "checkpoints", [1, 2, 5, Online(3), TwoLevel(2, slow=3, period=2)], ids=repr
)
def test_gradients(checkpoints: Any) -> None:
    run = jit(grad(partial(unknown, checkpoints=checkpoints)))
    for length in (0, 1, 2, 3, 8, 29):
        np.testing.assert_allclose(run(W, X, length), by_hand(length), rtol=1e-4, atol=1e-6)
        slope = grad(lambda w, n=length: counted(w, X, n, checkpoints=checkpoints))
        # The oracle knows no loop that replays.
        known = sample(slope, W).run()[0] if isinstance(checkpoints, int) else jit(slope)(W)
        np.testing.assert_allclose(known, by_hand(length), rtol=1e-4, atol=1e-6)


def test_lanes_and_second_derivatives() -> None:
    lengths = np.array([0, 3, 17], np.int32)
    for order in (
        lambda f: grad(f),
        lambda f: lambda w: jvp(grad(f), (w,), (W,))[1],
        lambda f: grad(lambda w: fnp.sum(grad(f)(w) ** 2)),
    ):
        slope = lambda n, order=order, **options: order(lambda w: unknown(w, X, n, **options))(W)
        found = jit(vmap(partial(slope, checkpoints=3)))(lengths)
        alone = jit(partial(slope, checkpoints=3))
        for k, n in enumerate(lengths):
            (taped,) = sample(partial(slope, max_steps=20), n).run()
            np.testing.assert_allclose(found[k], taped, rtol=1e-3, atol=1e-5)
            np.testing.assert_allclose(alone(n), taped, rtol=1e-3, atol=1e-5)


def turn_of(jaxpr: Jaxpr) -> Jaxpr | None:
    """The body of the loop that reverses a step in each turn."""
    for inner in [j for eqn in jaxpr.eqns for j in ir.jaxprs_in(eqn.params)]:
        found = inner if inner.name == "turn" else turn_of(inner)
        if found is not None:
            return found
    return None


@pytest.mark.parametrize(("f", "contracted"), [(fnp.tanh, 2), (fnp.sin, 3)])
def test_a_turn_contracts_for_the_cotangents_alone(f: Any, contracted: int) -> None:
    jaxpr = make_jaxpr(grad(lambda w: unknown(w, X, 9, f, checkpoints=3)))(W)
    turn = turn_of(machine.without_replays(jaxpr))
    assert turn is not None
    names = [eqn.primitive.name for eqn in turn.eqns]
    assert names.count("dot_general") == contracted


def test_lanes_with_numbers_of_steps_of_their_own_contract_no_more() -> None:
    slope = lambda n: grad(lambda w: unknown(w, X, n, checkpoints=3))(W)
    lanes, ns = np.array([0, 3, 17], np.int32), np.array([[2, 0, 9], [1, 3, 4]], np.int32)
    for f, lengths in ((vmap(slope), lanes), (vmap(vmap(slope)), ns)):
        planned = live.without_live(make_jaxpr(f)(lengths))
        turn = turn_of(machine.without_replays(planned))
        assert turn is not None
        assert [eqn.primitive.name for eqn in turn.eqns].count("dot_general") == 2
        found, expected = jit(f)(lengths), [by_hand(int(n)) for n in lengths.ravel()]
        np.testing.assert_allclose(found, np.reshape(expected, found.shape), rtol=1e-4, atol=1e-6)


def test_a_lane_that_has_ended_gives_nothing_of_what_is_computed_for_it() -> None:
    """The slope of the root is infinite at the state that the lane without steps keeps."""

    def last(w: Any, n: Any, start: Any) -> Any:
        step = lambda val: (val[0] + 1, fnp.sqrt(w @ val[1] ** 2 + 1e-3))
        begin = (np.int32(0), start * fnp.ones(4))
        return fnp.sum(while_loop(lambda val: val[0] < n, step, begin, checkpoints=3)[1])

    w, lengths, starts = abs(W), np.array([0, 1, 6]), np.array([0.0, 0.5, 0.5], np.float32)
    found = jit(vmap(grad(last), (None, 0, 0)))(w, lengths, starts)
    for slope, n, start in zip(found, lengths, starts, strict=True):
        alone = jit(grad(last))(w, n, start)
        np.testing.assert_allclose(slope, alone, rtol=1e-4, atol=1e-6)


def test_steps_that_call_python_run_once_more_for_their_way_back() -> None:
    calls = []

    def count(k: Any) -> Any:
        calls.append(k)
        return np.int32(k + 1)

    def step(w: Any, val: Any) -> Any:
        k = pure_callback(count, ShapeDtype((), "int32"), val[0])
        return k, fnp.tanh(w @ val[1] + 0.1 * k)

    def last(w: Any, length: Any) -> Any:
        start = (fnp.zeros((), np.int32), X)
        more = lambda val: val[0] < length
        return fnp.sum(while_loop(more, partial(step, w), start, checkpoints=3)[1])

    run = jit(grad(last))
    for length in (1, 9, 30):
        calls.clear()
        assert np.isfinite(np.asarray(run(W, length))).all()
        assert len(calls) == evaluations(Online(3), length).total


def test_explain_tells_which_steps_run_again() -> None:
    text = str(explain(grad(lambda w: counted(w, X, 40, checkpoints=3)), W))
    assert "the last step runs once more to be reversed; the others are reversed from" in text
    assert f"of these 40 steps {evaluations(Binomial(3), 40).advanced} are rerun" in text
