"""Misuses of callbacks, each with the whole of its message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiveloop.core import RuleError, ShapeDtype, custom_jvp, grad, jit, vmap
from fiveloop.state import callback, debug_callback, new_ref, pure_callback
from fiveloop.testing.core.misuse import assert_misuse, raised

FLOAT = ShapeDtype((), "float32")
X = np.float32(0.5)
ROW = np.ones(3, "float32")

Case = tuple[Callable[[], object], type[Exception], str]


def gives(result: Any, spec: Any = FLOAT) -> Callable[[Any], Any]:
    """A function that calls another one, which gives a result."""
    return lambda x: callback(lambda y: result, spec, x)


CORRECT = "; convert it in the function, or correct result_shape_dtypes"
NO_DERIVATIVE = (
    "{}: its results have no derivative, since `{}` is called as it is, but it was given values under "
    "differentiation; give it `stop_gradient` of them, or define the derivative with `custom_jvp` or `custom_vjp` "
    "around the call"
)


def double(x: Any) -> Any:
    """Twice a value."""
    return 2 * x


@custom_jvp
def told(x: Any) -> Any:
    """A function whose rule shows a tangent to Python."""
    return x


def told_rule(primals: Any, dots: Any) -> Any:
    """The rule."""
    debug_callback(double, dots[0])
    return primals[0], dots[0]


told.defjvp(told_rule)

RESULTS: dict[str, tuple[Any, str]] = {
    "shape": (
        gives(ROW),
        f"callback: expected f32[] as result, got f32[3]{CORRECT}",
    ),
    "dtype": (
        gives(np.float64(1)),
        f"callback: expected f32[] as result, got f64[]{CORRECT}",
    ),
    "complex for float": (
        gives(1j),
        f"callback: expected f32[] as result, got c128[]{CORRECT}",
    ),
    "not an array": (
        gives("x"),
        f"callback: expected f32[] as result, got 'x' of type str{CORRECT}",
    ),
    "one of several": (
        gives({"a": X, "b": [X]}, {"a": FLOAT, "b": [ShapeDtype((2,), "int32")]}),
        f"callback: expected i32[2] as result['b'][0], got f32[]{CORRECT}",
    ),
    "structure": (
        gives([X]),
        "callback: expected a result of the structure PyTreeDef(*), got PyTreeDef([*]); return what "
        "result_shape_dtypes describes",
    ),
    "nothing expected": (
        gives(X, None),
        "callback: expected a result of the structure PyTreeDef(None), got PyTreeDef(*); return what "
        "result_shape_dtypes describes",
    ),
}


@pytest.mark.parametrize("name", RESULTS)
def test_results_that_do_not_fit(name: str) -> None:
    fun, message = RESULTS[name]
    for call in (lambda: fun(X), lambda: jit(fun)(X), lambda: vmap(fun)(ROW)):
        assert_misuse(call, TypeError, message, within=gives)


CASES: dict[str, Case] = {
    "lanes of another shape": (
        lambda: vmap(lambda x: callback(lambda y: y[:2], FLOAT, x, vmap="stacked"))(ROW),
        TypeError,
        f"callback: expected f32[3] as result, got f32[2]{CORRECT}",
    ),
    "no function": (
        lambda: callback(3, FLOAT, X),  # type: ignore[call-overload]  # on purpose
        TypeError,
        "callback: expected a function, got 3 of type int",
    ),
    "vmap": (
        lambda: callback(double, FLOAT, X, vmap="loop"),  # on purpose
        ValueError,
        'callback: expected vmap to be "lanes" or "stacked", got \'loop\'',
    ),
    "a Ref": (
        lambda: jit(lambda x: callback(double, FLOAT, [new_ref(x)]))(X),
        TypeError,
        "callback: expected arrays, got a Ref of type Ref{f32[]} as argument[0][0]; read it: `ref[...]`",
    ),
    "no specification": (
        lambda: callback(double, "float32", X),
        TypeError,
        "callback: result_shape_dtypes must be an array or a scalar, got 'float32' of type str; "
        "describe a result by `ShapeDtype(shape, dtype)`",
    ),
    "a derivative": (
        lambda: grad(lambda x: callback(double, FLOAT, x))(X),
        TypeError,
        NO_DERIVATIVE.format("callback", "double"),
    ),
    "a derivative of a pure one in jit": (
        lambda: jit(grad(lambda x: pure_callback(double, FLOAT, x)))(X),
        TypeError,
        NO_DERIVATIVE.format("pure_callback", "double"),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_misuse(name: str) -> None:
    assert_misuse(*CASES[name])


def test_a_tangent_on_its_way_back() -> None:
    message = (
        "`callback` has no transpose: it calls Python, and was given a tangent, by a rule for a derivative; call it "
        "where values are computed"
    )
    for call in (lambda: grad(told)(X), lambda: jit(grad(told))(X)):
        error = raised(call)
        assert type(error) is RuleError
        assert str(error).partition("\n  at ")[0] == message
