"""Operations that read and write parts of arrays, against NumPy."""

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from fiveloop.core.backend import hlo
from fiveloop.core.backend.hlo import Builder, IRValue

Program = Callable[..., list[np.ndarray]]


def test_dynamic_slices_are_clamped(program: Program) -> None:
    x = np.arange(20, dtype=np.float32).reshape(4, 5)
    update = np.full((2, 3), -1, np.float32)
    i, j = np.array(9, np.int32), np.array(1, np.int32)

    def write(b: Builder, x: IRValue, u: IRValue, i: IRValue, j: IRValue) -> list[IRValue]:
        scalar = hlo.reshape(b, hlo.slice(b, x, (0, 0), (1, 1), (1, 1)), ())
        return [
            hlo.dynamic_slice(b, x, [i, j], (2, 3)),
            hlo.dynamic_update_slice(b, x, u, [i, j]),
            hlo.dynamic_slice(b, scalar, [], ()),
            hlo.dynamic_update_slice(b, scalar, hlo.constant(b, 7, (), "f4"), []),
        ]

    part, whole, scalar, seven = program(write, x, update, i, j)
    np.testing.assert_array_equal(part, x[2:4, 1:4])
    want = x.copy()
    want[2:4, 1:4] = -1
    np.testing.assert_array_equal(whole, want)
    assert (float(scalar), float(seven)) == (0, 7)


def test_gather_of_rows_elements_and_windows(program: Program) -> None:
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    rows = np.array([[3, 0], [1, 9]], np.int32)
    pairs = np.array([[1, 5], [3, 2], [0, 0]], np.int32)

    def write(b: Builder, x: IRValue, rows: IRValue, pairs: IRValue) -> list[IRValue]:
        return [
            hlo.gather(
                b, x, rows,
                offset_dims=(2,), collapsed_slice_dims=(0,), start_index_map=(0,),
                index_vector_dim=2, slice_sizes=(1, 6),
            ),
            hlo.gather(
                b, x, pairs,
                offset_dims=(), collapsed_slice_dims=(0, 1), start_index_map=(0, 1),
                index_vector_dim=1, slice_sizes=(1, 1),
            ),
            hlo.gather(
                b, x, pairs,
                offset_dims=(0, 2), collapsed_slice_dims=(), start_index_map=(0, 1),
                index_vector_dim=1, slice_sizes=(2, 3),
            ),
        ]  # fmt: skip

    got_rows, got_elements, got_windows = program(write, x, rows, pairs)
    np.testing.assert_array_equal(got_rows, x[np.minimum(rows, 3)])
    np.testing.assert_array_equal(got_elements, x[pairs[:, 0], pairs[:, 1]])
    starts = [(min(i, 2), min(j, 3)) for i, j in pairs]
    want = np.stack([x[i : i + 2, j : j + 3] for i, j in starts], axis=1)
    np.testing.assert_array_equal(got_windows, want)


def test_gather_and_scatter_lane_by_lane(program: Program) -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    idx = np.array([[1], [3], [0]], np.int32)
    new = np.array([-1, -2, -3], np.float32)

    def write(b: Builder, x: IRValue, idx: IRValue, new: IRValue) -> list[IRValue]:
        read = hlo.gather(
            b, x, idx,
            offset_dims=(), collapsed_slice_dims=(1,), operand_batching_dims=(0,),
            start_indices_batching_dims=(0,), start_index_map=(1,), index_vector_dim=1,
            slice_sizes=(1, 1), indices_are_sorted=True,
        )  # fmt: skip
        written = hlo.scatter(
            b, x, idx, new,
            update_window_dims=(), inserted_window_dims=(1,), input_batching_dims=(0,),
            scatter_indices_batching_dims=(0,), scatter_dims_to_operand_dims=(1,),
            index_vector_dim=1, unique_indices=True,
        )  # fmt: skip
        return [read, written]

    read, written = program(write, x, idx, new)
    lanes = np.arange(3)
    np.testing.assert_array_equal(read, x[lanes, idx[:, 0]])
    want = x.copy()
    want[lanes, idx[:, 0]] = new
    np.testing.assert_array_equal(written, want)


SCATTERS: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray], None]] = {
    "add": np.add.at,
    "mul": np.multiply.at,
    "max": np.maximum.at,
    "min": np.minimum.at,
}


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "u1", ml_dtypes.bfloat16, "c8"])
def test_scatter_combines_and_leaves_out_what_does_not_fit(program: Program, dtype: str) -> None:
    x = np.array([1, 2, 3, 4]).astype(dtype)
    idx = np.array([[0], [2], [2], [7]], np.int32)
    new = np.array([5, 1, 7, 9]).astype(dtype)
    kinds = [k for k in SCATTERS if x.dtype.kind != "c" or k in ("add", "mul")]

    def write(b: Builder, x: IRValue, idx: IRValue, new: IRValue) -> list[IRValue]:
        return [
            hlo.scatter(
                b, x, idx, new,
                update_window_dims=(), inserted_window_dims=(0,),
                scatter_dims_to_operand_dims=(0,), index_vector_dim=1, kind=kind,
            )
            for kind in kinds
        ]  # fmt: skip

    for kind, out in zip(kinds, program(write, x, idx, new), strict=True):
        want = x.copy()
        SCATTERS[kind](want, idx[:3, 0], new[:3])
        np.testing.assert_array_equal(out, want, err_msg=kind)


def test_scatter_of_whole_rows(program: Program) -> None:
    x = np.zeros((4, 3), np.float32)
    idx = np.array([2, 0], np.int32)
    new = np.arange(6, dtype=np.float32).reshape(2, 3)

    def write(b: Builder, x: IRValue, idx: IRValue, new: IRValue) -> list[IRValue]:
        return [
            hlo.scatter(
                b, x, idx, new,
                update_window_dims=(1,), inserted_window_dims=(0,),
                scatter_dims_to_operand_dims=(0,), index_vector_dim=1,
            )
        ]  # fmt: skip

    (out,) = program(write, x, idx, new)
    x[idx] = new
    np.testing.assert_array_equal(out, x)
