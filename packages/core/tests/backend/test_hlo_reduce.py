"""Reductions, running reductions and sorting, against NumPy."""

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from fiveloop.core.backend import hlo
from fiveloop.core.backend.hlo import Builder, IRValue

Program = Callable[..., list[np.ndarray]]
BF16 = np.dtype(ml_dtypes.bfloat16)

REDUCTIONS = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


@pytest.mark.parametrize("dtype", ["f2", BF16, "f4", "f8", "i1", "i8", "u4"], ids=str)
def test_reductions_of_numbers(program: Program, dtype: str) -> None:
    x = np.array([[1, 2, 3], [3, 1, 2]]).astype(dtype)
    if x.dtype.kind != "u":
        x[0] = -x[0]
    outs = program(
        lambda b, v: [hlo.reduce(b, v, d, k) for k in REDUCTIONS for d in ((0,), (1,), (0, 1))], x
    )
    cases = [(f, d) for f in REDUCTIONS.values() for d in ((0,), (1,), (0, 1))]
    for out, (f, dims) in zip(outs, cases, strict=True):
        assert out.dtype == x.dtype
        np.testing.assert_array_equal(out, f.reduce(x, dims))


def test_bitwise_reductions(program: Program) -> None:
    flags = np.array([[True, True], [True, False]])
    bits = np.array([6, 14, 3], np.uint8)

    def write(b: Builder, flags: IRValue, bits: IRValue) -> list[IRValue]:
        kinds = ("and", "or", "max", "min")
        return [
            *[hlo.reduce(b, flags, (1,), kind) for kind in kinds],
            *[hlo.reduce(b, bits, (0,), kind) for kind in kinds[:2]],
        ]

    outs = program(write, flags, bits)
    every, some = flags.all(1), flags.any(1)
    for out, want in zip(outs, [every, some, some, every, 2, 15], strict=True):
        np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("kind", ["add", "mul", "max", "min", "and", "or"])
def test_the_reduction_of_nothing_is_the_identity(program: Program, kind: str) -> None:
    floats = ["f4", BF16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]
    names = ["?", "i1", "u2", "i8", *([] if kind in ("and", "or") else floats)]
    dtypes = [np.dtype(d) for d in names]
    inputs = [np.zeros((0,), d) for d in dtypes]
    outs = program(lambda b, *xs: [hlo.reduce(b, x, (0,), kind) for x in xs], *inputs)
    for dtype, out in zip(dtypes, outs, strict=True):
        np.testing.assert_array_equal(out, hlo.identity(kind, dtype))
        assert out.dtype == dtype


def test_identities_leave_extremes_unchanged() -> None:
    assert hlo.identity("max", np.dtype("f4")) == -np.inf
    assert hlo.identity("min", np.dtype("i2")) == 2**15 - 1
    assert hlo.identity("max", np.dtype(ml_dtypes.float8_e4m3fn)) == -448
    assert not hlo.identity("max", np.dtype("?"))
    with pytest.raises(ValueError, match="reduction among add, mul, max, min, and, or, got 'avg'"):
        hlo.identity("avg", np.dtype("f4"))


def test_arrays_reduced_together(program: Program) -> None:
    x = np.array([[3.0, 9.0, 9.0], [5.0, 1.0, 4.0]], np.float32)

    def write(b: Builder, x: IRValue) -> list[IRValue]:
        def larger(left: list[IRValue], right: list[IRValue]) -> list[IRValue]:
            first = hlo.compare(b, left[0], right[0], "GE")
            return [hlo.select(b, first, u, v) for u, v in zip(left, right, strict=True)]

        index = hlo.iota(b, x.shape, np.int32, 1)
        inits = [hlo.constant(b, -np.inf, (), "f4"), hlo.constant(b, 0, (), "i4")]
        return hlo.reduce_generic(b, [x, index], inits, (1,), larger)

    values, places = program(write, x)
    np.testing.assert_array_equal(values, x.max(1))
    np.testing.assert_array_equal(places, x.argmax(1))


def test_cumulative_reductions_and_pooling(program: Program) -> None:
    x = np.arange(1, 7, dtype=np.float32).reshape(2, 3)

    def write(b: Builder, x: IRValue) -> list[IRValue]:
        before = [(0, 0), (2, 0)]
        running = [
            hlo.reduce_window(b, x, kind, (1, 3), padding=before) for kind in ("add", "mul", "max")
        ]
        return [
            *running,
            hlo.reduce_window(b, x, "add", (2, 2), strides=(1, 1)),
            hlo.reduce_window(b, x, "max", (1, 2), strides=(1, 2)),
            hlo.reduce_window(b, x, "add", (1, 2), window_dilations=(1, 2)),
            hlo.reduce_window(b, x, "add", (1, 2), base_dilations=(1, 2)),
        ]

    outs = program(write, x)
    expected = [
        np.cumsum(x, 1),
        np.cumprod(x, 1),
        np.maximum.accumulate(x, 1),
        x[:1, :2] + x[:1, 1:] + x[1:, :2] + x[1:, 1:],
        np.maximum(x[:, 0::2][:, :1], x[:, 1::2]),
        x[:, :1] + x[:, 2:],
        np.repeat(x, 2, 1)[:, [0, 2, 3, 4]],
    ]
    for out, want in zip(outs, expected, strict=True):
        np.testing.assert_array_equal(out, want)


def test_sort_puts_nan_last_and_keeps_ties_in_order(program: Program) -> None:
    keys = np.array([3.0, np.nan, 0.0, -0.0, -np.inf, 3.0], np.float32)
    index = np.arange(6, dtype=np.int32)
    values, order = program(lambda b, k, i: hlo.sort(b, [k, i], 0), keys, index)
    want = np.argsort(keys, kind="stable")
    np.testing.assert_array_equal(order, want)
    np.testing.assert_array_equal(values, keys[want])


def test_sort_by_several_keys_and_along_an_axis(program: Program) -> None:
    major = np.array([[2, 1, 2, 1], [1, 0, 0, 1]], np.int32)
    minor = np.array([[5, 8, 4, 7], [1, 9, 3, 0]], np.uint8)
    z = np.array([2 + 1j, 1 + 5j, 2 - 1j], np.complex64)

    def write(b: Builder, major: IRValue, minor: IRValue, z: IRValue) -> list[IRValue]:
        return [
            *hlo.sort(b, [major, minor], 1, num_keys=2),
            *hlo.sort(b, [minor], 0),
            *hlo.sort(b, [z], 0),
            *hlo.sort(b, [minor], 1, lambda x, y: hlo.compare(b, x[0], y[0], "GT"), stable=False),
        ]

    first, second, down, complexes, descending = program(write, major, minor, z)
    for row in range(2):
        pairs = sorted(zip(major[row].tolist(), minor[row].tolist(), strict=True))
        assert list(zip(first[row].tolist(), second[row].tolist(), strict=True)) == pairs
    np.testing.assert_array_equal(down, np.sort(minor, 0))
    np.testing.assert_array_equal(complexes, np.sort(z))
    np.testing.assert_array_equal(descending, -np.sort(-minor.astype(int), 1))
