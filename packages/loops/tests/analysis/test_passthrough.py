"""Residuals that are inputs, outputs or elements of states, and carried values: read where they are, not kept again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fiveloop.state as st
from fiveloop.core import MinimumCut, closed_call, grad, jit, jvp, make_jaxpr, vmap
from fiveloop.core.extend import DEFAULT_PLAN, SavingPlan, as_value, linearize_jaxpr
from fiveloop.core.primitives import elementwise as ew
from fiveloop.core.primitives import special as sp
from fiveloop.core.primitives.broadcast import zeros
from fiveloop.core.primitives.shape import concatenate
from fiveloop.loops import cond, for_loop, planning, scan
from fiveloop.testing.core.gradcheck import check_grads

STEPS, WIDTH = 5, 8
DRAW = np.random.default_rng(0)
STACK = f"f32[{STEPS},{WIDTH}]"


def drawn(*shape: int) -> Any:
    return (DRAW.normal(size=shape) * 0.3).astype(np.float32)


def stacks(fun: Callable[..., Any], *args: Any, plan: SavingPlan = DEFAULT_PLAN) -> list[str]:
    """The types of the residuals that loops make besides what the function's own loops make."""
    jaxpr = make_jaxpr(fun)(*args)
    known, _, _, num_res = linearize_jaxpr(jaxpr, (True,) * len(jaxpr.invars), plan)
    loops = [e for e in known.eqns if e.primitive.name == "for"]
    own = [e for e in jaxpr.eqns if e.primitive.name == "for"]
    made = {v for e, o in zip(loops, own, strict=True) for v in e.outvars[len(o.outvars) :]}
    return [str(v.aval) for v in known.outvars[len(known.outvars) - num_res :] if v in made]


def assert_held(fun: Callable[..., Any], *args: Any) -> None:
    """Check that nothing is kept, and derivatives to the second order."""
    assert stacks(fun, *args) == []
    assert_right(fun, *args)


def assert_right(fun: Callable[..., Any], *args: Any) -> None:
    exact = tuple(np.asarray(x, np.float64) for x in args)
    check_grads(jit(lambda *xs: fun(*map(as_value, xs))), exact, order=2, rtol=1e-4)


INIT, XS = drawn(WIDTH), drawn(STEPS, WIDTH)


@pytest.mark.parametrize("reverse", [False, True])
def test_an_output_is_not_kept_again(reverse: bool) -> None:
    """The output of a step is what the derivative of its last function needs."""

    def fun(init: Any, xs: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            h = sp.tanh(c * 0.5 + x)
            return h, h

        return scan(step, init, xs, reverse=reverse)[1]

    assert_held(fun, INIT, XS)


@pytest.mark.parametrize(
    ("shape", "kept"), [((), [f"f32[{STEPS}]"]), ((2,), [f"f32[{STEPS},2]"]), ((3,), [])]
)
def test_a_carried_value_of_few_elements_is_kept_once_more(
    shape: tuple[int, ...], kept: list[str]
) -> None:
    """Looking one step back, with a choice in the first step, takes longer than a stack of its own."""

    def fun(init: Any, xs: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            h = c * (x + c)
            return h, h

        return scan(step, init, xs)[1]

    args = drawn(*shape), drawn(STEPS, *shape)
    assert stacks(fun, *args) == kept
    assert_right(fun, *args)


def test_it_can_be_turned_off() -> None:
    def fun(init: Any, xs: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            h = sp.tanh(c * x)
            return h, h

        return scan(step, init, xs)[1]

    assert_held(fun, INIT, XS)
    with planning(passthrough=False):
        assert stacks(fun, INIT, XS) == [STACK] * 2
        assert_right(fun, INIT, XS)


@pytest.mark.parametrize("reverse", [False, True])
def test_the_carry_before_a_step_is_the_output_of_the_step_before(reverse: bool) -> None:
    w = drawn(WIDTH, WIDTH)

    def fun(w: Any, init: Any, xs: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            h = sp.tanh(w @ c + x)
            return h, h

        return scan(step, init, xs, reverse=reverse)[1]

    assert_held(fun, w, INIT, XS)


@pytest.mark.parametrize("reverse", [False, True])
def test_the_carry_before_a_step_is_what_the_step_before_keeps(reverse: bool) -> None:
    """Without outputs, one stack serves both the contraction and the function after it."""
    w = drawn(WIDTH, WIDTH)

    def fun(w: Any, init: Any, xs: Any) -> Any:
        return scan(lambda c, x: (sp.tanh(w @ c + x), None), init, xs, reverse=reverse)[0]

    assert stacks(fun, w, INIT, XS) == [STACK]
    assert_right(fun, w, INIT, XS)


@pytest.mark.parametrize("reverse", [False, True])
def test_parts_of_the_carry_before_and_after_a_step_are_cut_from_one_stack(reverse: bool) -> None:
    """As in a table that is made row by row: of two rows, and of their parts, one row is kept in each step."""

    def fun(init: Any, xs: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            rest = ew.square(c[1:] * x[1:] + c[:-1])
            return concatenate([ew.square(c[:1]), rest], 0), None

        return scan(step, init, xs, reverse=reverse)[0]

    assert stacks(fun, INIT, XS) == [STACK]
    assert_right(fun, INIT, XS)


def test_parts_of_an_output_are_cut_from_it() -> None:
    def fun(init: Any, xs: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            first, last = sp.tanh(c), ew.exp(x)
            return c + first * last, concatenate([first, last], 0)

        return scan(step, init, xs)[1]

    assert_held(fun, INIT, XS)


def test_a_carry_that_weights_multiply_in_very_many_steps_keeps_its_stack() -> None:
    """Planning sinks the sum of outer products, which are the weights' cotangent, as long as one factor is kept."""
    steps = 300

    def fun(w: Any, init: Any) -> Any:
        return scan(lambda c, _: (sp.tanh(w @ c), None), init, length=steps)[0].sum()

    args, stack = (drawn(WIDTH, WIDTH), INIT), f"f32[{steps},{WIDTH}]"
    assert stacks(fun, *args) == [stack] * 2
    with planning(sink=False):
        assert stacks(fun, *args) == [stack]


def test_an_element_of_an_input_is_read_again() -> None:
    def fun(xs: Any) -> Any:
        return scan(lambda c, x: (c + ew.square(x) * x, None), zeros(WIDTH, xs.dtype), xs)[0]

    assert_held(fun, XS)


def test_an_element_of_a_ref_that_the_loop_does_not_change() -> None:
    def fun(xs: Any) -> Any:
        ref = st.new_ref(xs)

        def body(i: Any, total: Any) -> None:
            x = ref[i]
            total[...] += ew.square(x) * x

        out = for_loop(STEPS, body, zeros(WIDTH, xs.dtype))
        ref[...] = 0.0
        return out

    assert_held(fun, XS)


def test_an_array_filled_from_its_own_elements() -> None:
    def fun(x: Any) -> Any:
        def body(i: Any, r: Any) -> None:
            r[i + 1] = r[i] * r[i] + sp.sin(r[i])

        return for_loop(STEPS - 1, body, x)

    assert_held(fun, XS)


def test_an_array_changed_in_place() -> None:
    """What is read of a slot before it is written is an element of the input."""

    def fun(x: Any) -> Any:
        def body(i: Any, r: Any) -> None:
            r[i] = ew.exp(r[i] * r[i])

        return for_loop(STEPS, body, x)

    assert_held(fun, XS)


def test_strides_offsets_and_constants_as_places() -> None:
    def fun(x: Any) -> Any:
        k = (x[0, 0] > 9.0).astype(np.int32)

        def body(i: Any, r: Any) -> None:
            row = r[STEPS - i, k]
            r[4 - i, 0] = sp.tanh(x[i] * row * row)

        return for_loop(STEPS, body, sp.sin(ew.add(x[0], zeros((STEPS + 1, 1, WIDTH), x.dtype))))

    assert_held(fun, XS)


@pytest.mark.parametrize("wrap", [jit, closed_call], ids=["jit", "call"])
def test_through_a_call(wrap: Callable[[Any], Any]) -> None:
    cell = wrap(lambda c, x: sp.tanh(c * 0.5 + x))

    def fun(init: Any, xs: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            h = cell(c, x)
            return h, h

        return scan(step, init, xs)[1]

    assert_held(fun, INIT, XS)


def test_through_a_branch() -> None:
    def fun(init: Any, xs: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            h = sp.tanh(c * 0.5 + x)
            y = cond(x.sum() > 0, lambda: h * h, lambda: sp.sin(h))
            return h, (h, y)

        return scan(step, init, xs)[1]

    assert_right(fun, INIT, XS)


def test_through_nested_scans() -> None:
    def fun(init: Any, xs: Any) -> Any:
        def inner(c: Any, x: Any) -> Any:
            h = sp.tanh(c * 0.5 + x)
            return h, h

        def step(c: Any, x: Any) -> Any:
            return scan(inner, c, ew.add(x, zeros((2, WIDTH), x.dtype)))

        return scan(step, init, xs)[1]

    assert f"f32[{STEPS},2,{WIDTH}]" not in stacks(fun, INIT, XS)
    assert_right(fun, INIT, XS)


def test_under_vmap() -> None:
    def fun(init: Any, xs: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            h = sp.tanh(c * 0.5 + x)
            return h, h

        return scan(step, init, xs)[1]

    assert_held(vmap(fun, (None, 1)), INIT, drawn(STEPS, 2, WIDTH))


def test_what_is_made_of_the_counter_is_made_again() -> None:
    def fun(init: Any) -> Any:
        def body(i: Any, c: Any) -> None:
            turn = (i * i + 1).astype(init.dtype) * 0.1
            scale = ew.add(zeros(WIDTH, init.dtype), turn)
            c[...] = sp.tanh(c[...]) * scale * scale

        return for_loop(STEPS, body, init)

    assert stacks(fun, INIT) == [STACK]
    assert_right(fun, INIT)


def test_what_no_step_changes_is_kept_once() -> None:
    def fun(w: Any, init: Any) -> Any:
        def body(i: Any, c: Any) -> None:
            c[...] *= ew.exp(sp.sin(w)) * w

        return for_loop(STEPS, body, init)

    assert stacks(fun, INIT, INIT) == [STACK]
    assert_right(fun, INIT, INIT)


def assert_not_held(fun: Callable[..., Any], *args: Any) -> None:
    """Check that something is kept, and derivatives to the second order."""
    assert stacks(fun, *args) != []
    assert_right(fun, *args)


def test_an_output_that_changes_later_is_kept() -> None:
    """A slot is written again in a later step, at the same place, or by an accumulation."""

    def later(x: Any) -> Any:
        def body(i: Any, r: Any) -> None:
            y = ew.exp(x[i])
            r[i] = y
            r[i + 1] = y * 2.0

        return for_loop(STEPS, body, zeros(STEPS + 1, x.dtype))

    def added(x: Any) -> Any:
        def body(i: Any, r: Any) -> None:
            y = ew.exp(x[i])
            r[i] = y
            r[i] += 1.0

        return for_loop(STEPS, body, zeros(STEPS, x.dtype))

    def same(x: Any) -> Any:
        def body(i: Any, r: Any) -> None:
            r[0] = ew.exp(x[i] * r[0])

        return for_loop(STEPS, body, x[:2])

    plain = SavingPlan(MinimumCut(share=0.0))
    for fun in (added, same):
        assert stacks(fun, XS[:, 0], plan=plain) != []
        assert_right(fun, XS[:, 0])
    assert_right(later, XS[:, 0])


def test_an_index_that_wraps_around_is_kept() -> None:
    """The first step reads the last slot, which the last step writes."""

    def fun(x: Any) -> Any:
        def body(i: Any, r: Any) -> None:
            r[i] = r[i - 1] * r[i - 1]

        return for_loop(STEPS, body, x)

    assert_not_held(fun, XS[:, 0])


def test_an_index_that_comes_back_is_kept() -> None:
    def fun(x: Any, order: Any) -> Any:
        order = as_value(order)

        def body(i: Any, r: Any) -> None:
            y = ew.exp(x[i] * r[order[i]])
            r[order[i]] = y

        return for_loop(STEPS, body, x)

    order = np.asarray([0, 1, 0, 2, 1], np.int32)
    assert_not_held(lambda x: fun(x, order), XS[:, 0])


def test_reverse_loops_read_what_comes_later() -> None:
    def fun(x: Any) -> Any:
        def body(i: Any, r: Any) -> None:
            r[i] = r[i + 1] * r[i]

        return for_loop(STEPS - 1, body, x, reverse=True)

    assert_held(fun, XS[:, 0])


def test_a_state_written_behind_and_read_ahead() -> None:
    """Read ahead: before its write; read behind: after it; whatever the direction."""

    def fun(x: Any) -> Any:
        def body(i: Any, r: Any) -> None:
            r[i + 1] = r[i] * (r[i + 2] + r[i + 1])

        return for_loop(STEPS, body, x) + for_loop(STEPS, body, x, reverse=True)

    assert_held(fun, drawn(STEPS + 2))


def test_what_the_caller_changes_afterwards() -> None:
    def fun(init: Any, xs: Any) -> Any:
        ref = st.new_ref(ew.mul(xs, 0.0))

        def body(i: Any, c: Any) -> None:
            y = ew.exp(c[...] * xs[i])
            ref[i] = y
            c[...] = y

        out = for_loop(STEPS, body, init)
        total = (ref[...] * ref[...]).sum()
        ref[...] = 0.0
        return out * total

    assert_held(fun, INIT, XS)


def test_a_ref_from_outside_that_is_carried_whole() -> None:
    def fun(init: Any, xs: Any) -> Any:
        ref = st.new_ref(init)

        def body(i: Any, ys: Any) -> None:
            y = sp.tanh(ref[...] * ref[...] + as_value(xs)[i])
            ref[...] = y
            ys[i] = y

        ys = for_loop(STEPS, body, ew.mul(xs, 0.0))
        ref[...] += 1.0
        return ys * ref[...]

    assert_right(fun, INIT, XS)


def test_bytes_of_a_recurrence_are_those_of_its_outputs() -> None:
    n, width = 64, 512

    def fun(init: Any, xs: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            h = sp.tanh(c * 0.5 + x)
            return h, h

        return (scan(step, init, xs)[1] ** 2).sum()

    args = drawn(width), drawn(n, width)
    one = n * width * 4
    memory = jit(grad(fun, (0, 1))).lower(*args).compile().memory_analysis()
    assert memory.temp < 2.5 * one


def test_the_directional_derivative_of_a_gradient() -> None:
    def fun(init: Any, xs: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            h = sp.tanh(c * 0.5 + x)
            return h, h * x

        c, ys = scan(step, init, xs)
        return c.sum() + (ys * ys).sum()

    args = np.asarray(INIT, np.float64), np.asarray(XS, np.float64)
    out = jvp(lambda *a: grad(fun)(*a), args, args)
    eps = 1e-6
    moved = [grad(fun)(*[x * (1 + s * eps) for x in args]) for s in (1, -1)]
    assert np.allclose(out[1], (np.asarray(moved[0]) - np.asarray(moved[1])) / (2 * eps), rtol=1e-5)
