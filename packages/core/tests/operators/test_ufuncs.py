"""NumPy's functions of elements on our values: ours of the same meaning, or a clear error."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from fiveloop.core import Array, ConcretizationError, Value, grad, jit, make_jaxpr, vmap
from fiveloop.core.extend import as_value, to_array
from fiveloop.core.operators.ufuncs import FUNCTIONS, REDUCTIONS
from fiveloop.testing.core.misuse import assert_misuse

X = np.array([0.3, 0.75, 0.5], np.float64)
Y = np.array([2.0, 0.25, 3.0], np.float64)
I = np.array([5, 2, 1], np.int32)
INTEGERS = {np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.invert, np.left_shift, np.right_shift}


def arguments(ufunc: np.ufunc) -> list[Any]:
    if ufunc is np.arccosh:
        return [X + 1]
    if ufunc is np.matmul:
        return [np.outer(X, Y), Y]
    return ([I, I[::-1]] if ufunc in INTEGERS else [X, Y])[: ufunc.nin]


@pytest.mark.parametrize("ufunc", FUNCTIONS, ids=lambda u: u.__name__)
def test_each_function_is_ours_of_the_same_meaning(ufunc: np.ufunc) -> None:
    given = arguments(ufunc)
    expected = ufunc(*given)
    for got in (ufunc(as_value(given[0]), *given[1:]), jit(ufunc)(*given)):
        results = got if isinstance(got, tuple) else (got,)
        assert all(isinstance(r, Value) for r in results)
        np.testing.assert_allclose(
            np.stack([np.asarray(r) for r in results]).squeeze(), np.asarray(expected), rtol=1e-12
        )


@pytest.mark.parametrize("ufunc", [np.sin, np.sqrt, np.exp, np.isnan, np.floor, np.logical_not])
def test_integers_are_taken_where_numpy_takes_them(ufunc: np.ufunc) -> None:
    np.testing.assert_allclose(np.asarray(ufunc(as_value(I))), ufunc(I), rtol=1e-6)


def test_rounding_of_complex_numbers_is_numpys() -> None:
    z = X * 3 + 1j * Y * 5
    np.testing.assert_array_equal(np.asarray(np.rint(as_value(z))), np.rint(z))
    for ufunc in (np.floor, np.ceil):
        with pytest.raises(TypeError, match=f"{ufunc.__name__}: expected floating point numbers"):
            ufunc(as_value(z))


@pytest.mark.parametrize("ufunc", REDUCTIONS, ids=lambda u: u.__name__)
def test_reductions(ufunc: np.ufunc) -> None:
    m = np.outer(X, Y)
    for given in ({}, {"axis": 1}, {"axis": None}, {"axis": 0, "keepdims": True}):
        got = ufunc.reduce(as_value(m), **given)
        assert isinstance(got, Value)
        np.testing.assert_allclose(np.asarray(got), ufunc.reduce(m, **given), rtol=1e-12)


OPERATORS: list[Callable[[Any, Any], Any]] = [operator.add, operator.sub, operator.mul]
OPERATORS += [operator.truediv, operator.floordiv, operator.mod, operator.pow, operator.lt]
OPERATORS += [operator.le, operator.gt, operator.ge, operator.eq, operator.ne, operator.matmul]


@pytest.mark.parametrize("op", OPERATORS)
def test_operators_with_a_numpy_array_on_either_side(op: Callable[[Any, Any], Any]) -> None:
    sides: list[Callable[[Any], Any]] = [lambda x: op(Y, x), lambda x: op(x, Y)]
    for f in sides:
        for got in (f(as_value(X)), jit(f)(X)):
            assert isinstance(got, Array)
            np.testing.assert_allclose(np.asarray(got), f(X), rtol=1e-12)


def _flipped(op: Callable[[Any, Any], Any], number: Any, x: Any) -> Any:
    return op(x, number)


@pytest.mark.parametrize("op", OPERATORS[:-1])
def test_operators_with_a_numpy_scalar_on_either_side(op: Callable[[Any, Any], Any]) -> None:
    for number in (np.float64(2.0), np.float32(2.0), np.int32(2)):
        sides: list[Callable[[Any], Any]] = [partial(op, number), partial(_flipped, op, number)]
        for f in sides:
            for got in (f(as_value(X)), jit(f)(X)):
                assert isinstance(got, Array)
                np.testing.assert_allclose(np.asarray(got), f(X), rtol=1e-12)


def test_traced_functions_of_numpy_become_our_primitives() -> None:
    jaxpr = str(make_jaxpr(lambda x: np.sin(x) + np.maximum(x, 0.5))(X))
    assert "sin" in jaxpr and "max" in jaxpr
    np.testing.assert_allclose(np.asarray(grad(lambda x: np.sum(np.sin(x)))(X)), np.cos(X))
    np.testing.assert_allclose(np.asarray(vmap(lambda x: np.cos(x))(X)), np.cos(X))


def test_numpy_arrays_are_written_in_place_with_known_values() -> None:
    x = Y.copy()
    kept = x
    x += as_value(X)
    assert x is kept
    np.testing.assert_array_equal(x, Y + X)


def add_in_place(x: Any) -> Any:
    total = np.zeros(3)
    total += x
    return total


A: Any = to_array(as_value(X))
CASES: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "no operation": (
        lambda: np.spacing(A),
        TypeError,
        "np.spacing: core has no operation of that meaning for arrays of its own; use that of fiveloop.numpy, or "
        "outside of traced functions a NumPy array, `np.asarray(x)`",
    ),
    "no operation in jit": (
        lambda: jit(np.log2)(A),
        TypeError,
        "np.log2: core has no operation of that meaning for arrays of its own; use that of fiveloop.numpy, or "
        "outside of traced functions a NumPy array, `np.asarray(x)`",
    ),
    "method": (
        lambda: np.add.outer(A, A),
        TypeError,
        "np.add.outer: core has no operation of that meaning for arrays of its own; use that of fiveloop.numpy, "
        "or outside of traced functions a NumPy array, `np.asarray(x)`",
    ),
    "keyword": (
        lambda: np.add(A, 1, where=np.array([True, False, True])),
        TypeError,
        "np.add: expected no `where` where an array is fiveloop's; use `astype` or `where` of fiveloop.numpy on "
        "the result",
    ),
    "out": (
        lambda: np.add(X, 1, out=A),
        TypeError,
        "np.add: expected a NumPy array as `out`, got an array of ours, which is immutable",
    ),
    "shapes": (
        lambda: np.add(A, np.ones(2)),
        ValueError,
        "add: expected shapes that broadcast together, got (3,), (2,)",
    ),
    "in place, traced": (
        lambda: jit(add_in_place)(A),
        ConcretizationError,
        "np.add: a traced value cannot be written into a NumPy array, got Traced<f64[3]> and `out`, or `+=` on a "
        "NumPy array; write `x = x + y`, or use a Ref",
    ),
}


@pytest.mark.parametrize(("call", "kind", "message"), CASES.values(), ids=CASES)
def test_bad_input(call: Callable[[], object], kind: type[Exception], message: str) -> None:
    within = add_in_place if "in place" in message or "`+=`" in message else None
    assert_misuse(call, kind, message, within=within)
