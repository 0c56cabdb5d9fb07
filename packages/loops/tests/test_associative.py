"""associative_scan against loops in NumPy, and accumulate_grads against the gradient of the whole batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fiveloop.loops as loops
from fiveloop.core import grad, jit, tree_leaves, value_and_grad, vmap
from fiveloop.core.ir.source import function_source
from fiveloop.loops import accumulate_grads, associative_scan
from fiveloop.testing.core.gradcheck import check_grads
from fiveloop.testing.core.misuse import assert_misuse

RNG = np.random.default_rng(0)
BLOCKS = [None, 1, 3, 4, 100]


def affine(a: Any, b: Any) -> Any:
    """First `a`, then `b`: maps x -> a[0] x + a[1]."""
    return a[0] * b[0], b[0] * a[1] + b[1]


def recurrence(a: Any, b: Any) -> list[float]:
    h, out = 0.0, []
    for x, y in zip(a, b, strict=True):
        h = x * h + y
        out.append(h)
    return out


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("size", [0, 1, 2, 3, 7, 8, 33])
def test_running_results_are_those_of_a_loop(size: int, block: int | None) -> None:
    a, b = RNG.uniform(0.5, 1.5, size), RNG.normal(size=size)
    _, got = associative_scan(affine, (a, b), block=block)
    np.testing.assert_allclose(np.asarray(got), recurrence(a, b), rtol=1e-9)
    _, back = associative_scan(affine, (a, b), True, block=block)
    np.testing.assert_allclose(np.asarray(back)[::-1], recurrence(a[::-1], b[::-1]), rtol=1e-9)


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("axis", [1, -3])
def test_any_axis_of_functions_that_do_not_commute(axis: int, block: int | None) -> None:
    m = RNG.normal(size=(2, 7, 3, 3))
    got = np.asarray(associative_scan(lambda a, b: a @ b, m, axis=axis, block=block))
    want = m[:, 0]
    for k in range(1, 7):
        want = want @ m[:, k]
        np.testing.assert_allclose(got[:, k], want, rtol=1e-9)


@pytest.mark.parametrize("block", [None, 2])
def test_running_results_are_differentiable_and_batched(block: int | None) -> None:
    def total(x: Any) -> Any:
        runs = associative_scan(lambda a, b: a * b, x, block=block)
        return (runs * runs).sum()

    x = RNG.uniform(0.5, 1.5, (3, 5))
    check_grads(total, (x[0],), order=2)
    each = [np.asarray(grad(total)(row)) for row in x]
    np.testing.assert_allclose(np.asarray(jit(vmap(grad(total)))(x)), each, rtol=1e-9)


def test_cumulative_functions_are_loops_names_too() -> None:
    x = np.asarray([3.0, 1.0, 2.0])
    for name, want in {
        "cumsum": np.cumsum(x),
        "cumprod": np.cumprod(x),
        "cummax": np.maximum.accumulate(x),
        "cummin": np.minimum.accumulate(x),
        "cumlogsumexp": np.logaddexp.accumulate(x),
    }.items():
        np.testing.assert_allclose(np.asarray(getattr(loops, name)(x)), want)


def pair(a: Any, b: Any) -> Any:
    return a, b


def total(a: Any, b: Any) -> Any:
    return (a + b).sum()


ASSOCIATIVE_MISUSES = {
    "another structure": (
        lambda: associative_scan(pair, np.ones(3)),
        TypeError,
        f"associative_scan: fn must keep the structure of its arguments, but in `{function_source(pair)}` elems "
        "goes in as f64[1] and comes out as a tuple of 2",
    ),
    "another type": (
        lambda: associative_scan(total, np.ones(4)),
        TypeError,
        "associative_scan: fn must keep the types of its arguments, but in "
        f"`{function_source(total)}` result is f64[] and should be f64[2]; work on each of the slices along "
        "the axis alone, or convert with astype",
    ),
    "lengths": (
        lambda: associative_scan(affine, (np.ones(3), np.ones(4))),
        ValueError,
        "associative_scan: lengths along the axis differ: elems[0] has 3, elems[1] has 4",
    ),
    "axis": (
        lambda: associative_scan(lambda a, b: a, np.ones(3), axis=1),
        ValueError,
        "associative_scan: axis must be an axis of elems, of type f64[3], got 1",
    ),
    "block": (
        lambda: associative_scan(lambda a, b: a, np.ones(3), block=0),
        ValueError,
        "associative_scan: block must be an integer of at least 1, got 0",
    ),
    "nothing": (
        lambda: associative_scan(lambda a, b: a, ()),
        ValueError,
        "associative_scan: elems must hold at least one array, got PyTreeDef(())",
    ),
}


@pytest.mark.parametrize("name", ASSOCIATIVE_MISUSES)
def test_misuse_of_associative_scan(name: str) -> None:
    assert_misuse(*ASSOCIATIVE_MISUSES[name])


WEIGHTS = {"w": RNG.normal(size=(3, 4)).astype(np.float32), "b": np.float32(0.5)}
INPUTS, TARGETS = (RNG.normal(size=(8, n)).astype(np.float32) for n in (3, 4))


def loss(weights: Any, x: Any, y: Any, scale: Any = 1.0) -> Any:
    error = x @ weights["w"] * weights["b"] - y
    return (error**2).mean() * scale, {"worst": abs(error).max()}


def assert_same(x: Any, y: Any) -> None:
    for a, b in zip(tree_leaves(x), tree_leaves(y), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-5)


@pytest.mark.parametrize("microbatches", [1, 2, 8])
def test_parts_have_the_gradient_of_the_whole(microbatches: int) -> None:
    parts = accumulate_grads(
        loss, microbatches, batch_argnums=(1, 2), has_aux=True, aux_reduction="max"
    )
    whole = value_and_grad(loss, has_aux=True)
    assert_same(jit(parts)(WEIGHTS, INPUTS, TARGETS), whole(WEIGHTS, INPUTS, TARGETS))


def test_parts_may_be_summed_and_results_stacked() -> None:
    parts = accumulate_grads(
        loss, 2, batch_argnums=(1, 2), has_aux=True, reduction="sum", aux_reduction="stack"
    )
    (value, aux), _ = parts(WEIGHTS, INPUTS, TARGETS)
    halves = [loss(WEIGHTS, INPUTS[k : k + 4], TARGETS[k : k + 4]) for k in (0, 4)]
    assert_same(value, sum(float(h[0]) for h in halves))
    assert_same(aux["worst"], np.stack([np.asarray(h[1]["worst"]) for h in halves]))


def test_accumulation_is_batched() -> None:
    parts = accumulate_grads(loss, 4, batch_argnums=(1, 2), has_aux=True)
    scales = np.arange(3, dtype=np.float32)
    got = vmap(lambda s: parts(WEIGHTS, INPUTS, TARGETS, s)[1])(scales)
    want = [parts(WEIGHTS, INPUTS, TARGETS, s)[1] for s in scales]
    assert_same(got["w"], np.stack([np.asarray(g["w"]) for g in want]))


GRADS_MISUSES = {
    "parts": (
        lambda: accumulate_grads(loss, 3, batch_argnums=(1, 2), has_aux=True)(
            WEIGHTS, INPUTS, TARGETS
        ),
        ValueError,
        "accumulate_grads of loss: argument `x` must have a first axis that 3 microbatches cut into equal parts, got "
        "f32[8,3]",
    ),
    "microbatches": (
        lambda: accumulate_grads(loss, 0),
        ValueError,
        "accumulate_grads: microbatches must be an integer of at least 1, got 0",
    ),
    "arguments": (
        lambda: accumulate_grads(loss, 2)(WEIGHTS),  # type: ignore[call-arg]  # on purpose
        TypeError,
        "accumulate_grads of loss: expected at least 2 positional arguments, got 1",
    ),
    "both": (
        lambda: accumulate_grads(loss, 2, 1),
        ValueError,
        "accumulate_grads: argnums and batch_argnums must name different arguments, got 1 and 1",
    ),
    "names": (
        lambda: accumulate_grads(loss, 2, "weights"),  # type: ignore[arg-type]
        TypeError,
        "accumulate_grads: argnums must be positions of arguments, counted from 0, got 'weights' of type str",
    ),
    "reduction": (
        lambda: accumulate_grads(loss, 2, reduction="max"),  # type: ignore[call-overload]
        ValueError,
        'accumulate_grads: reduction must be "mean" or "sum", got \'max\'',
    ),
}


@pytest.mark.parametrize("name", GRADS_MISUSES)
def test_misuse_of_accumulate_grads(name: str) -> None:
    assert_misuse(*GRADS_MISUSES[name])
