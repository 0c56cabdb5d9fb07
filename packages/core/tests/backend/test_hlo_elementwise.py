"""Every elementwise operation against NumPy, all of one dtype in one program."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import scipy.special

from fiveloop.core.backend import hlo
from fiveloop.core.backend.hlo import Binary, Builder, IRValue, Unary

Program = Callable[..., list[np.ndarray]]

BF16 = np.dtype(ml_dtypes.bfloat16)
# The relative error that is allowed to special functions and to the rest.
TOLERANCE = {np.dtype("f2"): 4e-3, BF16: 3e-2, np.dtype("f4"): 2e-5, np.dtype("f8"): 1e-9}

ANYWHERE = np.array([-2.5, -1.5, -0.5, -0.0, 0.25, 0.5, 1.5, 3.0])
POSITIVE = np.array([0.125, 0.5, 1.0, 1.75, 2.5, 7.0])
INSIDE = np.array([-0.9, -0.5, 0.0, 0.25, 0.75])

FLOAT_UNARY: list[tuple[Unary, Callable[[Any], Any], np.ndarray]] = [
    (hlo.abs, np.abs, ANYWHERE),
    (hlo.neg, np.negative, ANYWHERE),
    (hlo.sign, np.sign, ANYWHERE),
    (hlo.exp, np.exp, ANYWHERE),
    (hlo.expm1, np.expm1, ANYWHERE),
    (hlo.log, np.log, POSITIVE),
    (hlo.log1p, np.log1p, POSITIVE),
    (hlo.sqrt, np.sqrt, POSITIVE),
    (hlo.rsqrt, lambda x: 1 / np.sqrt(x), POSITIVE),
    (hlo.cbrt, np.cbrt, ANYWHERE),
    (hlo.tanh, np.tanh, ANYWHERE),
    (hlo.sin, np.sin, ANYWHERE),
    (hlo.cos, np.cos, ANYWHERE),
    (hlo.tan, np.tan, INSIDE),
    (hlo.logistic, scipy.special.expit, ANYWHERE),
    (hlo.ceil, np.ceil, ANYWHERE),
    (hlo.floor, np.floor, ANYWHERE),
    (hlo.round_nearest_even, np.round, ANYWHERE),
    (hlo.round_nearest_afz, lambda x: np.trunc(x + np.copysign(0.5, x)), ANYWHERE),
    (hlo.real, np.real, ANYWHERE),
    (hlo.imag, np.imag, ANYWHERE),
    (hlo.erf, scipy.special.erf, ANYWHERE),
    (hlo.erfc, scipy.special.erfc, ANYWHERE),
    (hlo.erf_inv, scipy.special.erfinv, INSIDE),
    (hlo.lgamma, scipy.special.gammaln, POSITIVE),
    (hlo.digamma, scipy.special.digamma, POSITIVE),
    (hlo.asin, np.arcsin, INSIDE),
    (hlo.acos, np.arccos, INSIDE),
    (hlo.atan, np.arctan, ANYWHERE),
    (hlo.sinh, np.sinh, ANYWHERE),
    (hlo.cosh, np.cosh, ANYWHERE),
    (hlo.asinh, np.arcsinh, ANYWHERE),
    (hlo.acosh, np.arccosh, POSITIVE + 1),
    (hlo.atanh, np.arctanh, INSIDE),
]

COMPLEX_UNARY: list[tuple[Unary, Callable[[Any], Any]]] = [
    (hlo.abs, np.abs),
    (hlo.neg, np.negative),
    (hlo.exp, np.exp),
    (hlo.log, np.log),
    (hlo.sqrt, np.sqrt),
    (hlo.tanh, np.tanh),
    (hlo.sin, np.sin),
    (hlo.cos, np.cos),
    (hlo.real, np.real),
    (hlo.imag, np.imag),
    (hlo.sinh, np.sinh),
    (hlo.cosh, np.cosh),
]

Table = list[tuple[Binary, Callable[[Any, Any], Any]]]

ARITHMETIC: Table = [
    (hlo.add, np.add),
    (hlo.sub, np.subtract),
    (hlo.mul, np.multiply),
    (hlo.max, np.maximum),
    (hlo.min, np.minimum),
]

BITWISE: Table = [
    (hlo.and_, np.bitwise_and),
    (hlo.or_, np.bitwise_or),
    (hlo.xor, np.bitwise_xor),
]

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_unary_operations_on_floats(program: Program, dtype: np.dtype) -> None:
    inputs = [points.astype(dtype) for _, _, points in FLOAT_UNARY]

    def write(b: Builder, *xs: IRValue) -> list[IRValue]:
        return [op(b, x) for (op, _, _), x in zip(FLOAT_UNARY, xs, strict=True)]

    outs = program(write, *inputs)
    for (op, expected, _), x, out in zip(FLOAT_UNARY, inputs, outs, strict=True):
        want = expected(x.astype(np.float64)).astype(np.float64)
        assert out.dtype == dtype
        np.testing.assert_allclose(
            out.astype(np.float64), want, TOLERANCE[dtype], TOLERANCE[dtype], err_msg=str(op)
        )


@pytest.mark.parametrize("dtype", [np.dtype("c8"), np.dtype("c16")], ids=str)
def test_unary_operations_on_complex_numbers(program: Program, dtype: np.dtype) -> None:
    x = np.array([0.5 - 0.25j, 1.5 + 1j, -0.75 + 0.5j], dtype)
    outs = program(lambda b, v: [op(b, v) for op, _ in COMPLEX_UNARY], x)
    for (_, expected), out in zip(COMPLEX_UNARY, outs, strict=True):
        assert out.dtype == expected(x).dtype
        np.testing.assert_allclose(out, expected(x), rtol=2e-5)


def test_binary_operations_on_floats(program: Program) -> None:
    x = np.array([0.5, 2.0, 3.5, 0.0, -4.0, np.nan], np.float32)
    y = np.array([2.0, -3.0, 1.25, 1.0, 3.0, 1.0], np.float32)
    table: Table = [
        *ARITHMETIC,
        (hlo.div, np.divide),
        (hlo.rem, np.fmod),
        (hlo.pow, np.power),
        (hlo.atan2, np.arctan2),
    ]
    outs = program(lambda b, u, v: [op(b, u, v) for op, _ in table], x, y)
    for (op, expected), out in zip(table, outs, strict=True):
        np.testing.assert_allclose(out, expected(x, y), rtol=1e-6, err_msg=str(op))


@pytest.mark.parametrize("name", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"])
def test_operations_on_integers(program: Program, name: str) -> None:
    dtype = np.dtype(name)
    x = np.array([1, 7, 100, 3]).astype(dtype)
    y = np.array([3, 2, 5, 2]).astype(dtype)
    shift = np.array([0, 1, 2, 3]).astype(dtype)
    table: Table = [*ARITHMETIC, *BITWISE, (hlo.div, np.floor_divide), (hlo.rem, np.remainder)]

    def write(b: Builder, u: IRValue, v: IRValue, s: IRValue) -> list[IRValue]:
        return [
            *[op(b, u, v) for op, _ in table],
            hlo.shift_left(b, u, s),
            hlo.shift_right_logical(b, u, s),
            hlo.shift_right_arithmetic(b, hlo.not_(b, u), s),
            hlo.popcnt(b, u),
            hlo.count_leading_zeros(b, u),
            hlo.pow(b, u, hlo.constant(b, 2, u.shape, u.dtype)),
            hlo.abs(b, u),
            hlo.sign(b, hlo.sub(b, u, v)),
        ]

    outs = program(write, x, y, shift)
    for (op, expected), out in zip(table, outs, strict=False):
        np.testing.assert_array_equal(out, expected(x, y), err_msg=str(op))
    left, logical, arithmetic, ones, zeros, square, magnitude, sign = outs[len(table) :]
    np.testing.assert_array_equal(left, np.left_shift(x, shift))
    np.testing.assert_array_equal(logical, np.right_shift(x, shift))
    signed = np.dtype(f"i{dtype.itemsize}")
    wanted = np.right_shift(np.invert(x).view(signed), shift.astype(signed)).view(dtype)
    np.testing.assert_array_equal(arithmetic, wanted)
    bits = 8 * dtype.itemsize
    np.testing.assert_array_equal(ones, [int(v).bit_count() for v in x])
    np.testing.assert_array_equal(zeros, [bits - int(v).bit_length() for v in x])
    np.testing.assert_array_equal(square, x * x)
    np.testing.assert_array_equal(magnitude, x)
    np.testing.assert_array_equal(sign, np.sign(x - y))


def test_operations_on_booleans(program: Program) -> None:
    x, y = np.array([True, True, False, False]), np.array([True, False, True, False])
    table: Table = [
        *BITWISE,
        (hlo.max, np.maximum),
        (hlo.add, np.logical_or),
        (hlo.mul, np.logical_and),
    ]
    outs = program(lambda b, u, v: [hlo.not_(b, u), *[op(b, u, v) for op, _ in table]], x, y)
    np.testing.assert_array_equal(outs[0], ~x)
    for (_, expected), out in zip(table, outs[1:], strict=True):
        np.testing.assert_array_equal(out, expected(x, y))


@pytest.mark.parametrize("name", ["?", "i4", "u4", "f4", "f8", "c8"])
def test_comparisons_take_the_order_of_the_dtype(program: Program, name: str) -> None:
    dtype = np.dtype(name)
    x, y = np.array([0, 1, 255, 3]).astype(dtype), np.array([1, 1, 2, 3]).astype(dtype)
    if dtype.kind == "i":
        x = -x
    if dtype.kind == "u":
        x = x - np.array([2, 0, 0, 0], dtype)  # wraps round to a large number
    if dtype.kind == "f":
        x[2] = np.nan
    table = {k: f for k, f in COMPARISONS.items() if dtype.kind != "c" or k in ("EQ", "NE")}
    outs = program(lambda b, u, v: [hlo.compare(b, u, v, k) for k in table], x, y)
    for (_, expected), out in zip(table.items(), outs, strict=True):
        np.testing.assert_array_equal(out, expected(x, y))


def test_select_clamp_and_tests_of_floats(program: Program) -> None:
    pred = np.array([True, False, True])
    x = np.array([1.0, np.inf, np.nan], np.float32)
    y = np.array([4.0, 5.0, 6.0], np.float32)

    def write(b: Builder, p: IRValue, u: IRValue, v: IRValue) -> list[IRValue]:
        low, high = hlo.constant(b, 4.5, (), "f4"), hlo.constant(b, 5.5, (), "f4")
        return [
            hlo.select(b, p, u, v),
            hlo.select(b, hlo.constant(b, False), u, v),
            hlo.clamp(b, low, v, high),
            hlo.is_finite(b, u),
        ]

    chosen, scalar, clamped, finite = program(write, pred, x, y)
    np.testing.assert_array_equal(chosen, np.where(pred, x, y))
    np.testing.assert_array_equal(scalar, y)
    np.testing.assert_array_equal(clamped, np.array([4.5, 5.0, 5.5], np.float32))
    np.testing.assert_array_equal(finite, np.isfinite(x))


def test_complex_numbers_are_built_from_parts(program: Program) -> None:
    re, im = np.array([1.0, 2.0]), np.array([3.0, -4.0])
    (out,) = program(lambda b, x, y: [hlo.complex(b, x, y)], re, im)
    np.testing.assert_array_equal(out, re + 1j * im)


def test_convert_between_all_dtypes(program: Program) -> None:
    dtypes = [np.dtype(d) for d in ("?", "i1", "i4", "u8", BF16, "f4", "f8", "c8")]
    inputs = [np.array([0, 1, 3, 100]).astype(d) for d in dtypes]
    outs = program(lambda b, *xs: [hlo.convert(b, x, d) for x in xs for d in dtypes], *inputs)
    pairs = [(x, d) for x in inputs for d in dtypes]
    for (x, dtype), out in zip(pairs, outs, strict=True):
        real = x.real if x.dtype.kind == "c" and dtype.kind != "c" else x
        assert out.dtype == dtype
        np.testing.assert_array_equal(out, real.astype(dtype), err_msg=f"{x.dtype} to {dtype}")


def test_bitcast_changes_the_last_axis_with_the_width(program: Program) -> None:
    x = np.array([1.0, -2.5], np.float32)

    def write(b: Builder, v: IRValue) -> list[IRValue]:
        small = hlo.bitcast_convert(b, v, np.uint8)
        return [hlo.bitcast_convert(b, v, np.uint32), small, hlo.bitcast_convert(b, small, "f4")]

    same, small, back = program(write, x)
    np.testing.assert_array_equal(same, x.view(np.uint32))
    np.testing.assert_array_equal(small, x.view(np.uint8).reshape(2, 4))
    np.testing.assert_array_equal(back, x)


def test_operands_of_different_types_are_refused() -> None:
    b = hlo.Builder()

    def body(args: list[IRValue]) -> list[IRValue]:
        return [hlo.add(b, args[0], args[1])]

    with pytest.raises(TypeError, match="one type, got tensor<2xf32> and tensor<2xi32>"):
        b.function("main", [((2,), "f4"), ((2,), "i4")], public=True, body=body)
