"""What a package outside of the tree adds works in every transform; it imports public names alone."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import grad, hessian, jit, jvp, make_jaxpr, vmap
from fiveloop.loops import for_loop, scan
from fiveloop.remat import checkpoint, saved_residuals
from fiveloop.state import freeze, new_ref
from fiveloop.testing.core.gradcheck import check_grads

HERE = Path(__file__).parent
X = np.array([-2.0, 0.5, 3.0])


@pytest.fixture(scope="module")
def outsider() -> Any:
    sys.path.insert(0, str(HERE))
    try:
        yield import_module("outsider")
    finally:
        sys.path.remove(str(HERE))


def test_a_first_order_primitive(outsider: Any) -> None:
    want = np.where(X > 0, X, 0.25 * X)
    for wrap in (lambda f: f, jit, vmap, checkpoint):
        np.testing.assert_allclose(np.asarray(wrap(outsider.leaky)(X)), want)
    slope = jit(grad(lambda x: (outsider.leaky(x) ** 2).sum()))(X)
    np.testing.assert_allclose(np.asarray(slope), 2 * want * np.where(X > 0, 1, 0.25))
    check_grads(outsider.leaky, [X], order=2)


def test_a_higher_order_primitive(outsider: Any) -> None:
    scale = fnp.asarray(np.array([1.0, 2.0, 3.0]))
    f = outsider.region(lambda x: fnp.sin(x * x), "square")
    want = np.sin(X * X)
    for wrap in (jit, vmap, checkpoint):
        np.testing.assert_allclose(np.asarray(wrap(f)(X)), want)
    assert "square" in outsider.lowered
    check_grads(f, [X], order=2)
    assert "region[" in str(make_jaxpr(f)(X))
    curved = jit(hessian(lambda x: f(x).sum()))(X)
    diagonal = 2 * np.cos(X * X) - 4 * X * X * np.sin(X * X)
    np.testing.assert_allclose(np.asarray(curved), np.diag(diagonal), atol=1e-12)

    def in_loops(x: Any) -> Any:
        closed = outsider.region(lambda y: y * scale.sum() + x[0], "closed")
        total, _ = scan(lambda c, row: (c + closed(row), None), x[0], x)
        return total

    out, dot = jvp(in_loops, (X,), (np.ones(3),))
    np.testing.assert_allclose([float(out), float(dot)], [X.sum() * 6 + 4 * X[0], 22.0])


def test_a_ref_in_a_higher_order_primitive(outsider: Any) -> None:
    def f(x: Any) -> Any:
        ref = new_ref(x)

        def write(y: Any) -> Any:
            ref[0] += y
            return ref[0] * y

        out = outsider.region(write, "write")(x[1])
        return out + freeze(ref).sum()

    want = (X[0] + X[1]) * X[1] + X.sum() + X[1]
    np.testing.assert_allclose(float(jit(f)(X)), want)
    np.testing.assert_allclose(np.asarray(jit(grad(f))(X)), [X[1] + 1, X[0] + 2 * X[1] + 2, 1.0])


def test_a_container(outsider: Any) -> None:
    layer = outsider.Layer(X, 0.5)

    def loss(layer: Any) -> Any:
        def body(i: Any, refs: Any) -> None:
            refs.weight[i] = outsider.leaky(refs.weight[i], refs.slope)

        return for_loop(3, body, layer).weight.sum()

    slope = jit(grad(loss))(layer)
    assert isinstance(slope, outsider.Layer)
    assert slope.slope == 0.5
    np.testing.assert_allclose(np.asarray(slope.weight), [0.5, 1.0, 1.0])


def test_a_policy(outsider: Any) -> None:
    def f(x: Any) -> Any:
        return fnp.sin(outsider.leaky(fnp.sin(x))).sum()

    saved = saved_residuals(checkpoint(f, policy=outsider.OnlyLeaky()), X)
    assert len(saved) == 2
    got = grad(checkpoint(f, policy=outsider.OnlyLeaky()))(X)
    np.testing.assert_allclose(np.asarray(got), np.asarray(grad(f)(X)))
