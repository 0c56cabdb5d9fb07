"""Operations that move elements, against NumPy; everything in a few programs."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fiveloop.core.backend import hlo
from fiveloop.core.backend.hlo import Builder, IRValue

Program = Callable[..., list[np.ndarray]]


def test_moves_of_elements(program: Program) -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    y = np.arange(12, dtype=np.float32).reshape(2, 3, 2)

    def write(b: Builder, x: IRValue, y: IRValue) -> list[IRValue]:
        return [
            hlo.transpose(b, x, (2, 0, 1)),
            hlo.reshape(b, x, (6, 4)),
            hlo.reverse(b, x, (0, 2)),
            hlo.concatenate(b, [x, y, x], 2),
            hlo.broadcast_in_dim(b, x, (2, 5, 3, 4), (0, 2, 3)),
            hlo.slice(b, x, (0, 1, 0), (2, 3, 4), (1, 1, 3)),
            hlo.slice(b, x, (0, 2, 0), (2, 2, 4), (1, 1, 1)),
        ]

    outs = program(write, x, y)
    expected = [
        x.transpose(2, 0, 1),
        x.reshape(6, 4),
        x[::-1, :, ::-1],
        np.concatenate([x, y, x], 2),
        np.broadcast_to(x[:, None], (2, 5, 3, 4)),
        x[:, 1:3, ::3],
        x[:, 2:2],
    ]
    for out, want in zip(outs, expected, strict=True):
        np.testing.assert_array_equal(out, want)


def test_moves_that_change_nothing_write_nothing() -> None:
    b = hlo.Builder()

    def body(args: list[IRValue]) -> list[IRValue]:
        (x,) = args
        for same in (
            hlo.transpose(b, x, (0, 1)),
            hlo.reshape(b, x, (2, 3)),
            hlo.reverse(b, x, ()),
            hlo.concatenate(b, [x], 0),
            hlo.broadcast_in_dim(b, x, (2, 3), (0, 1)),
            hlo.slice(b, x, (0, 0), (2, 3), (1, 1)),
            hlo.reduce(b, x, (), "add"),
            hlo.convert(b, x, "f4"),
        ):
            assert same is x
        return [x]

    b.function("main", [((2, 3), "f4")], public=True, body=body)
    assert "stablehlo" not in b.text()


@pytest.mark.parametrize("name", ["i4", "u1", "f8", "c8"])
def test_iota_counts_along_a_dimension(program: Program, name: str) -> None:
    outs = program(lambda b: [hlo.iota(b, (2, 3), name, d) for d in (0, 1)])
    for d, out in enumerate(outs):
        np.testing.assert_array_equal(out, np.indices((2, 3))[d].astype(name))
        assert out.dtype == name


def padded(x: np.ndarray, low: Any, high: Any, interior: Any) -> np.ndarray:
    """Pad with -1 by the definition: spread, then put around or cut."""
    for axis, (lo, hi, gap) in enumerate(zip(low, high, interior, strict=True)):
        x = np.moveaxis(x, axis, 0)
        size = max(x.shape[0] + max(x.shape[0] - 1, 0) * gap, 0)
        spread = np.full((size, *x.shape[1:]), -1, x.dtype)
        spread[:: gap + 1] = x
        edges = [(max(lo, 0), max(hi, 0))] + [(0, 0)] * (x.ndim - 1)
        spread = np.pad(spread, edges, constant_values=-1)
        spread = spread[max(-lo, 0) : spread.shape[0] - max(-hi, 0)]
        x = np.moveaxis(spread, 0, axis)
    return x


def test_pad_spreads_puts_around_and_cuts(program: Program) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    cases = [
        ((1, 0), (0, 2), (0, 0)),
        ((0, 0), (0, 0), (2, 1)),
        ((-1, 1), (2, -1), (0, 1)),
        ((0, -2), (1, -1), (1, 1)),
    ]

    def write(b: Builder, v: IRValue) -> list[IRValue]:
        value = hlo.constant(b, -1, (), "f4")
        return [hlo.pad(b, v, value, *case) for case in cases]

    for out, case in zip(program(write, x), cases, strict=True):
        np.testing.assert_array_equal(out, padded(x, *case), err_msg=str(case))


def test_dot_general_with_batch_and_contracted_axes(program: Program) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 3, 4, 5)).astype(np.float32)
    y = rng.normal(size=(4, 2, 6, 5)).astype(np.float32)
    u, v = x[0, 0, 0], x[0, 0, 1]

    def write(b: Builder, x: IRValue, y: IRValue, u: IRValue, v: IRValue) -> list[IRValue]:
        return [
            hlo.dot_general(b, x, y, (0,), (1,), (3, 2), (3, 0), "f4"),
            hlo.dot_general(b, x, y, (2, 0), (0, 1), (3,), (3,), "f4", "HIGHEST"),
            hlo.dot_general(b, u, v, (), (), (0,), (0,), "f4"),
            hlo.dot_general(b, u, v, (), (), (), (), "f4"),
            hlo.dot_general(
                b,
                hlo.convert(b, u, ml_dtypes.bfloat16),
                hlo.convert(b, v, ml_dtypes.bfloat16),
                (),
                (),
                (0,),
                (0,),
                "f4",
            ),
        ]

    outs = program(write, x, y, u, v)
    bu, bv = (a.astype(ml_dtypes.bfloat16).astype(np.float32) for a in (u, v))
    expected = [
        np.einsum("abcd,caed->abe", x, y),
        np.einsum("abcd,caed->cabe", x, y),
        u @ v,
        np.outer(u, v),
        bu @ bv,
    ]
    for out, want in zip(outs, expected, strict=True):
        np.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-5)


def test_dot_general_on_integers_and_wider_results(program: Program) -> None:
    x = np.array([100, 100, 100], np.int8)
    (out,) = program(lambda b, v: [hlo.dot_general(b, v, v, (), (), (0,), (0,), "i4")], x)
    assert out.dtype == np.int32
    assert int(out) == 30000
