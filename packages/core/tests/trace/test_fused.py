"""Calls of public functions on arrays as one program: what is static, what is an operand, and what is left alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from fiveloop.core import (
    ArrayLike,
    NanError,
    Value,
    debug_nans,
    disable_jit,
    forget_traces,
    grad,
    jit,
    vmap,
)
from fiveloop.core.extend import as_value, fused, to_array
from fiveloop.core.trace.fused import VARIANTS
from fiveloop.core.trace.tracer import BUSY, Tracer


def _array(x: Any, dtype: Any = np.float32) -> Value:
    return to_array(as_value(np.asarray(x, dtype)))


def _traced() -> tuple[Callable[..., Value], list[bool]]:
    """A fused function, and whether each call of what it is made from was a trace."""
    calls: list[bool] = []

    def scaled(x: ArrayLike, *static: Any, **named: Any) -> Any:
        calls.append(isinstance(x, Tracer))
        return as_value(x) * float(len(static) + len(named) + 1)

    return fused(scaled), calls


def test_a_function_is_traced_once_for_each_type_of_its_operands() -> None:
    f, calls = _traced()
    for _ in range(3):
        assert f(_array([1.0, 2.0])).tolist() == [1.0, 2.0]
    assert f(_array([1.0])).tolist() == [1.0]
    assert f(_array([1], np.int32)).dtype == np.float32
    assert calls == [True, True, True]


@pytest.mark.parametrize(
    "values",
    [
        (1, 1.0, True, np.float32(1), np.int32(1), "1"),
        (0.0, -0.0, 0, False, None),
        ((0, 1), (0, True), (0.0, 1), [0, 1], (0, 1, 1), (0, (1,))),
        (np.float32, np.dtype(np.float32), np.dtype(np.float64), "float32"),
        (complex(0.0, -0.0), complex(0.0, 0.0)),
    ],
)
def test_static_arguments_that_are_equal_but_not_the_same_differ(values: tuple[Any, ...]) -> None:
    shown: list[str] = []

    def noting(x: ArrayLike, static: Any) -> Any:
        shown.append(repr(static))
        return as_value(x) + 1.0

    f = fused(noting)
    for _ in range(2):
        for value in values:
            f(_array(1.0), value)
    assert shown == [repr(value) for value in values]


def test_named_arguments_are_no_positional_ones() -> None:
    f, calls = _traced()
    x = _array(1.0)
    assert [f(x, "a").item(), f(x, a="a").item(), f(x, b="a").item(), f(x).item()] == [2, 2, 2, 1]
    assert calls == [True] * 4


def test_static_arguments_that_change_at_each_call_compile_a_few_programs_alone() -> None:
    f, calls = _traced()
    for k in range(VARIANTS + 5):
        assert f(_array(1.0), k).item() == 2.0
    assert calls == [True] * VARIANTS + [False] * 5
    forget_traces()
    f(_array(1.0), 0)
    assert calls[-1] is True


def test_an_object_that_cannot_be_compared_leaves_the_call_to_the_function() -> None:
    f, calls = _traced()
    assert f(_array(1.0), object()).item() == f(_array(1.0), np.ones(1)).item() == 2.0
    assert calls == [False, False]


class Foreign:
    """An array of another library: it has a dtype and a shape, and no hash."""

    dtype = np.dtype(np.float32)
    shape = (2,)
    __hash__ = None  # type: ignore[assignment]  # as arrays have none

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.ones(2, np.float32)


def test_arrays_of_other_libraries_are_left_to_the_function() -> None:
    f, calls = _traced()
    for _ in range(2):
        assert f(Foreign()).tolist() == [1.0, 1.0]
        assert (_array([1.0, 2.0]) + Foreign()).tolist() == [2.0, 3.0]
    assert calls == [False, False]


def test_numbers_beside_arrays_are_operands() -> None:
    calls: list[object] = []

    def product(x: ArrayLike, y: ArrayLike) -> Value:
        calls.append(x)
        return as_value(x) * y

    f, x = fused(product), _array([1.0, 2.0])
    assert f(x, 2.0).tolist() == f(2, x).tolist() == f(x, 2).tolist() == [2.0, 4.0]
    assert f(x, 3.5).tolist() == [3.5, 7.0]
    assert np.isnan(f(x, math.nan)).all()
    assert [math.copysign(1.0, v) for v in f(x, -0.0).tolist()] == [-1.0, -1.0]
    assert [math.copysign(1.0, v) for v in f(x, 0.0).tolist()] == [1.0, 1.0]
    assert len(calls) == 2
    assert all(isinstance(c, Tracer) or c == 2 for c in calls)


@pytest.mark.parametrize("number", [300, -1, 1.5, 1j, 2**40])
def test_numbers_that_do_not_fit_do_what_they_do_on_traced_values(number: Any) -> None:
    x = _array([1, 2], np.uint8)
    try:
        expected: Any = jit(lambda x: x + number)(x)
    except OverflowError:
        with pytest.raises(OverflowError, match="does not fit uint8"):
            x + number
        return
    found = x + number
    assert found.aval is expected.aval
    assert found.tolist() == expected.tolist()


def test_weak_arrays_stay_weak() -> None:
    x = to_array(as_value(2.0))
    for out in (x + 1.0, 1.0 - x, x * x, -x, x + 1, x / 2.0):
        assert str(out.aval) == "f32*[]"
    assert (x + _array(1, np.float16)).dtype == np.float16


def test_numbers_in_place_of_an_array_are_never_part_of_a_program() -> None:
    f, calls = _traced()

    def taken(x: ArrayLike, index: ArrayLike, axis: int = 0) -> Value:
        calls.append(isinstance(x, Tracer))
        return as_value(x)[index]

    f, x = fused(taken), _array([1.0, 2.0])
    assert [f(x, k).item() for k in (0, 1, 0)] == [1.0, 2.0, 1.0]
    assert calls == [False] * 3


def test_functions_of_elements_that_must_be_known_are_left_alone() -> None:
    def halves(x: ArrayLike) -> Any:
        return as_value(x) * 2.0 if as_value(x).item() > 0 else as_value(x)

    f = fused(halves)
    assert [f(_array(v)).item() for v in (1.0, -1.0, 2.0)] == [2.0, -1.0, 4.0]


def test_an_argument_that_is_handed_on_is_the_same_array() -> None:
    x = _array([1.0])
    assert fused(lambda x: x)(x) is x


def test_results_may_be_several_arrays() -> None:
    def both(xs: Any) -> Any:
        return {"sum": xs[0] + xs[1], "parts": (xs[0] * 2.0, [xs[1] * 3.0])}

    f, x = fused(both), _array([1.0])
    for _ in range(2):
        out = f([x, x])
        assert (out["sum"].item(), out["parts"][0].item(), out["parts"][1][0].item()) == (2, 2, 3)
    assert f([x, x * 2.0])["sum"].item() == 3.0


def test_operands_that_a_program_does_not_use_and_constants() -> None:
    table = np.arange(3.0)

    def plus_table(x: Value, y: Value) -> Value:
        return x + as_value(table)

    f = fused(plus_table)
    for _ in range(2):
        assert f(_array(1.0, np.float64), _array(2.0)).tolist() == [1.0, 2.0, 3.0]


def test_an_exponent_is_static_as_it_says_what_is_computed() -> None:
    x = _array([1.0, -2.0, 3.0])
    for _ in range(2):
        assert (x**2).tolist() == [1.0, 4.0, 9.0]
        assert (x**-1).tolist() == pytest.approx([1.0, -0.5, 1 / 3])
        assert (2**x).tolist() == [2.0, 0.25, 8.0]
        assert (x**x).tolist()[1:] == pytest.approx([0.25, 27.0])
    with pytest.raises(ValueError, match="no negative integer powers"):
        _array([2], np.int32) ** -1


def test_traces_modes_and_settings_are_seen_by_the_function() -> None:
    f, calls = _traced()
    x = _array([1.0, 2.0])
    f(x)
    assert grad(lambda x: f(x).sum())(x).tolist() == [1.0, 1.0]
    assert vmap(f)(x).tolist() == jit(f)(x).tolist() == [1.0, 2.0]
    with disable_jit():
        f(x)
    assert calls == [True, True, True, True, False]
    with debug_nans(), pytest.raises(NanError, match="`div` made a nan"):
        _array(0.0) / _array(0.0)
    assert math.isnan((_array(0.0) / _array(0.0)).item())


def test_donated_arrays_are_refused_in_the_words_of_the_operation() -> None:
    x = _array(np.ones(3))
    jit(lambda x: x + 1.0, donate_argnums=0)(x)
    runs: list[Callable[[], Any]] = [lambda: -x, lambda: x + x, lambda: x.sum(), lambda: x * 2.0]
    for run in runs:
        with pytest.raises(RuntimeError, match="deleted or donated"):
            run()


def test_wrong_calls_are_those_of_the_function() -> None:
    def named(x: ArrayLike, y: ArrayLike) -> Value:
        return as_value(x) + y

    f: Any = fused(named)
    x = _array(1.0)
    for args in ((), (x,), (x, x, x)):
        with pytest.raises(TypeError, match="named"):
            f(*args)
    assert f(y=x, x=2.0).item() == 3.0
    with pytest.raises(TypeError, match="argument `y` must be an array"):
        f(x, "2")


def test_threads_call_one_function() -> None:
    def both(x: Value, y: Value) -> Value:
        return x * y + x

    f = fused(both)
    x = [_array(np.arange(n + 1.0)) for n in range(8)]
    with ThreadPoolExecutor(8) as pool:
        outs = list(
            pool.map(lambda k: [f(x[k % 8], x[k % 8]).tolist() for _ in range(20)], range(16))
        )
    for k, found in enumerate(outs):
        assert found == [[float(v * v + v) for v in range(k % 8 + 1)]] * 20


def test_methods_of_arrays_are_fused_and_those_of_all_values() -> None:
    x = _array([[3.0, 1.0], [2.0, 4.0]])
    assert (x.sum().item(), x.mean(axis=0).tolist(), x.T.tolist()) == (
        10.0,
        [2.5, 2.5],
        [[3, 2], [1, 4]],
    )
    assert x.clip(2, 3.0).tolist() == [[3.0, 2.0], [2.0, 3.0]]
    assert x.dot(2.0).tolist() == [[6.0, 2.0], [4.0, 8.0]]
    assert (x.reshape(-1).shape, x.reshape(4, 1).shape) == ((4,), (4, 1))
    assert x.take(1).item() == 1.0
    with pytest.raises(ValueError, match="take: expected `mode` to be"):
        x.take(1, mode="nearest")


def test_operations_of_one_thread_run_while_another_one_traces() -> None:
    x = _array([1.0, 2.0])

    def traced(y: Any) -> Any:
        with ThreadPoolExecutor(1) as pool:
            outs = pool.submit(lambda: x + x).result()
        assert not isinstance(outs, Tracer) and isinstance(x + y, Tracer)
        return y + outs

    assert jit(traced)(x).tolist() == [3.0, 6.0]


def test_nothing_is_left_busy() -> None:
    def failing(x: Any) -> Any:
        raise ArithmeticError

    for run in (jit(failing), grad(failing), vmap(failing), debug_nans()(failing)):
        with pytest.raises(ArithmeticError):
            run(_array([1.0]))
    assert not BUSY
