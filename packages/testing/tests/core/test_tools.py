"""The tools for tests find what is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fiveloop.core import Value
from fiveloop.core.primitives.elementwise import mul, stop_gradient
from fiveloop.core.primitives.special import sin
from fiveloop.testing.core.compare import assert_close, tolerance
from fiveloop.testing.core.golden import assert_prints
from fiveloop.testing.core.gradcheck import as_float64, check_grads, check_jvp, check_vjp
from fiveloop.testing.core.laws import check_law_jvp, check_law_transpose
from fiveloop.testing.core.samples import sample
from fiveloop.testing.core.shrink import failure_of, shrink

X = np.array([0.3, -0.8])


def wrong(x: Value) -> Value:
    return mul(x, stop_gradient(sin(x)))


def test_derivatives_that_are_right_pass() -> None:
    args = ({"w": X, "n": np.int32(3)}, 2.0)
    check_grads(lambda p, s: {"y": mul(sin(p["w"]), s), "n": p["n"]}, as_float64(args))
    assert as_float64(args)[1].dtype == np.float64


def test_derivatives_that_are_wrong_are_found() -> None:
    with pytest.raises(AssertionError, match="jvp: tangent"):
        check_jvp(wrong, (X,))
    with pytest.raises(AssertionError, match="jvp: tangent"):
        check_law_jvp(sample(wrong, X))
    check_vjp(wrong, (X,))
    check_law_transpose(sample(wrong, X))


def test_failing_samples_are_made_small() -> None:
    def long(x: Value, y: Value) -> list[Any]:
        return [sin(mul(wrong(sin(mul(x, y))), 3.0)), sin(y)]

    big = sample(long, X, X)
    small = shrink(big, check_law_jvp)
    assert failure_of(check_law_jvp, small) == "AssertionError"
    assert len(small.jaxpr.eqns) <= 3 < len(big.jaxpr.eqns)
    assert len(small.jaxpr.outvars) == 1


def test_golden_text() -> None:
    jaxpr = sample(lambda x: mul(sin(x), x), X).jaxpr
    text = """
        { lambda a:f64[2] ; let
            b:f64[2] = sin a
            c:f64[2] = mul b a
          in (c,) }
        """
    assert_prints(jaxpr, text)
    with pytest.raises(AssertionError, match=r"\+    b:f64\[2\] = sin a"):
        assert_prints(jaxpr, text.replace("sin", "cos"))


def test_comparisons_look_at_types_and_sizes() -> None:
    assert tolerance("int32") == 0.0 < tolerance("float64") < tolerance("complex64")
    assert_close(np.float32(1), np.float32(1 + 1e-6))
    with pytest.raises(AssertionError, match="dtypes differ"):
        assert_close(np.float32(1), np.float64(1))
    with pytest.raises(AssertionError, match="shapes differ"):
        assert_close(np.zeros(2), np.zeros(3))
    with pytest.raises(AssertionError, match="Not equal"):
        assert_close(np.float32(1), np.float32(1.001))
