"""Sums of products that a loop would add up, as contractions after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fiveloop.state as st
from fiveloop.core import grad, jit, make_jaxpr, vmap
from fiveloop.core.passes import all_passes, run_passes
from fiveloop.core.primitives.shape import split
from fiveloop.core.primitives.special import tanh
from fiveloop.loops import explain, for_loop, planning, scan
from fiveloop.loops.plan.passes import plan

STEPS, WIDTH, ROWS = 12, 40, 3
RNG = np.random.default_rng(0)
W = RNG.normal(size=(WIDTH, WIDTH)) / WIDTH**0.5
H: Any = RNG.normal(size=WIDTH)
MANY: Any = np.ones((64, WIDTH))
XS: Any = RNG.normal(size=(STEPS, WIDTH))


def recurrent(w: Any) -> Any:
    return (scan(lambda h, x: (tanh(w @ h + x), None), H, XS)[0] ** 2).sum()


def transposed(w: Any) -> Any:
    return (scan(lambda h, x: (tanh(h @ w - x @ w), None), H, XS)[0] ** 2).sum()


def of_a_batch(w: Any) -> Any:
    start: Any = np.stack([H] * ROWS)
    return (scan(lambda h, x: (tanh(h @ w + x), h), start, XS)[1] ** 2).sum()


def in_a_ref(w: Any) -> Any:
    ref = st.new_ref(w)

    def body(i: Any, h: Any) -> None:
        h[...] = tanh(ref[...] @ h[...])

    return (for_loop(STEPS, body, H) ** 2).sum()


def backward(w: Any) -> Any:
    return (scan(lambda h, x: (tanh(w @ h + x), None), H, XS, reverse=True)[0] ** 2).sum()


def in_lanes(w: Any) -> Any:
    return vmap(recurrent)(w[None] * np.ones((2, 1, 1))).sum()


MODELS = [recurrent, transposed, of_a_batch, in_a_ref, backward, in_lanes]


def without_plan(fun: Callable[..., Any], *args: Any) -> Any:
    """A jaxpr that is not planned: what the passes make of it, but for that one."""
    jaxpr = make_jaxpr(fun)(*args)
    for step in all_passes():
        if step.name != "plan" and step.applies(jaxpr):
            jaxpr = step.run(jaxpr)
    return jaxpr


@pytest.mark.parametrize("model", MODELS)
def test_gradients_are_those_of_the_plain_loop(model: Callable[[Any], Any]) -> None:
    got = np.asarray(jit(grad(model))(W))
    difference = RNG.normal(size=W.shape)
    step = 1e-5 * difference
    slope = (float(jit(model)(W + step)) - float(jit(model)(W - step))) / 2e-5
    np.testing.assert_allclose((got * difference).sum(), slope, rtol=1e-5)


@pytest.mark.parametrize("model", MODELS)
def test_no_loop_adds_to_the_weights(model: Callable[[Any], Any]) -> None:
    def carried(jaxpr: Any) -> int:
        loops = [e for e in jaxpr.eqns if e.primitive.name == "for"]
        shapes = [v.aval.shape for e in loops for v in e.outvars]
        return sum(shape[-2:] == (WIDTH, WIDTH) for shape in shapes)

    assert carried(without_plan(grad(model), W)) == 1
    assert carried(run_passes(make_jaxpr(grad(model))(W))) == 0


PICKS = RNG.integers(0, WIDTH, STEPS).astype(np.int32)


def rows_too(w: Any) -> Any:
    return (scan(lambda h, k: (tanh(w @ h - w[k]), None), H, PICKS)[0] ** 2).sum()


def rows_of_a_ref_too(w: Any) -> Any:
    ref, picks = st.new_ref(w), st.new_ref(PICKS)

    def body(i: Any, h: Any) -> None:
        h[...] = tanh(ref[...] @ h[...] - ref[picks[i]])

    return (for_loop(STEPS, body, H) ** 2).sum()


@pytest.mark.parametrize("model", [rows_too, rows_of_a_ref_too])
def test_rows_are_added_in_the_loop_and_products_after_it(model: Callable[[Any], Any]) -> None:
    test_gradients_are_those_of_the_plain_loop(model)
    jaxpr = run_passes(make_jaxpr(grad(model))(W))
    loops = [e.params.body for e in jaxpr.eqns if e.primitive.name == "for"]
    products = [e for body in loops for e in body.eqns if e.primitive.name == "dot_general"]
    assert products
    assert {e.outvars[0].aval.shape for e in products} == {(WIDTH,)}


LEFT: dict[str, Callable[[Any], Any]] = {
    "small sums": lambda w: recurrent_of(w[:8, :8], H[:8], XS[:, :8]),
    "steps that contract enough themselves": lambda w: (
        scan(lambda h, x: (tanh(h @ w), None), MANY, XS)[0] ** 2
    ).sum(),
    "sums that are read": lambda w: (
        scan(lambda v, x: (v + x[:, None] * x[None, :] * v.mean(), None), w, XS)[0] ** 2
    ).sum(),
}


def recurrent_of(w: Any, h: Any, xs: Any) -> Any:
    return (scan(lambda h, x: (tanh(w @ h + x), None), h, xs)[0] ** 2).sum()


@pytest.mark.parametrize("name", LEFT)
def test_other_loops_stay_as_they_are(name: str) -> None:
    with planning(unroll=False):
        jaxpr = make_jaxpr(grad(LEFT[name]))(W)
    assert str(plan(jaxpr)) == str(jaxpr)


def test_factors_kept_anyway_are_not_kept_twice() -> None:
    # The states of all steps are there for the derivative of tanh; only their cotangents are new.
    ready = run_passes(make_jaxpr(grad(recurrent))(W))
    stacks = [v.aval.shape for e in ready.eqns if e.primitive.name == "for" for v in e.outvars]
    assert stacks.count((STEPS, WIDTH)) == 3


ROWS_OF_A_BATCH = 20
WIDE = RNG.normal(size=(WIDTH, 2 * WIDTH)) / WIDTH**0.5
BATCHES: Any = RNG.normal(size=(STEPS, ROWS_OF_A_BATCH, 2 * WIDTH))
START: Any = RNG.normal(size=(ROWS_OF_A_BATCH, WIDTH))


def gated(w: Any, reverse: bool = False, gives: str = "nothing") -> Any:
    """A batch of rows, each with a gate: the cotangents of both halves of a product are joined."""

    def step(h: Any, x: Any) -> Any:
        gate, new = map(tanh, split(h @ w + x, (WIDTH, WIDTH), axis=1))
        return gate * h + new, {"nothing": None, "carry": h, "gate": gate}[gives]

    h, ys = scan(step, START, BATCHES, reverse=reverse)
    return (h**2).sum() + (0.0 if ys is None else (ys**3).sum())


GATED: dict[str, Callable[[Any], Any]] = {
    "forward": gated,
    "counting down": lambda w: gated(w, reverse=True),
    "with the carry": lambda w: gated(w, gives="carry"),
    "with a residual": lambda w: gated(w, gives="gate"),
}


def stacks_of(fun: Callable[[Any], Any]) -> tuple[int, bool]:
    """How many stacks of rows all loops fill, and whether one adds to the weights."""
    ready = run_passes(make_jaxpr(grad(fun))(WIDE))
    shapes = [v.aval.shape for e in ready.eqns if e.primitive.name == "for" for v in e.outvars]
    rows = (STEPS, ROWS_OF_A_BATCH, WIDTH)
    return shapes.count(rows), WIDE.shape in shapes


@pytest.mark.parametrize("name", GATED)
def test_factors_take_the_place_of_what_has_been_read(name: str) -> None:
    with planning(sink=False):
        plain, adds = stacks_of(GATED[name])
        want = np.asarray(jit(grad(GATED[name]))(WIDE))
    assert adds
    found, adds = stacks_of(GATED[name])
    # What a step has read for the last time is written over, so the backward loop changes two stacks more.
    assert (found, adds) == (plain + 2, False)
    np.testing.assert_allclose(
        np.asarray(jit(grad(GATED[name]))(WIDE)), want, rtol=1e-10, atol=1e-12
    )


def test_nothing_is_copied_where_factors_take_a_place() -> None:
    found = explain(grad(gated), WIDE)
    assert found.copies == 0
    assert [loop.copies for loop in found.loops] == [0, 0]
    assert found.loops[1].decision("sink", "cotangent of w").done


LONG = 600


def cell(w: Any, h: Any, x: Any) -> Any:
    return tanh(w @ h + w.T @ x)


def whole(w: Any, xs: Any, reverse: bool) -> Any:
    return (scan(lambda h, x: (cell(w, h, x), None), H, xs, reverse=reverse)[0] ** 2).sum()


def ended(w: Any, xs: Any, stop: Any, reverse: bool) -> Any:
    def step(carry: Any, x: Any) -> tuple[Any, None]:
        return (cell(w, carry[0], x), carry[1] + 1), None

    start = (H, np.int32(0))
    carry, _, _ = scan(step, start, xs, reverse=reverse, until=lambda c: c[1] >= stop)
    return (carry[0] ** 2).sum()


@pytest.mark.parametrize("reverse", [False, True])
def test_rows_of_steps_that_are_not_taken_do_not_count(reverse: bool) -> None:
    xs: Any = RNG.normal(size=(LONG, WIDTH))
    run = jit(grad(ended), static_argnums=3)
    for stop in (1, 255, 256, 257, LONG):
        rest = slice(0, LONG - stop) if reverse else slice(stop, LONG)
        given = xs.copy()
        given[rest] = np.nan
        want = grad(whole)(W, np.delete(xs, rest, 0), reverse)
        np.testing.assert_allclose(run(W, given, np.int32(stop), reverse), want, rtol=1e-9)


def test_no_sum_over_steps_is_added_up_in_a_loop_that_may_end() -> None:
    """It is summed block by block after it, which is no loop that `explain` tells of."""
    steps = explain(grad(lambda w: ended(w, XS, np.int32(5), False)), W)
    assert [loop.decision("sink", "cotangent of w").done for loop in steps.loops[-1:]] == [True]


@pytest.mark.parametrize(("steps", "ways"), [(LONG, 2), (STEPS, 1)])
def test_rows_of_all_steps_are_contracted_at_once(steps: int, ways: int) -> None:
    """If no step is left out; a single block is no slower."""
    xs: Any = RNG.normal(size=(steps, WIDTH))
    text = jit(grad(ended), static_argnums=3).lower(W, xs, np.int32(steps), False).as_text()
    rows = [
        n for n in (steps, 256) if f"tensor<{n}x{WIDTH}xf64>) -> tensor<{WIDTH}x{WIDTH}" in text
    ]
    assert len(rows) == ways
