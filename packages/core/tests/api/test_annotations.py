"""Marks: barriers that the compiler does not move things across, and functions for platforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiveloop.core import grad, jit, jvp, make_jaxpr, optimization_barrier, platform_dependent, vmap
from fiveloop.core.primitives import special as sp
from fiveloop.testing.core.misuse import assert_misuse

X = np.linspace(0.1, 1.0, 4)


def test_a_barrier_gives_a_tree_as_it_is() -> None:
    given = {"a": X, "b": [np.int32(3), 2.0], "c": None}
    out: Any = jit(optimization_barrier)(given)
    np.testing.assert_array_equal(np.asarray(out["a"]), X)
    assert (int(out["b"][0]), float(out["b"][1]), out["c"]) == (3, 2.0, None)
    assert optimization_barrier(()) == ()


def test_a_barrier_is_in_the_program_once_and_once_for_the_cotangent() -> None:
    def f(x: Any) -> Any:
        return sp.sin(optimization_barrier(x)) + sp.sin(x)

    assert jit(f).lower(X).as_text().count("optimization_barrier") == 1
    assert jit(grad(lambda x: f(x).sum())).lower(X).as_text().count("optimization_barrier") == 2


def test_derivatives_and_lanes_pass_a_barrier() -> None:
    def f(x: Any) -> Any:
        y, z = optimization_barrier((x * x, 3))
        return sp.sin(y) * z

    def plain(x: Any) -> Any:
        return sp.sin(x * x) * 3

    for way in (
        grad,
        lambda g: grad(grad(g)),
        lambda g: jit(grad(g)),
        lambda g: lambda x: jvp(g, (x,), (x,))[1],
    ):
        np.testing.assert_allclose(np.asarray(vmap(way(f))(X)), np.asarray(vmap(way(plain))(X)))


def on_cpu(x: Any) -> Any:
    return sp.sin(x)


def elsewhere(x: Any) -> Any:
    return x * 0.0


def chosen(x: Any) -> Any:
    return platform_dependent(x, cpu=on_cpu, cuda=elsewhere)


def by_default(x: Any) -> Any:
    return platform_dependent(x, tpu=elsewhere, default=on_cpu)


@pytest.mark.parametrize("f", [chosen, by_default])
def test_the_function_of_the_platform_runs(f: Callable[[Any], Any]) -> None:
    np.testing.assert_allclose(np.asarray(jit(f)(X)), np.sin(X))
    np.testing.assert_allclose(np.asarray(f(X)), np.sin(X))
    np.testing.assert_allclose(np.asarray(jit(vmap(grad(f)))(X)), np.cos(X))
    assert "mul" not in str(make_jaxpr(f)(X))
    assert "sine" in jit(f).lower(X).as_text()


CASES: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "none for this one": (
        lambda: platform_dependent(X, tpu=elsewhere, cuda=elsewhere),
        ValueError,
        "platform_dependent: expected a function for the platform 'cpu', got those for tpu, cuda; add `cpu=` or "
        "`default=`",
    ),
    "none": (
        lambda: platform_dependent(X),
        ValueError,
        "platform_dependent: expected a function for the platform 'cpu', got those for none; add `cpu=` or `default=`",
    ),
    "no platform": (
        lambda: platform_dependent(X, gpu=elsewhere, default=on_cpu),
        ValueError,
        "platform_dependent: expected names of platforms, cpu, cuda, rocm, tpu, got 'gpu'; leave it out, or write "
        "`default=`",
    ),
    "no function": (
        lambda: platform_dependent(X, cpu=3),  # type: ignore[arg-type]  # that is the point
        TypeError,
        "platform_dependent: cpu: expected a function, got 3 of type int",
    ),
    "another type": (
        lambda: platform_dependent(X, cpu=on_cpu, tpu=lambda x: x[:2]),
        TypeError,
        "platform_dependent: expected functions whose results are of one type, got "
        "ShapeDtype(shape=(4,), dtype=dtype('float64')) and, for tpu, ShapeDtype(shape=(2,), dtype=dtype('float64')); "
        "convert one of them",
    ),
    "a barrier of strings": (
        lambda: optimization_barrier(["s"]),
        TypeError,
        "optimization_barrier: argument `operand`[0] must be an array or a scalar, got 's' of type str",
    ),
}


@pytest.mark.parametrize(("call", "kind", "message"), CASES.values(), ids=CASES)
def test_bad_use(call: Callable[[], object], kind: type[Exception], message: str) -> None:
    assert_misuse(call, kind, message)
