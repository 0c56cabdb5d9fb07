"""Elementwise functions equal NumPy in every dtype, and have the right derivatives at their edges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fiveloop.core import grad, jvp, make_jaxpr, vmap
from fiveloop.core.arrays.array import Value, as_value
from fiveloop.core.arrays.promotion import dtype_kind
from fiveloop.core.primitives import convert as cv
from fiveloop.core.primitives import elementwise as e
from fiveloop.core.primitives import special as sp
from fiveloop.core.primitives.broadcast import reduce_sum
from fiveloop.testing.core.gradcheck import check_grads
from fiveloop.testing.core.primitive_samples import elementwise

INF, NAN = np.inf, np.nan
BF16 = ml_dtypes.bfloat16
FLOATS = [np.float16, BF16, np.float32, np.float64]
INTS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
COMPLEX = [np.complex64, np.complex128]

UNARY: dict[str, tuple[Callable[[Any], Any], list[Any]]] = {
    "neg": (np.negative, [*INTS, *FLOATS, *COMPLEX]),
    "abs": (np.abs, [*INTS, *FLOATS, *COMPLEX]),
    "sign": (np.sign, [*INTS, *FLOATS]),
    "square": (np.square, [*INTS, *FLOATS, *COMPLEX]),
    "floor": (np.floor, FLOATS),
    "ceil": (np.ceil, FLOATS),
    "round": (np.round, FLOATS),
    "exp": (np.exp, [*FLOATS, *COMPLEX]),
    "log": (np.log, [*FLOATS, *COMPLEX]),
    "expm1": (np.expm1, FLOATS),
    "log1p": (np.log1p, FLOATS),
    "sqrt": (np.sqrt, [*FLOATS, *COMPLEX]),
    "rsqrt": (lambda x: 1 / np.sqrt(x), FLOATS),
    "cbrt": (np.cbrt, FLOATS),
    "sin": (np.sin, [*FLOATS, *COMPLEX]),
    "cos": (np.cos, [*FLOATS, *COMPLEX]),
    "tan": (np.tan, FLOATS),
    "asin": (np.arcsin, FLOATS),
    "acos": (np.arccos, FLOATS),
    "atan": (np.arctan, FLOATS),
    "sinh": (np.sinh, FLOATS),
    "cosh": (np.cosh, FLOATS),
    "tanh": (np.tanh, [*FLOATS, *COMPLEX]),
    "asinh": (np.arcsinh, FLOATS),
    "acosh": (np.arccosh, FLOATS),
    "atanh": (np.arctanh, FLOATS),
    "logistic": (lambda x: 1 / (1 + np.exp(-x)), FLOATS),
    "is_finite": (np.isfinite, FLOATS),
    "real": (np.real, COMPLEX),
    "imag": (np.imag, COMPLEX),
    "conj": (np.conj, COMPLEX),
    "bitwise_not": (np.invert, [np.bool_, *INTS]),
}
BINARY: dict[str, tuple[Callable[[Any, Any], Any], list[Any]]] = {
    "add": (np.add, [np.bool_, *INTS, *FLOATS, *COMPLEX]),
    "sub": (np.subtract, [*INTS, *FLOATS, *COMPLEX]),
    "mul": (np.multiply, [np.bool_, *INTS, *FLOATS, *COMPLEX]),
    "div": (np.divide, [*FLOATS, *COMPLEX]),
    "rem": (np.fmod, FLOATS),
    "pow": (np.power, FLOATS),
    "maximum": (np.maximum, [np.bool_, *INTS, *FLOATS]),
    "minimum": (np.minimum, [np.bool_, *INTS, *FLOATS]),
    "atan2": (np.arctan2, FLOATS),
    "nextafter": (np.nextafter, [np.float32, np.float64]),
    "bitwise_and": (np.bitwise_and, [np.bool_, *INTS]),
    "bitwise_or": (np.bitwise_or, [np.bool_, *INTS]),
    "bitwise_xor": (np.bitwise_xor, [np.bool_, *INTS]),
    "equal": (np.equal, [np.bool_, *INTS, *FLOATS, *COMPLEX]),
    "not_equal": (np.not_equal, [np.bool_, *INTS, *FLOATS, *COMPLEX]),
    "less": (np.less, [np.bool_, *INTS, *FLOATS]),
    "less_equal": (np.less_equal, [np.bool_, *INTS, *FLOATS]),
    "greater": (np.greater, [np.bool_, *INTS, *FLOATS]),
    "greater_equal": (np.greater_equal, [np.bool_, *INTS, *FLOATS]),
}


def elements(dtype: Any, seed: int) -> np.ndarray[Any, Any]:
    """Numbers of a dtype: random ones, and its extremes or what is special among floats."""
    rng, kind = np.random.default_rng(seed), dtype_kind(np.dtype(dtype))
    if kind == "b":
        return rng.integers(0, 2, 12).astype(np.bool_)
    if kind in "iu":
        x = rng.integers(0 if kind == "u" else -5, 6, 12).astype(dtype)
        x[:2] = [np.iinfo(dtype).min, np.iinfo(dtype).max]
        return x
    if kind == "c":
        return np.asarray(rng.normal(size=12) + 1j * rng.normal(size=12)).astype(dtype)
    special = np.array([0.0, -0.0, INF, -INF, NAN, 1.0, -1.0, 0.5])
    return rng.permutation(np.concatenate([special, rng.normal(size=12)])).astype(dtype)


def assert_same(got: Value, want: Any, dtype: Any) -> None:
    """Equal in type and, to the precision of `dtype`, in value; NaN equals NaN."""
    have, want = np.asarray(got), np.asarray(want)
    kind = dtype_kind(have.dtype)
    if kind in "biu":
        np.testing.assert_array_equal(have, want.astype(have.dtype))
        return
    rtol = {2: 2e-2, 4: 2e-5, 8: 2e-5}.get(np.dtype(dtype).itemsize, 1e-12)
    wide = np.complex128 if kind == "c" else np.float64
    np.testing.assert_allclose(have.astype(wide), want.astype(wide), rtol=rtol, atol=rtol)


def wide(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Half floats as NumPy can compute with them."""
    return x.astype(np.float32) if x.dtype in (np.float16, BF16) else x


@pytest.mark.parametrize(("name", "dtype"), [(n, d) for n, (_, ds) in UNARY.items() for d in ds])
def test_unary_equals_numpy(name: str, dtype: Any) -> None:
    x = elements(dtype, 0)
    got = elementwise(name)(x)
    with np.errstate(all="ignore"):
        want = UNARY[name][0](wide(x))
    assert_same(got, want, dtype)
    kind = {"is_finite": "b", "real": "f", "imag": "f"}.get(name, dtype_kind(x.dtype))
    assert dtype_kind(got.dtype) == (kind if name != "abs" or kind != "c" else "f")


@pytest.mark.parametrize(("name", "dtype"), [(n, d) for n, (_, ds) in BINARY.items() for d in ds])
def test_binary_equals_numpy(name: str, dtype: Any) -> None:
    x, y = elements(dtype, 1), elements(dtype, 2)
    with np.errstate(all="ignore"):
        want = BINARY[name][0](wide(x), wide(y))
    assert_same(elementwise(name)(x, y), want, dtype)


def test_integer_division_goes_towards_zero() -> None:
    x, y = np.array([7, -7, 7, -7], np.int32), np.array([2, 2, -2, -2], np.int32)
    assert np.asarray(e.div(x, y)).tolist() == [3, -3, -3, 3]
    assert np.asarray(e.rem(x, y)).tolist() == [1, -1, 1, -1]


def test_special_functions_at_known_points() -> None:
    pi = np.pi
    close = np.testing.assert_allclose
    close(np.asarray(sp.erf(np.array([0.0, 0.5]))), [0.0, 0.5204998778130465], rtol=1e-12)
    close(np.asarray(sp.erfc(np.float64(3.0))), 2.209049699858544e-05, rtol=1e-12)
    close(np.asarray(sp.erf_inv(np.float64(0.5204998778130465))), 0.5, rtol=1e-12)
    close(
        np.asarray(sp.lgamma(np.array([0.5, 10.0]))), [np.log(pi) / 2, np.log(362880)], rtol=1e-12
    )
    close(np.asarray(sp.digamma(np.float64(1.0))), -0.5772156649015329, rtol=1e-12)
    close(np.asarray(sp.polygamma(1.0, np.float64(1.0))), pi**2 / 6, rtol=1e-12)


def test_bits() -> None:
    x = np.array([0, 1, 255, 170], np.uint8)
    assert np.asarray(e.population_count(x)).tolist() == [0, 1, 8, 4]
    assert np.asarray(e.count_leading_zeros(x)).tolist() == [8, 7, 0, 0]
    signed = np.array([-8, 8], np.int8)
    assert np.asarray(e.shift_right_arithmetic(signed, 1)).tolist() == [-4, 4]
    assert np.asarray(e.shift_right_logical(signed, 1)).tolist() == [124, 4]
    assert np.asarray(e.shift_left(signed, 4)).tolist() == [-128, -128]
    one = np.float32(1.0)
    assert np.asarray(sp.bitcast_convert(one, np.uint32)).item() == 0x3F800000
    halves = sp.bitcast_convert(np.array([0x00020001], np.uint32), np.uint16)
    assert np.asarray(halves).tolist() == [[1, 2]]
    assert np.asarray(sp.bitcast_convert(halves, np.uint32)).tolist() == [0x00020001]
    assert np.asarray(sp.reduce_precision(np.float32(1 + 2**-9), 8, 7)).item() == 1.0


def test_broadcasting_keeps_scalars_small() -> None:
    text = str(make_jaxpr(lambda x: e.add(e.mul(x, 2.0), 1.0))(np.ones(3, np.float32)))
    assert "broadcast" not in text
    assert e.add(np.ones((3, 1)), np.ones((2, 1, 4))).shape == (2, 3, 4)
    scale, x = as_value(np.float32(2.0)), as_value(np.ones((2, 3), np.float32))
    dots = grad(lambda s, y: reduce_sum(e.mul(s, y)), argnums=(0, 1))(scale, x)
    assert dots[0].shape == () and dots[0].item() == 6.0
    assert np.asarray(dots[1]).tolist() == [[2.0] * 3] * 2


# derivatives at the edges


def slope(f: Callable[..., Value], *xs: Any, at: int = 0) -> list[float]:
    """The derivative of each element by one argument."""
    args = [np.asarray(x, np.float64) for x in xs]
    out = grad(lambda *a: reduce_sum(f(*a)), argnums=at)(*args)
    return [float(v) for v in np.asarray(out)]


def test_abs_is_flat_at_zero() -> None:
    assert slope(e.abs, [0.0, 2.0, -2.0]) == [0.0, 1.0, -1.0]


def test_ties_share_the_derivative() -> None:
    x, y = [1.0, 2.0, 3.0], [2.0, 2.0, 2.0]
    assert slope(e.maximum, x, y) == [0.0, 0.5, 1.0]
    assert slope(e.maximum, x, y, at=1) == [1.0, 0.5, 0.0]
    assert slope(e.minimum, x, y) == [1.0, 0.5, 0.0]
    assert slope(e.minimum, x, y, at=1) == [0.0, 0.5, 1.0]


def test_power_at_zero() -> None:
    x, y = [0.0, 0.0, 0.0, -2.0, 2.0], [0.0, 1.0, 2.0, 2.0, 3.0]
    assert slope(e.pow, x, y) == [0.0, 1.0, 0.0, -4.0, 12.0]
    assert slope(e.pow, x, y, at=1)[:3] == [0.0, 0.0, 0.0]
    assert slope(lambda v: sp.integer_pow(v, 0), [0.0]) == [0.0]
    assert slope(lambda v: sp.integer_pow(v, 3), [0.0, -2.0]) == [0.0, 12.0]
    assert slope(lambda v: sp.integer_pow(v, -1), [2.0]) == [-0.25]


@pytest.mark.parametrize("dtype", [np.int32, np.uint8])
def test_powers_of_integers_use_all_bits_of_the_exponent(dtype: Any) -> None:
    x, y = (
        np.array([[0], [2], [3], [-3]]).astype(dtype),
        np.array([0, 63, 64, 120, 200]).astype(dtype),
    )
    np.testing.assert_array_equal(e.pow(x, y), np.power(x, y))


def test_roots_are_steep_at_zero() -> None:
    assert slope(e.sqrt, [0.0, 4.0]) == [INF, 0.25]
    assert slope(e.cbrt, [0.0]) == [INF]


def test_saturated_functions_are_flat() -> None:
    far = [-1e4, 1e4]
    for f in (sp.logistic, sp.tanh, sp.erf):
        assert slope(f, far) == [0.0, 0.0]
    assert np.asarray(sp.logistic(np.array(far, np.float32))).tolist() == [0.0, 1.0]
    assert slope(sp.logistic, [0.0]) == [0.25]


def test_select_keeps_nan_out() -> None:
    def safe_log(x: Value) -> Value:
        return e.select(e.greater(x, 0), e.log(e.select(e.greater(x, 0), x, 1.0)), 0.0)

    assert slope(safe_log, [-1.0, 0.0, 4.0]) == [0.0, 0.0, 0.25]
    pred = np.array([True, False])
    assert slope(lambda x: e.select(pred, x, e.log(x)), [1.0, 2.0]) == [1.0, 0.5]


def test_clamp_gives_bounds_to_the_operand() -> None:
    x = [-2.0, -1.0, 0.0, 1.0, 2.0]
    assert slope(lambda v: e.clamp(-1.0, v, 1.0), x) == [0.0, 1.0, 1.0, 1.0, 0.0]
    low = grad(lambda lo: reduce_sum(e.clamp(lo, np.array(x), 1.0)))(np.float64(-1.0))
    assert low.item() == 1.0


def test_stop_gradient() -> None:
    assert slope(lambda x: e.mul(x, e.stop_gradient(x)), [3.0]) == [3.0]


def test_integers_and_bools_have_no_tangents() -> None:
    out, dot = jvp(lambda x: cv.convert(x, np.float32), (np.int32(3),), (np.zeros((), np.int32),))
    assert out.item() == 3.0 and dot.item() == 0.0


def test_complex_derivatives_are_holomorphic() -> None:
    z, t = np.complex128(1 + 2j), np.complex128(0.5 - 1j)
    for f, df in ((e.exp, np.exp(z)), (e.square, 2 * z), (e.log, 1 / z), (sp.sin, np.cos(z))):
        _, dot = jvp(f, (z,), (t,))
        np.testing.assert_allclose(np.asarray(dot), df * t, rtol=1e-12)
    _, dot = jvp(e.abs, (z,), (t,))
    np.testing.assert_allclose(np.asarray(dot), (np.conj(z) * t).real / abs(z), rtol=1e-12)


@pytest.mark.parametrize("dims", [(0, 0), (1, 0), (0, None), (None, 1), (2, 2), (1, 2)])
def test_batch_equals_a_loop(dims: tuple[int | None, int | None]) -> None:
    rng = np.random.default_rng(0)

    def operand(dim: int | None) -> np.ndarray[Any, Any]:
        shape = [2, 3]
        if dim is not None:
            shape.insert(dim, 4)
        return rng.normal(size=shape)

    x, y = operand(dims[0]), operand(dims[1])
    got = np.asarray(vmap(sp.atan2, in_axes=dims)(x, y))
    lanes = [
        np.arctan2(
            *[v if d is None else np.take(v, k, d) for v, d in zip((x, y), dims, strict=True)]
        )
        for k in range(4)
    ]
    np.testing.assert_allclose(got, np.stack(lanes), rtol=1e-12)


def test_batched_scalars_meet_unbatched_arrays() -> None:
    s, x = np.arange(4.0), np.ones((2, 3))
    got = np.asarray(vmap(e.mul, in_axes=(0, None))(s, x))
    np.testing.assert_array_equal(got, s[:, None, None] * x)
    pred = np.array([True, False])
    got = np.asarray(vmap(e.select, in_axes=(0, None, None))(pred, x, -x))
    np.testing.assert_array_equal(got, np.stack([x, -x]))


# refusals


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: e.add(np.ones(2), np.ones(3)),
            "add: expected shapes that broadcast together, got (2,), (3,)",
        ),
        (
            lambda: e.less(np.ones(2, np.complex64), 1),
            "less: expected real numbers or bools, got c64[2]",
        ),
        (
            lambda: e.bitwise_and(np.ones(2), 1.0),
            "bitwise_and: expected integers or bools, got f64[2]",
        ),
        (
            lambda: e.select(np.ones(2), 1.0, 2.0),
            "select: expected `pred` to hold bools, got f64[2]",
        ),
        (lambda: e.neg(np.ones(2, np.bool_)), "neg: expected numbers, got bool[2]"),
        (
            lambda: sp.integer_pow(np.ones(2, np.int32), -1),
            "integer_pow: expected an exponent >= 0",
        ),
        (
            lambda: sp.erf(np.ones(2, np.complex64)),
            "erf: expected floating point numbers, got c64[2]",
        ),
    ],
)
def test_refusals(call: Callable[[], Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError)) as error:
        call()
    assert message in str(error.value)
    assert "test_elementwise.py" in str(error.value)


@pytest.mark.parametrize("fun", [e.abs, e.sign, lambda z: e.abs(e.mul(z, e.exp(z)))])
def test_sizes_and_directions_of_complex_numbers_have_all_derivatives(fun: Any) -> None:
    check_grads(fun, (np.array([0.3 - 0.4j, -1.2 + 0.7j, 2.0 + 0j]),))


def test_complex_zero_has_no_direction() -> None:
    zero = np.zeros(2, np.complex128)
    out, dot = jvp(grad(lambda z: reduce_sum(e.abs(z))), (zero,), (zero + 1,))
    np.testing.assert_array_equal(np.asarray(out), zero)
    np.testing.assert_array_equal(np.asarray(dot), zero)


def test_slopes_of_sums_of_exponentials_of_what_is_no_number() -> None:
    slopes = vmap(grad(sp.logaddexp, argnums=(0, 1)))
    x = np.array([np.nan, 0.0, np.inf, -np.inf, np.inf])
    y = np.array([0.0, np.nan, np.inf, -np.inf, 0.0])
    want = [[np.nan, np.nan, 0.5, 0.5, 1.0], [np.nan, np.nan, 0.5, 0.5, 0.0]]
    np.testing.assert_array_equal(np.array(slopes(x, y)), want)


def test_sums_of_exponentials_are_right_to_the_last_bits() -> None:
    apart = np.concatenate([np.linspace(0, 80, 4001), [0.0, np.inf, np.nan]]).astype(np.float32)
    found = np.asarray(sp.logaddexp(np.float32(0), -apart)).astype(np.float64)
    want = np.log1p(np.exp(-apart.astype(np.float64)))
    np.testing.assert_allclose(found, want, rtol=4e-7)
    assert (np.asarray(sp.logaddexp(apart[-2:], apart[-2:])) == apart[-2:])[0]
