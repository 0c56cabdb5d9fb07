"""Constants come back from the device with the bits that were written."""

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from fiveloop.core.backend import hlo
from fiveloop.core.backend.hlo_builder import ELEMENT_TYPES, FLOAT_DTYPES

Program = Callable[..., list[np.ndarray]]


def constants(program: Program, arrays: list[np.ndarray]) -> list[np.ndarray]:
    return program(lambda b: [hlo.constant(b, x) for x in arrays])


def same_bits(x: np.ndarray, y: np.ndarray) -> bool:
    with np.errstate(invalid="ignore"):
        both_nan = np.isnan(x) & np.isnan(y)
    flat = np.ascontiguousarray(x).reshape(-1).view(np.uint8).reshape(x.size, -1)
    other = np.ascontiguousarray(y).reshape(-1).view(np.uint8).reshape(x.size, -1)
    return bool(((flat == other).all(1) | both_nan.reshape(-1)).all())


@pytest.mark.parametrize("dtype", sorted(FLOAT_DTYPES, key=str), ids=str)
def test_any_bits_of_a_float(program: Program, dtype: np.dtype) -> None:
    rng = np.random.default_rng(0)
    patterns = rng.integers(0, 256, (48, dtype.itemsize), np.uint8).reshape(-1).view(dtype)
    special = np.array([0.0, 1.0, -1.5, 0.1, 1e-3, np.nan, np.inf, -np.inf]).astype(dtype)
    minus_zero = np.zeros(1, np.uint8 if dtype.itemsize == 1 else f"u{dtype.itemsize}")
    zero_bits = (minus_zero | (1 << (8 * dtype.itemsize - 1))).astype(minus_zero.dtype).view(dtype)
    values = np.concatenate([patterns, special, zero_bits])
    assert values.size <= 64, "the listed form is what is tested here"
    splats = [np.full((2, 2), v, dtype) for v in (*special, zero_bits[0])]
    outs = constants(program, [values, np.tile(values, 3), *splats])
    assert same_bits(outs[0], values)
    assert same_bits(outs[1], np.tile(values, 3))
    for out, splat in zip(outs[2:], splats, strict=True):
        assert out.dtype == dtype
        assert same_bits(out, splat)


def test_integers_booleans_and_complex_numbers(program: Program) -> None:
    rng = np.random.default_rng(1)
    arrays = [rng.random((3, 40)) < 0.5, np.array([True]), np.zeros((0, 3), bool)]
    for dtype in ELEMENT_TYPES:
        if dtype.kind in "iu":
            info = np.iinfo(dtype)
            arrays += [np.array([info.min, 0, info.max], dtype), np.full((2, 3), info.max, dtype)]
            arrays += [np.arange(100).astype(dtype)]
    for dtype in (np.dtype(np.complex64), np.dtype(np.complex128)):
        arrays += [np.array([1.5 - 0.25j, -0.0j, 1e-30j], dtype), np.full((2,), 0.1 + 3j, dtype)]
        arrays += [
            np.array(complex(np.inf, -1.0), dtype),
            np.array([complex(0, k) for k in range(70)], dtype),
        ]
    outs = constants(program, arrays)
    for out, array in zip(outs, arrays, strict=True):
        assert out.dtype == array.dtype
        np.testing.assert_array_equal(out, array)


def test_shapes_without_elements_and_nested_lists(program: Program) -> None:
    arrays = [np.zeros((0,), np.float32), np.zeros((2, 0, 3), np.int32)]
    arrays += [np.arange(12, dtype=np.float32).reshape(2, 3, 2), np.array(7, np.int64)]
    for out, array in zip(constants(program, arrays), arrays, strict=True):
        assert out.shape == array.shape
        np.testing.assert_array_equal(out, array)


def test_a_scalar_fills_a_shape_and_is_converted(program: Program) -> None:
    dtypes = ("f4", "i8", "?", ml_dtypes.bfloat16)
    outs = program(lambda b: [hlo.constant(b, 2, (2, 3), d) for d in dtypes])
    for out, dtype in zip(outs, dtypes, strict=True):
        assert out.dtype == np.dtype(dtype)
        np.testing.assert_array_equal(out, np.full((2, 3), 2).astype(dtype))


def test_constants_read_well() -> None:
    b = hlo.Builder()
    values = (0.1, 1e-5, -3.0, 1e20)
    b.function(
        "main", [], public=True, body=lambda _: [hlo.constant(b, v, (), "f4") for v in values]
    )
    for text in ("dense<0.1>", "dense<1.0e-05>", "dense<-3.0>", "dense<1.0e+20>"):
        assert text in b.text()


def test_equal_constants_of_a_region_are_written_once() -> None:
    b = hlo.Builder()
    zeros = (0.0, 0.0, -0.0)
    b.function(
        "main", [], public=True, body=lambda _: [hlo.constant(b, v, (), "f4") for v in zeros]
    )
    assert b.text().count("stablehlo.constant") == 2


def test_an_array_of_another_shape_is_refused() -> None:
    b = hlo.Builder()

    def body(_: list[hlo.IRValue]) -> list[hlo.IRValue]:
        return [hlo.constant(b, [1, 2], (3,), "f4")]

    with pytest.raises(ValueError, match=r"scalar or an array of shape \(3,\), got \(2,\)"):
        b.function("main", [], public=True, body=body)
