"""`ensure_compile_time_eval`: operations on known values run while a function is traced."""

from __future__ import annotations

from typing import Any

import numpy as np

from fiveloop.core import ConcretizationError, ensure_compile_time_eval, grad, jit, make_jaxpr, vmap
from fiveloop.core.arrays.array import Array, as_value, to_array
from fiveloop.core.primitives.special import sin
from fiveloop.testing.core.misuse import assert_within, raised

X = to_array(as_value(np.arange(3, dtype=np.float32)))


def doubled(x: Any) -> Any:
    with ensure_compile_time_eval():
        total = (X * 2.0).sum()
        assert type(total) is Array
        count = int(total)
    return sin(x) * count


def test_values_are_known() -> None:
    assert float(jit(doubled)(0.0)) == 0.0
    assert float(jit(grad(doubled))(0.0)) == 6.0
    assert float(grad(doubled)(0.0)) == 6.0
    np.testing.assert_allclose(np.asarray(jit(vmap(doubled))(X)), 6 * np.sin(np.arange(3.0)), 1e-6)
    text = str(make_jaxpr(doubled)(1.0))
    assert "reduce_sum" not in text
    assert "sin" in text


def test_a_traced_value_is_an_error() -> None:
    def f(x: Any) -> Any:
        with ensure_compile_time_eval():
            return sin(x)

    error = raised(lambda: jit(f)(1.0))
    assert type(error) is ConcretizationError
    message, _, place = str(error).partition("\n  at ")
    assert message.startswith(
        "`sin` was asked to run now, on a traced value of type f32*[], while f at "
    )
    assert_within(f, place)


def test_tracing_goes_on_after_the_block() -> None:
    def f(x: Any) -> Any:
        with ensure_compile_time_eval():
            pass
        return sin(x)

    assert "sin" in str(make_jaxpr(f)(1.0))


def test_a_value_with_a_tangent_is_an_error() -> None:
    def f(x: Any) -> Any:
        with ensure_compile_time_eval():
            return sin(x)

    error = raised(lambda: grad(f)(1.0))
    assert type(error) is ConcretizationError
    message, _, place = str(error).partition("\n  at ")
    assert message.startswith(
        "`sin` was asked to run now, on a traced value of type f32*[], while f at "
    )
    assert_within(f, place)
