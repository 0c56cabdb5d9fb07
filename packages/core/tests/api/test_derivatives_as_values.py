"""What `vjp` and `linearize` give is a pytree: it goes in and out of compiled functions, and keeps few arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fiveloop.core import (
    NotNeeded,
    ShapeDtype,
    checking_leaks,
    eval_shape,
    jit,
    linearize,
    tree_leaves,
    tree_map,
    vjp,
    vmap,
)
from fiveloop.core.api.flatten import is_spec
from fiveloop.core.primitives.special import cos, sin
from fiveloop.testing.core.compare import assert_all_close, assert_all_near, assert_close
from fiveloop.testing.core.misuse import assert_misuse, raised

X = np.array([0.5, -1.0, 2.0])
CT = np.array([1.0, 2.0, 3.0])


def two(p: Any, scale: Any) -> Any:
    return {"y": sin(p["x"]) * scale}, scale * 3.0


def of(way: Any) -> Any:
    return lambda x: way(two, {"x": x}, np.float64(2.0))[1]


def by_vjp(f: Any) -> Any:
    return tree_leaves(f(({"y": CT}, np.float64(0.5))))


def by_linearize(f: Any) -> Any:
    return tree_leaves(f({"x": CT}, np.float64(0.5)))


WAYS = pytest.mark.parametrize(("way", "use"), [(vjp, by_vjp), (linearize, by_linearize)])


@WAYS
def test_in_and_out_of_jit(way: Any, use: Any) -> None:
    wanted = use(of(way)(X))
    assert_all_close(jit(use)(of(way)(X)), wanted)
    make = jit(of(way))
    assert_all_close(use(make(X)), wanted)
    taken = jit(use)
    for x in (X, X + 1.0, X):
        assert_all_close(taken(make(x)), use(of(way)(x)))
    with checking_leaks():
        assert_all_close(jit(use)(jit(of(way))(X)), wanted)


def test_it_is_compiled_once_for_what_one_program_gives() -> None:
    traced: list[int] = []

    @jit
    def pull(f: Any, ct: Any) -> Any:
        traced.append(1)
        return f(ct)[0]

    make = jit(lambda x: vjp(sin, x)[1])
    for x in (X, 2 * X, 3 * X):
        assert_close(pull(make(x), CT), np.cos(x) * CT)
    assert len(traced) == 1


@WAYS
def test_lanes(way: Any, use: Any) -> None:
    rows = np.stack([X, X + 1.0])
    many = vmap(of(way))(rows)
    found = vmap(use)(many)
    each = [use(of(way)(x)) for x in rows]
    assert_all_close(found, [np.stack(leaves) for leaves in zip(*each, strict=True)])


def test_its_leaves_are_what_it_keeps() -> None:
    _, back = vjp(sin, X)
    (kept,) = tree_leaves(back)
    assert_close(kept, np.cos(X))
    half = tree_map(lambda x: np.asarray(x) / 2, back)
    assert_close(half(CT)[0], np.cos(X) * CT / 2)
    described = eval_shape(lambda x: vjp(sin, x)[1], ShapeDtype((3,), "float64"))
    assert [x.shape for x in tree_leaves(described, is_spec)] == [(3,)]


@WAYS
def test_what_does_not_fit_is_still_refused(way: Any, use: Any) -> None:
    f = jit(lambda x: way(sin, x)[1])(X)
    error = raised(lambda: f(np.ones(4)))
    assert "must have the type of the" in str(error) and "f64[3], got f64[4]" in str(error)
    assert use is not None


def test_second_derivatives_of_one_that_was_returned() -> None:
    pull = lambda x: jit(lambda x: vjp(sin, x)[1])(x)(CT)[0]
    (slope,) = vjp(pull, X)[1](np.ones(3))
    assert_close(slope, -np.sin(X) * CT)
    assert_close(cos(X), np.cos(X))


def test_a_pullback_tells_which_arguments_it_keeps() -> None:
    x = np.arange(3.0)
    f = lambda d, n, y: d["a"] * d["b"] * 2.0 + sin(y)
    _, back = vjp(f, {"a": x, "b": x + 1.0}, 3, x + 2.0)
    assert back.args_res[1:] == [NotNeeded(), NotNeeded()]
    assert_all_near([back.args_res[0][k] for k in "ab"], [x, x + 1.0])
    assert len(back.opaque_residuals) == 1
    wanted = vjp(f, {"a": x, "b": x + 1.0}, 3, x + 2.0)[1](x)
    assert_all_near(tree_leaves(back(x)), tree_leaves(wanted))


def test_an_argument_that_is_taken_out_is_not_kept_twice() -> None:
    x, w = np.arange(3.0), np.ones((3, 3))

    @jit
    def forward(w: Any, x: Any) -> Any:
        _, back = vjp(lambda w, x: {"y": w["w"] * x}, w, x)
        back.args_res[0] = None
        return back

    @jit
    def backward(back: Any, w: Any, ct: Any) -> Any:
        back.args_res[0] = w
        return back(ct)

    back = forward({"w": w}, x)
    assert [leaf.shape for leaf in tree_leaves(back)] == [(3,)]
    got = backward(back, {"w": w}, {"y": w})
    assert_all_near([got[0]["w"], got[1]], [w * x, w.sum(0)])
    for given, shown in ((None, "nothing"), ({"w": w[:2]}, "f64[2,3]")):
        back.args_res[0] = given
        assert_misuse(
            lambda: back({"y": w}),
            TypeError,
            "vjp: args_res[0]['w'] must be the argument that the derivative needs, f64[3,3], got "
            f"{shown}; put it back before the call",
        )
