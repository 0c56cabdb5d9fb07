"""Loops over loops on a large Ref: the gradient keeps a few values of each step, and copies no array."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import grad, jit, jvp, make_jaxpr, value_and_grad, vmap
from fiveloop.loops import cond, explain, for_loop, fori_loop, scan, while_loop
from fiveloop.loops.primitives import slots
from fiveloop.loops.primitives.replay import replay_p
from fiveloop.loops.schedules import Periodic
from fiveloop.state import debug_print, new_ref

SIZE = 2_000
DRAW = np.random.default_rng(3)
X, V, W = DRAW.standard_normal((3, SIZE))
P = np.float64(0.8)
ZERO = fnp.zeros((), np.int32)


def above(i: Any) -> Any:
    """The place above another one in a heap."""
    return fnp.where(i > 0, (i - 1) // 2, 0)


def rise(tree: Any, i: Any, p: Any) -> None:
    """Let an element of a heap rise while it is smaller than the one above it."""

    def body(i: Any) -> Any:
        child, parent = tree[i], tree[above(i)]
        tree[i], tree[above(i)] = parent, child * p
        return above(i)

    while_loop(lambda i: (i > 0) & (tree[i] < tree[above(i)]), body, i)


def fall(tree: Any, i: Any, p: Any) -> None:
    """Let an element fall while it is larger than the one below it."""

    def below(i: Any) -> Any:
        return fnp.minimum(2 * i + 1, SIZE - 1)

    def body(i: Any) -> Any:
        parent, child = tree[i], tree[below(i)]
        tree[i], tree[below(i)] = child, parent * p
        return below(i)

    while_loop(lambda i: (2 * i + 1 < SIZE) & (tree[below(i)] < tree[i]), body, i)


def heap(x: Any, p: Any) -> Any:
    """Push the elements of a Ref on a heap."""
    tree = new_ref(x)

    def push(i: Any, _: Any) -> None:
        tree[i] = fnp.sin(p * tree[i])
        rise(tree, i, p)

    for_loop(x.shape[0], push, ())
    return tree[...]


def heap_of_arrays(x: Any, p: Any) -> Any:
    """The same with an outer `while`, of arrays."""

    def push(val: Any) -> Any:
        i, tree = val

        def body(val: Any) -> Any:
            i, tree = val
            up = above(i)
            return up, tree.at[i].set(tree[up]).at[up].set(tree[i] * p)

        goes_on = lambda val: (val[0] > 0) & (val[1][val[0]] < val[1][above(val[0])])
        start = i, tree.at[i].set(fnp.sin(p * tree[i]))
        return i + 1, while_loop(goes_on, body, start)[1]

    return while_loop(lambda val: val[0] < SIZE, push, (ZERO, x))[1]


def stack(x: Any, p: Any) -> Any:
    """The sum of what lies under each element on a monotone stack: the inner loop reads, the outer one writes."""
    held = new_ref(fnp.zeros_like(x))

    def push(top: Any, v: Any) -> tuple[Any, Any]:
        def pop(val: Any) -> Any:
            top, total = val
            return top - 1, total + fnp.sin(p * held[top])

        goes_on = lambda val: (val[0] > 0) & (held[val[0]] < v)
        top, total = while_loop(goes_on, pop, (top, fnp.zeros_like(v)))
        held[fnp.minimum(top + 1, SIZE - 1)] = v
        return fnp.minimum(top + 1, SIZE - 1), total

    return scan(push, ZERO, x)[1]


def several(x: Any, p: Any) -> Any:
    """A loop in a branch, one in a call, and a `scan` on the same Ref between them."""
    tree = new_ref(x)

    @jit
    def called(tree: Any, i: Any, p: Any) -> Any:
        fall(tree, i, p)
        return tree[i] * p

    def risen(i: Any) -> Any:
        rise(tree, i, p)
        return tree[i]

    def step(i: Any, _: Any) -> None:
        total = cond(i % 3 > 0, risen, lambda i: p, i)
        total, _ = scan(lambda c, j: (c + p * tree[j], None), total, fnp.arange(3))
        tree[i] = total * called(tree, i // 8, p)

    for_loop(SIZE, step, ())
    return tree[...]


def three_deep(x: Any, p: Any) -> Any:
    """A `while` in a `while` in a `for`, beside a loop of a computed length, and with a Ref of a step's own."""
    tree = new_ref(x)

    def step(i: Any, _: Any) -> None:
        own = new_ref(p)

        def push(j: Any) -> Any:
            own[...] = fnp.sin(own[...] + tree[4 * i + j])
            tree[4 * i + j] *= own[...]
            rise(tree, 4 * i + j, p)
            return j + 1

        def halve(j: Any, total: Any) -> Any:
            tree[j] = fnp.cos(p * tree[j])
            return total + tree[j]

        while_loop(lambda j: (j < 4) & (own[...] < 1.5), push, ZERO)
        tree[4 * i] *= fori_loop(0, i % 3, halve, p)

    for_loop(SIZE // 4, step, ())
    return tree[...]


PROGRAMS = (heap, heap_of_arrays, stack, several, three_deep)


def loss(program: Callable[..., Any]) -> Callable[..., Any]:
    """A function of the elements and a number."""
    return lambda x, p: fnp.sum(fnp.asarray(W) * program(x, p) ** 2)


@cache
def compiled(program: Callable[..., Any]) -> Any:
    """The value and the gradient."""
    return jit(value_and_grad(loss(program), (0, 1))).lower(X, P).compile()


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_gradient_is_that_of_forward_mode_and_keeps_no_ref_of_each_step(
    program: Callable[..., Any],
) -> None:
    value, (x_bar, p_bar) = compiled(program)(X, P)
    want, slope = jit(lambda x, p: jvp(loss(program), (x, p), (V, np.float64(1.0))))(X, P)
    np.testing.assert_allclose(value, want, rtol=1e-12)
    np.testing.assert_allclose(np.dot(x_bar, V) + p_bar, slope, rtol=1e-9)
    assert compiled(program).copies == 0
    # A Ref of each step would be `SIZE` times the elements.
    assert compiled(program).memory_analysis().temp < SIZE / 5 * X.nbytes


def test_lanes() -> None:
    pair = np.stack([X, -X])
    lanes = jit(vmap(grad(loss(heap), (0, 1)), in_axes=(0, None))).lower(pair, P).compile()
    want = [compiled(heap)(x, P)[1] for x in pair]
    for got, each in zip(lanes(pair, P), zip(*want, strict=True), strict=True):
        np.testing.assert_allclose(got, each, rtol=1e-9)
    assert lanes.copies == 0


def test_the_second_derivative() -> None:
    twice = jit(grad(lambda x: fnp.sum(V * grad(loss(heap), (0, 1))(x, P)[0]))).lower(X).compile()
    ends = [compiled(heap)(X + h * V, P)[1][0] for h in (-1e-6, 1e-6)]
    want = (ends[1] - ends[0]) / 2e-6
    np.testing.assert_allclose(twice(X), want, rtol=1e-4, atol=1e-4)
    assert twice.copies == 0


def test_a_small_ref_is_kept_of_each_step() -> None:
    short = X[:20]
    eqns = make_jaxpr(grad(lambda x: fnp.sum(heap(x, P))))(short).eqns
    assert not any(e.primitive is replay_p for e in eqns)


def test_a_loop_is_made_one_but_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "SMALL", -1)
    monkeypatch.setattr(slots, "LEAST_SHARE", 0)

    def powered(x: Any) -> Any:
        held = new_ref(x)

        def step(i: Any, _: Any) -> None:
            y = scan(lambda c, _: (c * c, None), held[i], length=2)[0]
            held[i] = while_loop(lambda v: v < 100, lambda v: v * v, y)

        for_loop(2, step, ())
        return fnp.sum(held[...])

    np.testing.assert_allclose(jit(grad(powered))(np.array([2.0, 7.0])), [8 * 2.0**7, 4 * 7.0**3])


def test_explain_says_what_became_one_loop() -> None:
    forward, backward = explain(grad(loss(heap), (0, 1)), X, P).loops
    assert forward.decision("flatten").reason == (
        "it and the loops of `body` in its steps are one in the derivative, which keeps a few values of each turn, and "
        "not 16024 bytes of each step of `push`"
    )
    assert backward.decision("flatten") == forward.decision("flatten")
    reason = backward.decision("replay").reason
    assert "; 444 steps are reversed together, with 36 bytes saved of each" in reason


def test_explain_says_why_loops_stay_apart() -> None:
    forward = explain(grad(lambda x: fnp.sum(heap(x, P))), X[:20]).loops[0]
    decision = forward.decision("flatten")
    assert not decision.done
    assert re.fullmatch(
        r"it and the loops of `body` are not one in the derivative, which saves \d+ bytes of each step of `push`: one "
        r"loop pays above \d+ bytes, 1024 and 16 times what a turn computes",
        decision.reason,
    )


def test_explain_says_that_a_call_of_python_keeps_loops_apart() -> None:
    def pushed(x: Any) -> Any:
        tree = new_ref(x)

        def push(i: Any, _: Any) -> None:
            rise(tree, i, P)
            debug_print("{}", i)

        for_loop(20, push, ())
        return fnp.sum(tree[...])

    decision = explain(grad(pushed), X).loops[0].decision("flatten")
    assert not decision.done
    assert decision.reason.endswith(
        "are not one in the derivative: `callback` must happen step by step, for all lanes together"
    )


def test_explain_says_that_a_schedule_for_few_steps_keeps_loops_apart() -> None:
    def pushed(x: Any) -> Any:
        tree = new_ref(x)
        body = lambda i, _: rise(tree, i, P)
        for_loop(20, body, (), checkpoints=Periodic(5, tape=4))
        return fnp.sum(tree[...])

    outer = next(loop for loop in explain(grad(pushed), X).loops if loop.call == "for_loop")
    decision = outer.decision("flatten")
    assert not decision.done
    assert "Periodic(slots=5, tape=4) is for at most 20 steps" in decision.reason
