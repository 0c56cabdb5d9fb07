"""Loops whose derivative saves a few states, and computes the others again from them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
import fiveloop.testing.loops.references
import fiveloop.testing.remat.references  # noqa: F401  # the oracle learns what a loop and a checkpoint are
from fiveloop.core import ShapeDtype, custom_vjp, grad, jit, jvp, tree_leaves, value_and_grad, vmap
from fiveloop.loops import for_loop, fori_loop, scan, while_loop
from fiveloop.loops.schedules import Online, Periodic, TwoLevel, binomial
from fiveloop.remat import checkpoint
from fiveloop.state import new_ref, pure_callback
from fiveloop.testing.core.misuse import assert_misuse
from fiveloop.testing.core.samples import sample

Function = Callable[..., Any]
XS = np.linspace(-1.0, 1.0, 13)


def scanned(reverse: bool, until: Function | None) -> Function:
    """A scan with inputs and outputs, by how many carries are saved."""
    options: Any = {"reverse": reverse} if until is None else {"reverse": reverse, "until": until}

    def total(a: Any, xs: Any, saved: int | None) -> Any:
        step = lambda c, x: (fnp.tanh(a * c + x), c * x)
        c, ys, *_ = scan(step, a * 0.0 + 0.3, xs, checkpoints=saved, **options)
        return c + (ys * ys).sum()

    return total


def in_place(a: Any, xs: Any, saved: int | None) -> Any:
    """A loop over a Ref that is filled from what it holds, which also writes to one from outside and reads another."""
    weights, seen = new_ref(xs), new_ref(np.zeros(12))

    def body(i: Any, ref: Any) -> None:
        ref[i + 1] = fnp.sin(ref[i] * a) + weights[i]
        seen[i] += ref[i + 1] * ref[i]

    out = for_loop(12, body, xs * a, checkpoints=saved)
    return (out * out).sum() + (seen[...] * weights[1:]).sum()


def nested(a: Any, xs: Any, saved: int | None) -> Any:
    def inner(i: Any, c: Any) -> Any:
        return fori_loop(0, 3, lambda j, c: fnp.sin(c * a) + xs[i + j], c, checkpoints=saved)

    return fori_loop(0, 7, inner, xs[0], checkpoints=saved)


def ends(c: Any) -> Any:
    return c > 0.35


def of_traced_length(a: Any, xs: Any, saved: int | None) -> Any:
    """Loops whose number of steps is computed, one in the other."""

    def body(i: Any, refs: Any) -> None:
        at, c = refs
        c[...] = fori_loop(i, i + at[...], lambda j, c: fnp.sin(c * a) + xs[j], c[...])
        at[...] = (at[...] + 1) % 4

    count = (a * 5.0).astype(np.int32)
    start = (np.int32(1), xs[0])
    return for_loop(count, body, start, reverse=True, checkpoints=saved)[1]


def searched(a: Any, xs: Any, saved: int | None, **options: Any) -> Any:
    """A `while_loop` that fills an array."""

    def body(carry: Any) -> Any:
        k, c, seen = carry
        c = c + a * fnp.abs(xs[k]) + 0.1
        return k + 1, c, seen.at[k].set(c * c)

    start: Any = (0, a * 0.1, np.zeros(13))
    below = lambda carry: carry[1] < 4.0
    _, c, seen = while_loop(below, body, start, checkpoints=saved, **options)
    return c + seen.sum()


LOOPS: dict[str, Function] = {
    "scan": scanned(False, None),
    "scan, reverse": scanned(True, None),
    "scan, until": scanned(False, ends),
    "scan, reverse, until": scanned(True, ends),
    "for_loop in place": in_place,
    "fori_loop in fori_loop": nested,
    "computed numbers of steps": of_traced_length,
    "while_loop": searched,
    "while_loop, max_steps": lambda a, xs, saved: searched(a, xs, saved, max_steps=12),
}


def summed(f: Function) -> Function:
    return lambda a, xs: sum(x.sum() for x in grad(f, (0, 1))(a, xs))


FORMS: dict[str, Function] = {
    "gradient": lambda f: grad(f, (0, 1)),
    "gradient of gradient": lambda f: grad(summed(f), (0, 1)),
    "jvp of gradient": lambda f: lambda a, xs: jvp(summed(f), (a, xs), (a, xs)),
    "gradient of jvp": lambda f: grad(lambda a, xs: jvp(f, (a, xs), (a, xs))[1], (0, 1)),
    "lanes": lambda f: lambda a, xs: vmap(grad(f, (0, 1)), (0, None))(a * np.arange(1.0, 4.0), xs),
    "checkpoint": lambda f: grad(checkpoint(f), (0, 1)),
}


@pytest.mark.parametrize(
    ("loop", "form"),
    [(loop, form) for k, loop in enumerate(LOOPS) for form in list(FORMS)[k % 2 :: 2]],
)
def test_derivatives_are_those_of_the_loop_that_keeps_every_step(loop: str, form: str) -> None:
    def derivative(saved: int | None) -> Function:
        return FORMS[form](lambda a, xs: LOOPS[loop](a, xs, saved))  # type: ignore[no-any-return]

    found = tree_leaves(jit(derivative(3))(np.float64(1.2), XS))
    # That of every step by the oracle: compiling is what takes the time.
    for got, want in zip(found, sample(derivative(None), np.float64(1.2), XS).run(), strict=True):
        np.testing.assert_allclose(np.asarray(got), want, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("loop", "schedule"),
    [
        ("scan, reverse", Periodic(7, tape=2)),
        ("scan, reverse, until", Online(3, tape=2)),
        ("for_loop in place", Periodic(12)),
        ("fori_loop in fori_loop", Periodic(4, tape=2)),
        ("computed numbers of steps", TwoLevel(2, slow=2, period=2)),
        ("while_loop, max_steps", Periodic(6, tape=2)),
    ],
)
def test_states_saved_on_the_way_forward_give_the_derivatives(loop: str, schedule: Any) -> None:
    derivative: Function = lambda saved: grad(lambda a, xs: LOOPS[loop](a, xs, saved), (0, 1))
    found = tree_leaves(jit(derivative(schedule))(np.float64(1.2), XS))
    for got, want in zip(found, sample(derivative(None), np.float64(1.2), XS).run(), strict=True):
        np.testing.assert_allclose(np.asarray(got), want, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("length", "saved"), [(1, 1), (9, 1), (10, 3), (40, 4), (7, 20)])
@pytest.mark.parametrize("traced", [False, True])
def test_steps_are_run_as_often_as_the_schedule_says(length: int, saved: int, traced: bool) -> None:
    ran: list[int] = []

    def host(x: Any) -> Any:
        ran.append(1)
        return np.cos(x)

    @custom_vjp
    def cosine(x: Any) -> Any:
        return pure_callback(host, ShapeDtype((), "float64"), x)

    cosine.defvjp(lambda x: (cosine(x), x), lambda x, ct: (-ct * fnp.sin(x),))

    def total(x: Any, n: Any) -> Any:
        step = lambda i, x: cosine(x) + x * x / 9.0
        return fori_loop(0, n if traced else length, step, x, checkpoints=saved)

    value, got = jit(value_and_grad(total))(np.float64(0.4), length)
    # The derivative of a step does not need the cosine.
    assert len(ran) == length + binomial.advances(length, saved)
    x, ct = 0.4, 1.0
    for _ in range(length):
        ct, x = ct * (-np.sin(x) + x / 4.5), np.cos(x) + x * x / 9.0
    np.testing.assert_allclose([float(value), float(got)], [x, ct], rtol=1e-10)


def test_what_is_stacked_is_not_saved_with_the_carry() -> None:
    wide = np.zeros((1000, 300))

    def total(x: Any, saved: int | None) -> Any:
        step: Function = lambda c, x: (fnp.sin(c + x.sum()), x * c)
        c, ys = scan(step, 0.0, x, checkpoints=saved)
        return c + ys.sum()

    compiled = jit(grad(lambda x: total(x, 10))).lower(wide).compile()
    assert compiled.copies == 0
    assert compiled.memory_analysis().temp < 3 * wide.nbytes


@pytest.mark.parametrize(("loop", "steps"), [("scan", 13), ("while_loop, max_steps", 12)])
def test_no_more_states_are_saved_than_the_loop_has_steps(loop: str, steps: int) -> None:
    def temporary(saved: int) -> int:
        gradient = jit(grad(lambda a, xs: LOOPS[loop](a, xs, saved)))
        return gradient.lower(np.float64(0.7), XS).compile().memory_analysis().temp

    assert temporary(10**9) == temporary(steps)


def test_a_traced_number_of_states_is_refused() -> None:
    assert_misuse(
        lambda: jit(lambda n: for_loop(3, nothing, XS, checkpoints=n))(2),
        TypeError,
        "for_loop: checkpoints must be an integer of at least 1, a schedule, or None, got i32*[]; it must be known "
        "while tracing: if it comes from an argument, name that one in static_argnums",
    )


SHOWN = {0: "0", -2: "-2", 1.5: "1.5 of type float"}


@pytest.mark.parametrize("given", SHOWN)
def test_a_number_of_states_that_is_none_is_refused(given: Any) -> None:
    error = TypeError if isinstance(given, float) else ValueError
    message = (
        f"checkpoints must be an integer of at least 1, a schedule, or None, got {SHOWN[given]}"
    )
    step = lambda c, x: (c, x)
    assert_misuse(
        lambda: for_loop(3, nothing, XS, checkpoints=given), error, f"for_loop: {message}"
    )
    assert_misuse(lambda: scan(step, 0.0, XS, checkpoints=given), error, f"scan: {message}")
    assert_misuse(
        lambda: fori_loop(0, 3, lambda i, x: x, XS, checkpoints=given),
        error,
        f"fori_loop: {message}",
    )
    assert_misuse(
        lambda: while_loop(lambda x: x < 3, lambda x: x + 1, 0, checkpoints=given),
        error,
        f"while_loop: {message}",
    )


def nothing(i: Any, ref: Any) -> None: ...
