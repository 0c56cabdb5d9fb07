"""Operands of different dtypes meet in one dtype, Python numbers yield, and nothing is cut silently."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fiveloop.core.api.gradient import grad
from fiveloop.core.api.jit import jit
from fiveloop.core.arrays.array import as_value
from fiveloop.core.arrays.promotion import ABOVE, Typed, join, result_dtype
from fiveloop.core.primitives.broadcast import full
from fiveloop.core.primitives.convert import convert, promote
from fiveloop.core.primitives.elementwise import add, mul, select

BF16 = np.dtype(ml_dtypes.bfloat16)
STRONG = [np.dtype(n) if n != "bfloat16" else BF16 for n in ABOVE if n[-1] != "*"]

TABLE = [
    ("bool", "int8", "int8"),
    ("uint8", "int8", "int16"),
    ("uint8", "int16", "int16"),
    ("uint16", "int16", "int32"),
    ("uint32", "int32", "int64"),
    ("uint64", "int64", "float32"),
    ("uint64", "int8", "float32"),
    ("int32", "float32", "float32"),
    ("int64", "float32", "float32"),
    ("int64", "float16", "float16"),
    ("int64", "float64", "float64"),
    ("float16", "float32", "float32"),
    ("float32", "float64", "float64"),
    ("float32", "complex64", "complex64"),
    ("float64", "complex64", "complex128"),
    ("int64", "complex64", "complex64"),
]


@pytest.mark.parametrize(("a", "b", "want"), TABLE)
def test_table(a: str, b: str, want: str) -> None:
    assert result_dtype([a, b]) == np.dtype(want)
    assert result_dtype([b, a]) == np.dtype(want)
    assert (as_value(np.ones(2, a)) + np.ones(2, b)).dtype == np.dtype(want)


def test_half_floats_meet_in_float32() -> None:
    assert result_dtype([BF16, np.float16]) == np.float32
    assert result_dtype([BF16, np.int64]) == BF16


def test_join_is_a_join() -> None:
    for a in STRONG:
        assert join((Typed(a), Typed(a))) == Typed(a)
        for b in STRONG:
            assert join((Typed(a), Typed(b))) == join((Typed(b), Typed(a)))
            for c in (np.dtype(np.int8), np.dtype(np.uint64), BF16, np.dtype(np.float32)):
                flat = join((Typed(a), Typed(b), Typed(c)))
                assert flat == join((Typed(c), Typed(b), Typed(a)))


@pytest.mark.parametrize("dtype", [d for d in STRONG if d != np.bool_])
def test_python_numbers_yield(dtype: np.dtype[Any]) -> None:
    x = as_value(np.ones(3, dtype))
    assert (x + 1).dtype == dtype
    assert (1 + x).dtype == dtype
    assert not (x + 1).weak_type
    if dtype.kind in "fV":
        assert (x * 0.5).dtype == dtype
        assert (x * 1j).dtype == (np.complex128 if dtype == np.float64 else np.complex64)
    elif dtype.kind in "iu":
        assert (x * 0.5).dtype == np.float32


def test_python_numbers_alone_stay_weak() -> None:
    out = add(1, 2)
    assert out.dtype == np.int32 and out.weak_type
    assert add(1, 2.5).dtype == np.float32 and add(1, 2.5).weak_type
    assert add(2**40, 1).dtype == np.int64
    assert (out + np.ones(2, np.int8)).dtype == np.int8
    assert not add(True, 1).weak_type and add(True, 1).dtype == np.int32


def test_python_floats_are_exact_in_float64() -> None:
    x = as_value(np.ones(1, np.float64))
    assert (x * 0.1).item() == 0.1
    assert mul(0.1, x).item() == 0.1
    assert convert(0.1, np.float64).item() == 0.1


NUMBERS: list[tuple[Any, Any, Any]] = [
    (np.float16, np.float64(0.1), np.float16),
    (np.float32, np.float64(0.1), np.float32),
    (np.float64, np.float64(0.1), np.float64),
    (np.int32, np.float64(0.1), np.float32),
    (np.complex64, np.float64(0.1), np.complex64),
    (np.float32, np.complex128(0.1j), np.complex64),
    (np.float64, np.complex128(0.1j), np.complex128),
    (np.int64, np.complex128(0.1j), np.complex64),
    (np.float32, np.array(0.1), np.float64),
    (np.float16, np.float32(0.1), np.float32),
    (np.int32, np.int64(1), np.int64),
    (np.int32, np.bool_(True), np.int32),
]


@pytest.mark.parametrize(("dtype", "number", "wanted"), NUMBERS)
def test_numpys_float64_is_as_weak_as_a_python_float(dtype: Any, number: Any, wanted: Any) -> None:
    """As is its complex128; NumPy's other scalars, and arrays without axes, keep their dtype."""
    x = as_value(np.ones(1, dtype))
    for way in (lambda a, b: a * b, lambda a, b: b * a, np.multiply, jit(lambda a, b: b + a)):
        assert way(x, number).dtype == wanted


def test_numpys_float64_by_itself_has_all_its_digits() -> None:
    s = np.float64(0.1)
    x = add(s, 1.0)
    assert x.dtype == np.float64 and x.weak_type
    assert x.item() == 1.1
    assert full((2,), s).dtype == np.float64
    assert jit(lambda a: a + 1.0)(s).item() == 1.1
    assert grad(lambda a: a * a)(s).item() == 0.2
    assert jit(lambda a: a * 1j)(s).dtype == np.complex128
    assert jit(lambda a: a * s)(np.ones(1)).item() == 0.1


def test_negative_zero_is_not_zero() -> None:
    x = as_value(np.zeros(1, np.float32))
    assert np.signbit(np.asarray(select(True, -0.0, x)))[0]
    assert not np.signbit(np.asarray(select(True, 0.0, x)))[0]
    assert convert(True, np.int32).item() == 1


@pytest.mark.parametrize(
    ("dtype", "number"),
    [
        (np.uint8, 256),
        (np.uint8, -1),
        (np.int8, 128),
        (np.int32, 2**31),
        (np.uint64, -1),
        (np.float16, 70000),
        (np.int64, 2**63),
    ],
)
def test_an_integer_that_does_not_fit_is_refused(dtype: Any, number: int) -> None:
    x = as_value(np.ones(2, dtype))
    with pytest.raises(OverflowError) as e:
        x + number
    assert f"add: argument `y`: the integer {number} does not fit {np.dtype(dtype).name}" in str(
        e.value
    )


WIDE = 2**40


@pytest.mark.parametrize(
    "function",
    [
        lambda x: as_value(np.ones(2, np.int32)) + x,
        lambda x: select(True, np.ones(2, np.uint16), x),
        lambda x: as_value(np.ones(2, np.int32)).at[0].set(x),
        lambda x: as_value(np.ones(2, np.uint32)).at[0].add(x),
    ],
)
def test_a_traced_integer_that_needs_64_bits_is_not_cut(function: Callable[[Any], Any]) -> None:
    weak = jit(lambda x: x)(WIDE)
    for call, x in ((jit(function), WIDE), (function, weak)):
        with pytest.raises(OverflowError) as e:
            call(x)
        assert "got one made of a Python integer that needs 64 bits, and is traced" in str(e.value)
        assert "test_promotion.py" in str(e.value)


def test_a_traced_integer_that_needs_64_bits_meets_what_holds_it() -> None:
    assert jit(lambda x: x + np.ones((), np.int64))(WIDE).item() == WIDE + 1
    assert jit(lambda x: x + np.ones((), np.float32))(WIDE).item() == float(WIDE)
    assert jit(lambda x: x + 1)(WIDE).item() == WIDE + 1


def test_wide_unsigned_integers_are_taken() -> None:
    x = as_value(np.zeros(1, np.uint64))
    assert (x + (2**64 - 1)).item() == 2**64 - 1


def test_small_floats_are_not_promoted() -> None:
    x = as_value(np.ones(2, ml_dtypes.float8_e5m2))
    assert (x + 1).dtype == ml_dtypes.float8_e5m2
    with pytest.raises(TypeError) as e:
        x + np.ones(2, np.float32)
    assert "add: float8_e5m2 is not promoted to other dtypes; convert it explicitly" in str(e.value)


def test_refusals_name_function_and_argument() -> None:
    with pytest.raises(TypeError) as e:
        add(1.0, "two")  # type: ignore[arg-type]  # a wrong argument is the point
    assert "add: argument `y` must be an array or a scalar, got 'two'" in str(e.value)
    with pytest.raises(TypeError) as e:
        convert(np.ones(2, np.complex64), np.float32)
    assert "convert: expected a complex dtype for complex numbers, got float32" in str(e.value)
    assert "test_promotion.py" in str(e.value)


def test_promote_to_inexact() -> None:
    values = promote("f", np.ones(2, np.int64), 2, inexact=True)
    assert [v.dtype for v in values] == [np.float32, np.float32]
