"""Objects that stand for arrays by `__jax_array__`, `__array__` or `__dlpack__` are operands everywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import (
    ShapeDtype,
    Value,
    closed_call,
    eval_shape,
    grad,
    hessian,
    jacfwd,
    jit,
    jvp,
    linearize,
    make_jaxpr,
    stop_gradient,
    tree_leaves,
    vjp,
    vmap,
)
from fiveloop.loops import cond, for_loop, fori_loop, map, scan, switch, while_loop
from fiveloop.remat import checkpoint
from fiveloop.state import accumulate, addupdate, freeze, new_ref, swap
from fiveloop.testing.core.misuse import assert_misuse

H = np.array([1.0, 2.0, 3.0])
X = fnp.asarray(np.array([0.5, -1.0, 2.0]))


class WithJaxArray:
    """Gives an array of fiveloop's."""

    def __jax_array__(self) -> Any:
        return fnp.asarray(H)


class WithArray:
    """Gives an array of NumPy's."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return H.copy()


class WithDLPack:
    """Gives its memory."""

    def __dlpack__(self, **options: Any) -> Any:
        return H.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return H.__dlpack_device__()


def held(ref: Any, write: Callable[[Any], Any]) -> Any:
    write(ref)
    return freeze(ref)


def written(o: Any) -> Any:
    def f(a: Any) -> Any:
        return held(new_ref(a), lambda r: r.__setitem__(..., o))

    return jit(f)(X)


def added_in_place(o: Any) -> Any:
    ref = new_ref(X)
    ref[...] += o
    return freeze(ref)


untyped_scan: Any = scan
USES: dict[str, Callable[[Any], Any]] = {
    "left": lambda o: o + X,
    "right": lambda o: X + o,
    "left minus": lambda o: o - X,
    "power": lambda o: X**o,
    "matmul": lambda o: X @ o,
    "comparison": lambda o: o < X,
    "function": lambda o: fnp.sin(o),
    "join": lambda o: fnp.concatenate([X, o]),
    "choice": lambda o: fnp.where(X > 0, o, X),
    "at": lambda o: X.at[:].add(o),
    "jit": lambda o: [jit(lambda a, b: a * b["k"])(X, {"k": o}) for _ in range(3)],
    "closed over": lambda o: jit(lambda a: a + o)(X),
    "returned": lambda o: jit(lambda: o)(),
    "closed_call": lambda o: closed_call(lambda a: a + 1)(o),
    "checkpoint": lambda o: checkpoint(lambda a: a + 1)(o),
    "make_jaxpr": lambda o: np.float64(len(make_jaxpr(lambda a: a + 1)(o).eqns)),
    "eval_shape": lambda o: np.float64(eval_shape(lambda a: a + 1, o).shape[0]),
    "vmap": lambda o: vmap(lambda a: a + 1)(o),
    "grad": lambda o: grad(lambda a: (a * a).sum())(o),
    "jvp": lambda o: jvp(lambda a: a * a, (o,), (o,)),
    "vjp": lambda o: vjp(lambda a: a * a, o)[1](o),
    "linearize": lambda o: linearize(lambda a: a * a, o)[1](o),
    "jacfwd": lambda o: jacfwd(lambda a: a * a)(o),
    "hessian": lambda o: hessian(lambda a: (a * a).sum())(o),
    "stop_gradient": lambda o: stop_gradient(o),
    "carry and xs": lambda o: untyped_scan(lambda c, y: (c + y, c), o, o),
    "y": lambda o: untyped_scan(lambda c, y: (c, o), 0.0, X),
    "for": lambda o: for_loop(3, lambda i, r: r.__setitem__(i, r[i] * 2), o),
    "fori": lambda o: fori_loop(0, 2, lambda i, c: c + o, o),
    "while": lambda o: while_loop(lambda c: c.sum() < 50, lambda c: c + o, o),
    "cond": lambda o: cond(True, lambda a: a, lambda a: a * 2, o),
    "result of a branch": lambda o: cond(X[0] > 0, lambda: o, lambda: X),
    "switch": lambda o: switch(0, [lambda a: a], o),
    "map": lambda o: map(lambda a: a + 1, o),
    "new_ref": lambda o: freeze(new_ref(o)),
    "written": lambda o: held(new_ref(X), lambda r: r.__setitem__(..., o)),
    "written while tracing": written,
    "added": lambda o: held(new_ref(X), lambda r: addupdate(r, ..., o)),
    "accumulated": lambda o: held(new_ref(X), lambda r: accumulate(r, ..., o, "max")),
    "added in place": added_in_place,
    "swapped": lambda o: held(new_ref(X), lambda r: swap(r, ..., o)),
}


@pytest.mark.parametrize("kind", [WithJaxArray, WithArray, WithDLPack])
@pytest.mark.parametrize("use", USES)
def test_as_the_array_itself(use: str, kind: type) -> None:
    want = tree_leaves(USES[use](fnp.asarray(H)))
    got = tree_leaves(USES[use](kind()))
    assert len(got) == len(want) > 0
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_the_gradient_is_an_array() -> None:
    got = grad(lambda p: (p["w"] * p["w"]).sum())({"w": WithJaxArray()})
    assert isinstance(got["w"], Value)
    np.testing.assert_array_equal(np.asarray(got["w"]), 2 * H)


def test_a_traced_value_may_be_inside() -> None:
    class Layer:
        def __init__(self, w: Any) -> None:
            self.w = w

        def __jax_array__(self) -> Any:
            return self.w

    got = jit(grad(lambda w: (Layer(w) * X).sum()))(fnp.asarray(H))
    np.testing.assert_array_equal(np.asarray(got), np.asarray(X))


def test_an_object_that_gives_something_else() -> None:
    class Words:
        def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
            return np.array(["a"])

    assert_misuse(
        lambda: jit(lambda x: x)({"k": Words()}),
        TypeError,
        "jit of <lambda>: argument `x`['k'] must hold numbers of at most 64 bits a part, got a NumPy array of "
        "dtype <U1",
    )


SWAPPED = np.arange(3).astype(">i2")


@pytest.mark.parametrize(
    "use",
    [
        lambda x: fnp.asarray(x),
        lambda x: jit(lambda y: y * 1)(x),
        lambda x: jit(lambda: fnp.zeros(3, "int16") + x)(),
        lambda x: x + fnp.zeros(3, "int16"),
        lambda x: vmap(lambda y: y)(x),
        lambda x: untyped_scan(lambda c, y: (c, y), 0, x)[1],
        lambda x: freeze(new_ref(x)),
        lambda x: fnp.arange(3.0)[x].astype(x.dtype),
        lambda x: fnp.arange(3, dtype=x.dtype),
        lambda x: jit(lambda y: y).lower(ShapeDtype(x.shape, x.dtype)).compile()(x),
    ],
)
def test_the_order_of_bytes_does_not_matter(use: Callable[[Any], Any]) -> None:
    got = use(SWAPPED)
    assert got.dtype == np.int16
    assert got.dtype.isnative
    np.testing.assert_array_equal(np.asarray(got), np.arange(3))


def test_a_dtype_that_arrays_cannot_have() -> None:
    x = np.ones(2).astype(ml_dtypes.int4)
    assert_misuse(
        lambda: jit(lambda x: x)({"k": x}),
        TypeError,
        "jit of <lambda>: argument `x`['k'] must be of a dtype that arrays can have, got a NumPy array of dtype int4; "
        "convert it first, to int8 or float32 for example",
    )
