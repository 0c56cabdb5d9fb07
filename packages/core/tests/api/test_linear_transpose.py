"""`linear_transpose`: transposes of linear functions, and functions that are not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fiveloop.core import RuleError, ShapeDtype, grad, jit, linear_transpose, vmap
from fiveloop.core.primitives.elementwise import mul
from fiveloop.core.primitives.special import sin
from fiveloop.testing.core.compare import assert_all_close, assert_close
from fiveloop.testing.core.misuse import assert_misuse

X = np.array([1.0, 2.0, 3.0])
M = np.arange(6.0).reshape(2, 3)
SPEC = ShapeDtype((3,), np.float64)


def test_matrices() -> None:
    (got,) = linear_transpose(lambda x: mul(M, x).sum(1), SPEC)(np.array([1.0, 10.0]))
    assert_close(got, M.T @ [1.0, 10.0])


def test_several_arguments_and_results() -> None:
    transposed = linear_transpose(lambda a, d: {"s": a + 2.0 * d["b"], "t": d["b"]}, SPEC, {"b": X})
    first, second = transposed({"s": X, "t": 10 * X})
    assert_all_close([first, second["b"]], [X, 12 * X])


def test_an_argument_that_is_not_used() -> None:
    _, unused = linear_transpose(lambda a, b: a, 1.0, SPEC)(2.0)
    assert_close(unused, np.zeros(3))


def test_in_other_transforms() -> None:
    def pulled(scale: float, ct: object) -> object:
        return linear_transpose(lambda x: x * scale, SPEC)(ct)[0]

    assert_close(jit(pulled)(3.0, X), 3 * X)
    assert_close(vmap(pulled, in_axes=(None, 0))(3.0, M), 3 * M)
    assert_close(grad(lambda s: pulled(s, X).sum())(2.0), np.float32(6.0))  # type: ignore[attr-defined]
    assert_close(linear_transpose(jit(lambda x: x * 2.0), SPEC)(X)[0], 2 * X)


MISUSE: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "not linear": (
        lambda: linear_transpose(sin, 1.0)(1.0),
        RuleError,
        "`sin` has no transpose: it is not linear; differentiate it first (`jvp`, `linearize`)",
    ),
    "a product": (
        lambda: linear_transpose(lambda x: x * x, 1.0)(1.0),
        RuleError,
        "`mul` has no transpose in two operands at once: expected it to be linear in one of them, and the other "
        "known; differentiate it first (`jvp`, `linearize`)",
    ),
    "a contraction": (
        lambda: linear_transpose(lambda x: x @ x, SPEC)(1.0),
        RuleError,
        "`dot_general` has no transpose in two operands at once: expected it to be linear in one of them, and the "
        "other known; differentiate it first (`jvp`, `linearize`)",
    ),
    "integers": (
        lambda: linear_transpose(lambda a, n: a, 1.0, {"n": 3}),
        TypeError,
        "linear_transpose of <lambda>: argument `n`['n'] must be floating or complex, got i32*[]; close over what the "
        "function is not linear in",
    ),
    "cotangent": (
        lambda: linear_transpose(lambda a: {"b": a}, 1.0)({"b": X}),
        TypeError,
        "linear_transpose: cotangent['b'] must have the type of the result, f32*[], got f64[3]",
    ),
}


@pytest.mark.parametrize("name", MISUSE)
def test_bad_input(name: str) -> None:
    call, kind, message = MISUSE[name]
    assert_misuse(call, kind, message)
