"""Scans that end early, loops whose number of steps is computed, and steps compiled together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
import fiveloop.state as st
from fiveloop.core import custom_vjp, disable_jit, grad, jit, jvp, value_and_grad, vmap
from fiveloop.core.ir.source import function_source
from fiveloop.loops import cond, explain, for_loop, fori_loop, scan, while_loop
from fiveloop.remat import checkpoint
from fiveloop.state import debug_callback
from fiveloop.testing.core.gradcheck import check_grads
from fiveloop.testing.core.misuse import assert_misuse

BASES = np.asarray([2.0, 3.0, 1.1, 9.0], np.float32)


def powers(a: Any, length: int = 6, **options: Any) -> Any:
    """Powers of `a`, until one is above 5."""
    return scan(lambda x, _: (a * x, x * x), 1.0, length=length, until=lambda x: x > 5.0, **options)


def powers_by_hand(a: float, length: int = 6) -> tuple[float, list[float], int]:
    x, ys = 1.0, list[float]()
    while len(ys) < length:
        ys.append(x * x)
        x = a * x
        if x > 5.0:
            break
    return x, ys + [0.0] * (length - len(ys)), sum(y != 0 for y in ys)


@pytest.mark.parametrize("a", [2.0, 9.0, 1.1])
@pytest.mark.parametrize("unroll", [1, 4, True, "auto"])
def test_a_scan_ends_after_the_step_that_the_condition_holds_for(a: float, unroll: Any) -> None:
    final, ys, steps = jit(lambda a: powers(a, unroll=unroll))(a)
    want, want_ys, want_steps = powers_by_hand(a)
    np.testing.assert_allclose(float(final), want, rtol=1e-5)
    np.testing.assert_allclose(np.asarray(ys), want_ys, rtol=1e-5)
    assert int(steps) == want_steps


def test_python_ends_where_the_compiled_loop_does() -> None:
    with disable_jit():
        python = powers(2.0)
    for x, y in zip(python, powers(2.0), strict=True):
        np.testing.assert_allclose(np.asarray(x), np.asarray(y))


def test_no_step_is_taken_of_none() -> None:
    _, ys, steps = powers(2.0, length=0)
    assert ys.shape == (0,)
    assert int(steps) == 0


def test_steps_not_taken_are_not_run() -> None:
    # As many steps as this would take minutes.
    final, _, steps = jit(
        lambda a: scan(lambda x, _: (a * x, None), 1.0, length=2**31 - 1, until=lambda x: x > 5.0)
    )(2.0)
    assert (float(final), int(steps)) == (8.0, 3)


@pytest.mark.parametrize("a", [2.0, 9.0, 1.1])
def test_an_early_end_is_differentiable_in_both_modes(a: float) -> None:
    def total(a: Any) -> Any:
        final, ys, _ = powers(a)
        return final + (ys * ys).sum()

    check_grads(total, (np.float64(a),), order=2)


def test_each_lane_ends_for_itself() -> None:
    final, ys, steps = vmap(powers)(BASES)
    for k, a in enumerate(BASES):
        want, want_ys, want_steps = powers_by_hand(float(a))
        np.testing.assert_allclose(float(final[k]), want, rtol=1e-5)
        np.testing.assert_allclose(np.asarray(ys[k]), want_ys, rtol=1e-5)
        assert int(steps[k]) == want_steps


def test_lanes_have_their_own_gradients() -> None:
    one = grad(lambda a: powers(a)[1].sum())
    np.testing.assert_allclose(
        np.asarray(vmap(one)(BASES)), [float(one(a)) for a in BASES], rtol=1e-5
    )


def doublings(a: Any, length: int) -> Any:
    return scan(lambda x, _: (a * x, None), 1.0, length=length, until=lambda x: x > 5.0)


def test_a_batch_ends_with_its_last_lane() -> None:
    # As many steps as this would take minutes.
    bases = np.stack([BASES, BASES + 1])
    final, _, steps = jit(vmap(vmap(lambda a: doublings(a, 2**31 - 1))))(bases)
    for k, a in np.ndenumerate(bases):
        want, _, want_steps = powers_by_hand(float(a), 100)
        np.testing.assert_allclose(float(final[k]), want, rtol=1e-5)
        assert int(steps[k]) == want_steps


def test_a_batch_that_ends_early_is_differentiable_in_both_modes() -> None:
    def total(bases: Any) -> Any:
        final, ys, _ = vmap(powers)(bases)
        return (final * (ys * ys).sum(1)).sum()

    check_grads(total, (BASES.astype(np.float64),), order=2)


@pytest.mark.parametrize("length", [0, 1])
@pytest.mark.parametrize("lanes", [0, 1, 3])
def test_few_steps_of_few_lanes(length: int, lanes: int) -> None:
    final, ys, steps = vmap(lambda a: powers(a, length))(np.full(lanes, 9.0, np.float32))
    assert ys.shape == (lanes, length)
    np.testing.assert_array_equal(np.asarray(steps), np.full(lanes, length))
    np.testing.assert_array_equal(np.asarray(final), np.full(lanes, 9.0**length))


def counted_sine(ran: list[int]) -> Callable[[Any], Any]:
    """A sine whose derivative tells that it runs, going backward."""

    def backward(x: Any, ct: Any) -> Any:
        debug_callback(lambda: ran.append(1))
        return (ct * fnp.cos(x),)

    sine: Callable[[Any], Any] = custom_vjp(fnp.sin)
    sine.defvjp(lambda x: (fnp.sin(x), x), backward)  # type: ignore[attr-defined]  # the function has it
    return sine


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("start", "taken"), [(0.1, 3), (3.0, 1), (-100.0, 7)])
def test_the_way_back_begins_at_the_last_step_taken(
    start: float, taken: int, reverse: bool
) -> None:
    ran: list[int] = []
    sine = counted_sine(ran)

    def total(x: Any) -> Any:
        step = lambda x, _: (x + fnp.abs(sine(x)) + 0.7, x)
        end, ys, steps = scan(step, x, length=7, until=lambda x: x > 3.0, reverse=reverse)
        return end + ys.sum(), steps

    (_, steps), _ = jit(value_and_grad(total, has_aux=True))(start)
    assert int(steps) == len(ran) == taken


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    "form",
    [
        grad,
        lambda f: grad(grad(f)),
        lambda f: lambda a: jvp(grad(f), (a,), (1.0,))[1],
    ],
)
def test_derivatives_are_those_of_as_many_steps(form: Callable[[Any], Any], reverse: bool) -> None:
    def ends(a: Any) -> Any:
        x, ys, _ = powers(a, reverse=reverse)
        return x * (ys[1:] * ys[:-1]).sum()

    def goes_on(steps: int) -> Callable[[Any], Any]:
        def run(a: Any) -> Any:
            out: Any = scan(lambda x, _: (a * x, x * x), 1.0, length=steps, reverse=reverse)
            x, ys = out
            return x * (ys[1:] * ys[:-1]).sum()

        return run

    bases = np.array([2.0, 1.1])
    want = [float(form(goes_on(int(powers(a)[2])))(a)) for a in bases]
    np.testing.assert_allclose([float(jit(form(ends))(a)) for a in bases], want, rtol=1e-10)
    np.testing.assert_allclose(np.asarray(vmap(form(ends))(bases)), want, rtol=1e-10)
    lanes = form(lambda each: vmap(ends)(each).sum()) if form is grad else vmap(form(ends))
    np.testing.assert_allclose(np.asarray(jit(lanes)(bases)), want, rtol=1e-10)


def test_a_checkpointed_step_that_ends_early_runs_again_as_often() -> None:
    ran: list[int] = []
    sine = counted_sine(ran)

    def total(x: Any) -> Any:
        step = lambda x, _: (x + fnp.abs(sine(x)) + 0.7, None)
        return scan(step, x, length=7, until=lambda x: x > 3.0)[0]

    got = jit(grad(checkpoint(total)))(0.1)
    assert len(ran) == 3
    np.testing.assert_allclose(float(got), float(grad(total)(0.1)), rtol=1e-6)


def test_a_batch_that_ends_early_is_explained_by_the_names_of_its_operands() -> None:
    (found,) = explain(vmap(powers), BASES).loops
    names = [operand.name for operand in found.operands]
    assert names == ["a", "carry", "ys", "ended", "steps taken", "all ended"]


def test_a_batch_with_an_early_end_is_updated_in_place() -> None:
    gradient = jit(vmap(grad(lambda a: powers(a, 100)[1].sum())))
    assert gradient.lower(BASES).compile().copies == 0


def test_slices_and_refs_go_with_an_early_end() -> None:
    xs = np.arange(5, dtype=np.float32)
    seen = st.new_ref(np.zeros(5, np.float32))

    def step(total: Any, x: Any) -> tuple[Any, Any]:
        seen[x.astype(np.int32)] += 1.0
        return total + x, total

    total, ys, steps = scan(step, 0.0, xs, reverse=True, until=lambda t: t >= 7)
    assert (float(total), int(steps)) == (7.0, 2)
    np.testing.assert_array_equal(np.asarray(ys), [0, 0, 0, 4, 0])
    np.testing.assert_array_equal(np.asarray(seen[...]), [0, 0, 0, 1, 1])


def itself(x: Any) -> Any:
    return x


def test_a_condition_that_gives_no_bool_is_refused() -> None:
    assert_misuse(
        lambda: scan(lambda x, _: (x, x), 1.0, length=3, until=itself),
        TypeError,
        f"scan: until must return a bool scalar, but `{function_source(itself)}` returns f32*[]; compare (`x > 0`), or "
        "reduce with `all` or `any`",
    )


def doubling(i: Any, r: Any) -> None:
    r[i + 1] = r[i] * 2.0


@pytest.mark.parametrize("nsteps", [0, 1, 5, -3])
@pytest.mark.parametrize("reverse", [False, True])
def test_the_number_of_steps_may_be_computed(nsteps: int, reverse: bool) -> None:
    start = np.arange(1, 9, dtype=np.float32)
    got = jit(lambda n: for_loop(n, doubling, start, reverse=reverse))(nsteps)
    want = for_loop(max(nsteps, 0), doubling, start, reverse=reverse)
    np.testing.assert_array_equal(np.asarray(got), np.asarray(want))


def test_lanes_may_have_their_own_number_of_steps() -> None:
    start = np.ones(8, np.float32)
    got = vmap(lambda n: for_loop(n, doubling, start))(np.arange(4))
    want = [np.asarray(for_loop(n, doubling, start)) for n in range(4)]
    np.testing.assert_array_equal(np.asarray(got), want)


def test_a_computed_number_of_steps_has_a_forward_mode() -> None:
    start = np.ones(8, np.float32)
    _, dot = jvp(lambda x: jit(lambda n, x: for_loop(n, doubling, x))(3, x), (start,), (start,))
    np.testing.assert_array_equal(np.asarray(dot), [1, 2, 4, 8, 1, 1, 1, 1])


@pytest.mark.parametrize("unroll", [True, False, "auto", 3, 100])
@pytest.mark.parametrize("nsteps", [0, 1, 7])
def test_any_number_of_steps_may_be_compiled_together(unroll: Any, nsteps: int) -> None:
    got = jit(lambda x: for_loop(nsteps, doubling, x, unroll=unroll))(np.ones(8, np.float32))
    np.testing.assert_array_equal(np.asarray(got)[: nsteps + 1], 2.0 ** np.arange(nsteps + 1))
    total = jit(lambda x: fori_loop(0, nsteps, lambda i, s: s + i, x, unroll=unroll))(0)
    assert int(total) == sum(range(nsteps))


def in_blocks(n: int, last: int, until: bool = True) -> Callable[[Any], Any]:
    """A loop of four steps in each step of a scan: every element is the sine of the one before."""

    def step(carry: Any, _: Any) -> Any:
        k, x = carry

        def body(i: Any, x: Any) -> Any:
            at = 4 * k + i
            return x.at[at + 1].set(np.sin(x[at]))

        return (k + 1, fori_loop(0, 4, body, x)), None

    def total(x: Any) -> Any:
        start = (np.int32(0), x)
        if until:
            (_, out), _, _ = scan(step, start, length=n, until=lambda carry: carry[0] >= last)
        else:
            (_, out), _ = scan(step, start, length=last)
        return (out * out).sum()

    return total


@pytest.mark.parametrize("form", [lambda f: f, grad, lambda f: grad(lambda x: grad(f)(x).sum())])
def test_a_loop_in_a_scan_that_ends_early_copies_no_array(form: Any) -> None:
    x = np.linspace(0.1, 0.9, 4 * 20 + 1)
    ends, whole = form(in_blocks(20, 13)), form(in_blocks(20, 13, until=False))
    compiled = jit(ends).lower(x).compile()
    assert compiled.copies == 0
    np.testing.assert_allclose(np.asarray(jit(ends)(x)), np.asarray(jit(whole)(x)), rtol=1e-12)


def test_lanes_end_a_scan_with_a_loop_for_themselves() -> None:
    def total(last: Any, x: Any) -> Any:
        return in_blocks(8, last)(x)

    x = np.linspace(0.1, 0.9, 4 * 8 + 1)
    lasts = np.array([1, 5, 8], np.int32)
    got = jit(vmap(grad(total, 1), (0, None)))(lasts, x)
    for row, last in zip(got, lasts, strict=True):
        want = grad(in_blocks(8, int(last), until=False))(x)
        np.testing.assert_allclose(np.asarray(row), np.asarray(want), rtol=1e-12)


@pytest.mark.parametrize("flag", [False, True])
@pytest.mark.parametrize("unroll", [1, 3])
def test_a_loop_over_a_flag_that_may_be_set_before_it(flag: bool, unroll: int) -> None:
    """As a scan that ends early is written by hand: no step is taken if the flag is set."""

    def run(flag: Any, x: Any) -> Any:
        def body(i: Any, refs: Any) -> None:
            ended, ref = refs

            def step() -> None:
                ref[i] += 1.0
                ended[...] = i >= 2

            cond(ended[...], lambda: None, step)

        return for_loop(5, body, (flag, x), unroll=unroll)[1]

    got = jit(run)(np.bool_(flag), np.zeros(5, np.float32))
    want = [0, 0, 0, 0, 0] if flag else [1, 1, 1, 0, 0]
    np.testing.assert_array_equal(np.asarray(got), want)


@pytest.mark.parametrize("as_python", [False, True])
def test_a_condition_must_not_write(as_python: bool) -> None:
    asked = st.new_ref(np.zeros((), np.int32))

    def until(carry: Any) -> Any:
        asked[...] += 1
        return carry > 3

    def goes_on(val: Any) -> Any:
        asked[...] += 1
        return val < 3

    with disable_jit(as_python):
        with pytest.raises(
            TypeError, match=r"scan: until must only read Refs, .*; write in f, and"
        ):
            scan(lambda x, _: (x + 1, None), 0, length=10, until=until)
        with pytest.raises(TypeError, match=r"cond_fun must only read Refs, .*; write in body_fun"):
            while_loop(goes_on, lambda x: x + 1, 0)


@pytest.mark.parametrize("as_python", [False, True])
def test_a_condition_may_write_to_a_ref_of_its_own(as_python: bool) -> None:
    def until(carry: Any) -> Any:
        scratch = st.new_ref(carry)
        scratch[...] += 1
        return scratch[...] > 3

    with disable_jit(as_python):
        assert scan(lambda x, _: (x + 1, None), 0, length=10, until=until)[0] == 3
