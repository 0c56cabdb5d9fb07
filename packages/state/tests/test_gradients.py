"""Derivatives in what Refs hold, gradients added to Refs, and values stored in Refs from outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiveloop.core import (
    closed_call,
    grad,
    hessian,
    jacfwd,
    jacrev,
    jit,
    jvp,
    linearize,
    stop_gradient,
    value_and_grad,
    vjp,
    vmap,
)
from fiveloop.state import freeze, new_ref
from fiveloop.testing.core.misuse import assert_misuse

X = np.array([1.0, 2.0, 3.0])
AFTER = [3.0, 5.0, 6.0]
SLOPE = [84.0, 10.0, 12.0]
Transform = Callable[..., Any]
WAYS = [lambda f: f, jit]


def squares(ref: Any) -> Any:
    """The sum of squares after some updates."""
    ref[0] *= 3.0
    ref.at[1:][...] += ref[0]
    return (ref[...] ** 2).sum()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("transform", [grad, jacfwd, jacrev])
def test_the_gradient_of_a_ref_is_that_of_what_it_held(
    transform: Transform, way: Transform
) -> None:
    ref = new_ref(X)
    np.testing.assert_allclose(np.asarray(way(transform(squares))(ref)), SLOPE)
    assert ref[...].tolist() == AFTER


def test_second_derivatives() -> None:
    ref = new_ref(X)
    want = [[54.0, 6.0, 6.0], [6.0, 2.0, 0.0], [6.0, 0.0, 2.0]]
    np.testing.assert_allclose(np.asarray(hessian(squares)(ref)), want)
    assert ref[...].tolist() == AFTER


@pytest.mark.parametrize("way", WAYS)
def test_other_derivatives(way: Transform) -> None:
    ref, dot = new_ref(X), new_ref(np.ones(3))
    push = way(lambda a, b: jvp(squares, (a,), (b,)))
    out, out_dot = push(ref, dot)
    assert (float(out), float(out_dot)) == (70.0, sum(SLOPE))
    assert (ref[...].tolist(), dot[...].tolist()) == (AFTER, [3.0, 4.0, 4.0])
    ref = new_ref(X)
    assert float(way(lambda a: linearize(squares, a)[1](np.ones(3)))(ref)) == sum(SLOPE)
    assert ref[...].tolist() == AFTER
    (bar,) = way(lambda a: vjp(squares, a)[1](1.0))(new_ref(X))
    np.testing.assert_allclose(np.asarray(bar), SLOPE)


def test_a_view_and_a_tree() -> None:
    ref = new_ref(np.stack([X, X]))

    def loss(t: Any, w: Any) -> Any:
        return squares(t["r"]) * w, t["r"][0]

    both: Transform = value_and_grad(loss, (0, 1), has_aux=True)
    (value, aux), (slopes, by_w) = both({"r": ref.at[1]}, 2.0)
    np.testing.assert_allclose(np.asarray(slopes["r"]), 2 * np.array(SLOPE))
    assert (float(value), float(aux), float(by_w)) == (140.0, 3.0, 70.0)
    assert ref[...].tolist() == [X.tolist(), AFTER]


def test_lanes_with_a_gradient_each() -> None:
    ref = new_ref(np.stack([X, X + 1]))
    slopes = vmap(grad(squares))(ref)
    np.testing.assert_allclose(np.asarray(slopes[0]), SLOPE)
    assert ref[0].tolist() == AFTER


def test_a_ref_that_is_only_read_is_not_written() -> None:
    ref = new_ref(X)

    def outer(w: Any) -> Any:
        return (grad(lambda r: (r[...] ** 2).sum())(ref) * w).sum()

    assert float(grad(outer)(1.0)) == 12.0


@pytest.mark.parametrize("way", WAYS)
def test_gradients_are_added_to_refs(way: Transform) -> None:
    sums, part = new_ref(np.ones(3)), new_ref(np.zeros((2, 3)))

    def step(sums: Any, part: Any, x: Any, y: Any) -> Any:
        _, back = vjp(lambda t, z: (t["x"] ** 2 * t["y"]).sum() * z, {"x": x, "y": y}, 2.0)
        found, by_z = back.with_refs({"x": sums, "y": part}, None)(1.0)
        assert found["x"] is sums
        return by_z

    for _ in range(2):
        assert float(way(step)(sums, part.at[1], X, X)) == 36.0
    np.testing.assert_allclose(np.asarray(sums[...]), 1 + 2 * 4 * X**2)
    np.testing.assert_allclose(np.asarray(part[...]), [[0, 0, 0], (2 * 2 * X**2).tolist()])


def test_gradients_are_added_in_place() -> None:
    sums = new_ref(np.zeros(4))
    sums[0] = 1.0
    address: Any = lambda: sums.array.buffer.unsafe_buffer_pointer()  # type: ignore[attr-defined]  # a Ref that exists
    before = address()
    back = vjp(lambda x: (x * x).sum(), np.ones(4))[1].with_refs(sums)
    back(1.0)
    assert sums[...].tolist() == [3.0, 2.0, 2.0, 2.0]
    assert address() == before


LOG = new_ref(np.zeros(3))


def logs(x: Any) -> Any:
    LOG[...] = x
    return x.sum()


CASES: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "a value stored": (
        lambda: grad(logs)(X),
        TypeError,
        "swap: a value under differentiation is written to a Ref that is not differentiated, so its derivative would "
        "be lost; pass the Ref's contents into the differentiated function and make the Ref there, or write "
        "`stop_gradient(x)`",
    ),
    "too few": (
        lambda: vjp(lambda x, y: x, X, X)[1].with_refs(LOG),
        TypeError,
        "with_refs: expected a Ref or None for each of 2 arguments, got 1",
    ),
    "no Ref": (
        lambda: vjp(lambda x: x, X)[1].with_refs(X),
        TypeError,
        "with_refs: expected Refs and None, got ndarray; make a Ref with `new_ref(zeros_like(x))`",
    ),
    "another shape": (
        lambda: vjp(lambda x: x, X)[1].with_refs(LOG.at[1:]),
        TypeError,
        "with_refs: the Ref for an argument of type f64[3] must have its shape and dtype, got Ref{f64[2]}",
    ),
    "another structure": (
        lambda: vjp(lambda x: x, X)[1].with_refs({"a": LOG}),
        TypeError,
        "with_refs: the Refs must have the structure of the arguments, which differs at [0]: expected dict with keys "
        "['a'], got a leaf of type ShapedArray",
    ),
    "a Ref of integers": (
        lambda: grad(lambda r: r[0])(new_ref(np.arange(3))),
        TypeError,
        "grad of <lambda>: argument `r` must be floating to be differentiated, got Ref{i64[3]}; convert it first, or "
        "leave it out of argnums",
    ),
}


@pytest.mark.parametrize(("call", "kind", "message"), CASES.values(), ids=CASES)
def test_bad_use(call: Callable[[], object], kind: type[Exception], message: str) -> None:
    if "stored" in message or "written" in message:
        assert_misuse(call, kind, message, within=logs)
    else:
        assert_misuse(call, kind, message)


@pytest.mark.parametrize("way", [grad, lambda f: jit(grad(f)), lambda f: grad(closed_call(f))])
def test_a_value_is_stored_without_its_derivative(way: Transform) -> None:
    log = new_ref(np.zeros(4))

    def total(x: Any) -> Any:
        log[0] = stop_gradient(x[1] * 2)
        log.at[1:][...] += stop_gradient(x)
        return (x * x).sum()

    np.testing.assert_array_equal(np.asarray(way(total)(X)), 2 * X)
    assert log[...].tolist() == [4.0, 1.0, 2.0, 3.0]


def made(x: Any) -> Any:
    first, second = new_ref(x), new_ref(x * 2)
    first[0] = 5.0
    return {"first": first, "total": x.sum(), "second": second}


@pytest.mark.parametrize(
    "way", [jit, closed_call, lambda f: jit(closed_call(f)), lambda f: jit(jit(f))]
)
def test_refs_that_a_call_has_made_are_results(way: Transform) -> None:
    call = way(made)
    for _ in range(2):
        out = call(X)
        out["first"][1] += 1.0
        assert out["first"][...].tolist() == [5.0, 3.0, 3.0]
        assert (out["second"][...].tolist(), float(out["total"])) == ((2 * X).tolist(), 6.0)
    slope = grad(lambda x: (call(x)["first"][...] * call(x)["second"][...]).sum())(X)
    np.testing.assert_allclose(np.asarray(slope), [10.0, 8.0, 12.0])
    rows = vmap(lambda x: freeze(call(x)["first"]))(np.stack([X, X]))
    assert rows.tolist() == [[5.0, 2.0, 3.0]] * 2


def twice(x: Any) -> Any:
    ref = new_ref(x)
    return ref, ref


def test_refs_that_are_no_results() -> None:
    ref = new_ref(X)
    outside = "was made outside of it, so the caller has it; leave it out, or return its contents, `ref[...]`"
    cases: list[tuple[Callable[[], object], str, str]] = [
        (lambda: jit(lambda r: r)(ref), "", outside),
        (lambda: jit(lambda: [ref])(), "[0]", outside),
        (lambda: jit(twice)(X), "[1]", "is returned twice; return it once"),
        (
            lambda: jit(lambda x: new_ref(x).at[:])(X),
            "",
            "is a part of another; return its contents, `part[...]`, or all of the other",
        ),
    ]
    for call, where, why in cases:
        with pytest.raises(TypeError) as info:
            call()
        message = str(info.value).split("\n")[0]
        assert message.startswith(f"the result{where} of ")
        assert message.endswith(f" is a Ref of type Ref{{f64[3]}} that {why}")
