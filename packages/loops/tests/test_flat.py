"""A `while` on a large Ref within another loop: the gradient keeps a few values of each step, and copies no array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import grad, jit, make_jaxpr, value_and_grad, vmap
from fiveloop.loops import for_loop, scan, while_loop
from fiveloop.loops.primitives.replay import replay_p
from fiveloop.state import new_ref

SIZE, LARGE = 3_000, 48_000
DRAW = np.random.default_rng(3)
X, W = DRAW.standard_normal(SIZE).astype(np.float32), DRAW.standard_normal(LARGE).astype(np.float32)
P = np.float32(0.8)


def rise(tree: Any, i: Any, **options: Any) -> None:
    """Let an element of a heap rise while it is smaller than the one above it."""

    def above(i: Any) -> Any:
        return fnp.where(i > 0, (i - 1) // 2, 0)

    def body(i: Any) -> Any:
        child, parent = tree[i], tree[above(i)]
        tree[i], tree[above(i)] = parent, child * 0.9
        return above(i)

    while_loop(lambda i: (i > 0) & (tree[i] < tree[above(i)]), body, i, **options)


def for_heap(x: Any, p: Any, **options: Any) -> Any:
    """Push the elements of a Ref on a heap."""
    tree = new_ref(x)

    def push(i: Any, _: Any) -> None:
        tree[i] = fnp.sin(p * tree[i])
        rise(tree, i, **options)

    for_loop(x.shape[0], push, ())
    return tree[...]


def while_heap(x: Any, p: Any, **options: Any) -> Any:
    """The same with an outer `while`."""
    tree = new_ref(x)

    def push(i: Any) -> Any:
        tree[i] = fnp.sin(p * tree[i])
        rise(tree, i, **options)
        return i + 1

    while_loop(lambda i: i < x.shape[0], push, fnp.zeros((), np.int32))
    return tree[...]


def stack(x: Any, p: Any, **options: Any) -> Any:
    """The sum of what lies under each element on a monotone stack: the inner loop reads, the outer one writes."""
    held = new_ref(fnp.zeros_like(x))

    def push(top: Any, v: Any) -> tuple[Any, Any]:
        def pop(val: Any) -> Any:
            top, total = val
            return top - 1, total + fnp.sin(p * held[top])

        goes_on = lambda val: (val[0] > 0) & (held[val[0]] < v)
        top, total = while_loop(goes_on, pop, (top, fnp.zeros_like(v)), **options)
        held[fnp.minimum(top + 1, x.shape[0] - 1)] = v
        return fnp.minimum(top + 1, x.shape[0] - 1), total

    return scan(push, fnp.zeros((), np.int32), x)[1]


LOOPS = {"for": for_heap, "while": while_heap, "stack": stack}


def loss(loop: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """A function of the elements and a number."""
    return lambda x, p: fnp.sum(fnp.asarray(W)[: x.shape[0]] * loop(x, p, **options) ** 2)


@pytest.mark.parametrize("name", LOOPS)
def test_the_gradient_is_that_of_loops_that_keep_each_step(name: str) -> None:
    want = jit(value_and_grad(loss(LOOPS[name], max_steps=20), (0, 1)))(X, P)
    compiled = jit(value_and_grad(loss(LOOPS[name]), (0, 1))).lower(X, P).compile()
    value, slopes = compiled(X, P)
    np.testing.assert_allclose(value, want[0], rtol=1e-5)
    for got, right in zip(slopes, want[1], strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-4, atol=1e-4)
    assert compiled.copies == 0


def test_memory_grows_as_the_array_does() -> None:
    def temp(size: int) -> int:
        compiled = jit(grad(loss(stack))).lower(fnp.zeros((size,), np.float32), P).compile()
        return compiled.memory_analysis().temp

    assert temp(LARGE) < 16 * temp(LARGE // 16)


def test_lanes() -> None:
    pair = np.stack([X, -X])
    slope = jit(grad(loss(for_heap)))
    want = [np.asarray(slope(x, P)) for x in pair]
    compiled = jit(vmap(grad(loss(for_heap)), in_axes=(0, None))).lower(pair, P).compile()
    np.testing.assert_allclose(compiled(pair, P), want, rtol=1e-4, atol=1e-4)
    assert compiled.copies == 0
    both = jit(grad(lambda pair, p: fnp.sum(vmap(lambda x: loss(for_heap)(x, p))(pair))))
    np.testing.assert_allclose(both(pair, P), want, rtol=1e-4, atol=1e-4)
    assert both.lower(pair, P).compile().copies == 0


def test_the_second_derivative() -> None:
    def twice(**options: Any) -> Any:
        slope = grad(loss(for_heap, **options))
        return jit(grad(lambda x, p: fnp.sum(fnp.cos(x) * slope(x, p))))

    np.testing.assert_allclose(twice()(X, P), twice(max_steps=20)(X, P), rtol=1e-3, atol=1e-3)
    assert twice().lower(X, P).compile().copies == 0


def test_a_small_ref_is_kept_of_each_step() -> None:
    short = X[:20]
    eqns = make_jaxpr(grad(loss(for_heap)))(short, P).eqns
    assert not any(e.primitive is replay_p for e in eqns)
