"""Reading and writing `x[index]` equals NumPy; run-time indices are clamped; bad ones are explained."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fiveloop.core import jit, vmap
from fiveloop.core.arrays.array import Array, Value, as_value, device_put
from fiveloop.core.extend import to_array
from fiveloop.core.index.access import cast_for_write, resolve
from fiveloop.core.index.ops import read_array
from fiveloop.core.index.parse import ds, normalize
from fiveloop.core.ir.avals import ShapedArray
from fiveloop.core.ir.indexer import At, Indexer, Pick, Span
from fiveloop.core.lower.dispatch import compiled
from fiveloop.core.primitives.elementwise import neg
from fiveloop.core.trace.stage import stage_closed

H = np.random.default_rng(0).standard_normal((4, 5, 6)).astype(np.float32)
A = np.array([0, 2, -1])
B = np.array([[1], [3]])
ALL = slice(None)
STATIC = [
    (),
    0,
    -1,
    ...,
    None,
    (ALL, 2),
    (slice(1, 3), slice(None, None, 2)),
    (slice(None, None, -1),),
    (..., slice(5, 0, -2)),
    (None, 1, ..., None),
    (slice(0, 0),),
    (slice(7, 2),),
    (slice(2, 3, -1), A),
    A,
    (ALL, A),
    (A, ALL, A),
    (0, ALL, A),
    (ALL, 0, A),
    (B, A),
    (ALL, B, A),
    (B, ALL, A),
    (A, None, A),
    (None, A, slice(1, None, 2)),
    (slice(None, None, -2), A, slice(2, 5)),
    (A[:0],),
    H[:, :, 0] > 0,
    (H[:, :, 0] > 0, slice(None, None, -1)),
    H > 0,
    (ALL, H[0] > 0),
    (H[:, 0, 0] > 9,),
]
UPDATES = {"add": np.add, "multiply": np.multiply, "max": np.maximum, "min": np.minimum}


def dynamic(i: int | list[int]) -> Array:
    """An index whose value a program does not know."""
    return device_put(np.asarray(i, np.int32))


def run(fun: Any, *args: np.ndarray) -> list[np.ndarray]:
    """A flat function's results, compiled as one program."""
    avals = [ShapedArray(a.shape, a.dtype) for a in args]
    values = [device_put(a) for a in args]
    return [np.asarray(out) for out in compiled(stage_closed(fun, avals)).run(values)]


def names(index: Any) -> str:
    """A readable test id."""
    return repr(index).replace("\n", "").replace(" ", "")[:50]


@pytest.mark.parametrize("index", STATIC, ids=names)
def test_reads_and_writes_equal_numpy(index: Any) -> None:
    want = H[index]
    v = np.random.default_rng(1).standard_normal(want.shape).astype(np.float32)

    def everything(x: Value, v: Value) -> list[Value]:
        return [x[index], x.at[index].set(v), *[getattr(x.at[index], k)(v) for k in UPDATES]]

    read, written, *updated = run(everything, H, v)
    assert read.shape == want.shape
    np.testing.assert_array_equal(read, want)
    expected = H.copy()
    expected[index] = v
    np.testing.assert_array_equal(written, expected)
    for got, ufunc in zip(updated, UPDATES.values(), strict=True):
        expected = H.copy()
        ufunc.at(expected, index, v)
        np.testing.assert_allclose(got, expected, rtol=1e-6)


@pytest.mark.parametrize("i", [-9, -4, -1, 0, 2, 3, 4, 11])
def test_a_run_time_index_counts_from_the_end_and_is_clamped(i: int) -> None:
    x, at = device_put(H), dynamic(i)
    low = int(np.clip(i + 4 if i < 0 else i, 0, 3))
    start = int(np.clip(i + 4 if i < 0 else i, 0, 2))
    np.testing.assert_array_equal(x[at], H[low])
    np.testing.assert_array_equal(x[at, :, A], H[low, :, A])
    np.testing.assert_array_equal(x[dynamic([i, 0])], H[[low, 0]])
    np.testing.assert_array_equal(x[ds(at, 2), 1:4:2, ::-1], H[start : start + 2, 1:4:2, ::-1])
    np.testing.assert_array_equal(x[ds(at, 2), A], H[start : start + 2, A])
    strided = [0, 2] if start == 0 else [1, 3]
    np.testing.assert_array_equal(x[ds(at, 2, 2), 0], H[strided, 0])


def test_writes_leave_out_what_lies_outside() -> None:
    x = device_put(np.zeros((4, 3), np.float32))
    far, deep = dynamic(9), dynamic([9, -9])
    np.testing.assert_array_equal(np.asarray(x.at[far].add(1))[:, 0], [0, 0, 0, 0])
    np.testing.assert_array_equal(np.asarray(x.at[deep].add(1))[:, 0], [0, 0, 0, 0])
    last = dynamic(3)
    np.testing.assert_array_equal(np.asarray(x.at[ds(far, 2)].set(1))[:, 0], [0, 0, 0, 0])
    np.testing.assert_array_equal(np.asarray(x.at[ds(last, 2)].set(1))[:, 0], [0, 0, 0, 1])
    np.testing.assert_array_equal(np.asarray(x.at[ds(last, 2, 2)].set(1))[:, 0], [0, 0, 0, 1])
    np.testing.assert_array_equal(np.asarray(x.at[ds(last, 2), A].max(1)).sum(1), [0, 0, 0, 2])


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint32", "int64", "uint64"])
def test_any_integer_dtype_is_an_index(dtype: str) -> None:
    x = device_put(np.arange(300, dtype=np.float32))
    known = np.asarray([3, 100], dtype)
    i = device_put(known)
    np.testing.assert_array_equal(x[known], [3, 100])
    np.testing.assert_array_equal(x[i], [3, 100])
    np.testing.assert_array_equal(x[i[1]], 100)
    if not dtype.startswith("u"):
        np.testing.assert_array_equal(x[neg(i)], [297, 200])


def test_positions_along_an_axis_beyond_int32_are_int64() -> None:
    shape, along = (3, 2**31 + 5), [Pick(), Pick()]
    places = resolve(shape, Indexer(tuple(along), (2,)), [dynamic([-1, 0]), dynamic([-1, 9])])
    assert [np.asarray(p).tolist() for p in places] == [[2, 0], [2**31 + 4, 9]]
    assert resolve(shape, Indexer((Pick(), At(0)), (2,)), [dynamic([-1, 0])])[0].dtype == np.int64


def test_duplicates_accumulate_and_the_last_set_wins() -> None:
    x, i = device_put(np.zeros(3, np.float32)), np.array([1, 1, 2, 1])
    v = device_put(np.array([1, 2, 4, 8], np.float32))
    np.testing.assert_array_equal(x.at[i].add(v), [0, 11, 4])
    np.testing.assert_array_equal(x.at[i].set(v), [0, 8, 4])


def test_a_traced_mask_writes_by_select_and_cannot_read() -> None:
    mask = H[:, :, 0] > 0
    (out,) = run(lambda x, m: [x.at[m].set(7)], H, mask)
    np.testing.assert_array_equal(out, np.where(mask[..., None], 7, H))
    with pytest.raises(TypeError, match="size of the result must be static"):
        run(lambda x, m: [x[m]], H, mask)


@pytest.mark.parametrize(
    ("index", "kind", "message"),
    [
        (4, IndexError, "index 4 is out of bounds for axis 0 of size 4"),
        ((0, -6), IndexError, "index -6 is out of bounds for axis 1 of size 5"),
        (np.array([0, 4]), IndexError, "index 4 is out of bounds for axis 0 of size 4"),
        ((0, 0, 0, 0), IndexError, r"at most 3 indices for an array of shape \(4, 5, 6\), got 4"),
        ((..., ...), IndexError, r"at most one `\.\.\.`"),
        ([0, 1], TypeError, r"got list \[0, 1\]; use a tuple"),
        (1.5, TypeError, "got float 1.5"),
        ("a", TypeError, "got str 'a'"),
        (np.array([0.5]), TypeError, r"integers or bools, got float64\[1\]"),
        (slice(0.0, 2), TypeError, "the start of a slice to be an int, got 0.0"),
        (np.array([True, False]), IndexError, r"a mask of shape \(4,\) for axis 0 .* got \(2,\)"),
        (
            (np.array([0, 1]), np.array([0, 1, 2])),
            IndexError,
            r"broadcast together, got \(2,\), \(3,\)",
        ),
        (ds(3, 2), IndexError, r"ds\(3, 2\) is out of bounds for axis 0 of size 4"),
        (ds(0, 5), IndexError, "a span that fits axis 0 of size 4, got 5"),
    ],
)
def test_bad_indices_are_explained(index: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message) as info:
        read_array(device_put(H), index)
    assert "test_indexing.py" in str(info.value)


def test_a_traced_slice_bound_is_refused() -> None:
    with pytest.raises(TypeError, match=r"use `ds\(start, size\)`"):
        run(lambda x, i: [x[i:]], H, np.asarray(1, np.int32))


def test_values_written_are_checked() -> None:
    x = device_put(np.zeros((2, 3), np.int32))
    with pytest.raises(TypeError, match="dtype f32 into an array of dtype i32"):
        x.at[0].set(1.5)
    with pytest.raises(ValueError, match=r"shape \(2,\) where the index selects shape \(3,\)"):
        x.at[0].set(np.zeros(2, np.int32))
    with pytest.raises(TypeError, match=r"immutable: use `x = x\.at\[index\]\.set\(v\)`"):
        x[0] = 1
    with pytest.raises(TypeError, match="numbers to combine by 'add'"):
        device_put(np.zeros(3, bool)).at[0].add(True)


def test_values_written_take_the_dtype_of_the_array() -> None:
    aval = ShapedArray((2,), np.float16)
    assert cast_for_write(aval, (2,), 1.5).aval == aval
    assert cast_for_write(aval, (2,), np.int32(3)).aval == aval
    with pytest.raises(TypeError, match="without loss"):
        cast_for_write(aval, (2,), 1j)


def test_the_normal_form_is_hashable_and_prints() -> None:
    indexer, operands = normalize((8, 8, 4), (dynamic(1), slice(2, 5)))
    assert indexer == Indexer((At(None), Span(2, 3), Span(0, 4)))
    assert len({indexer, normalize((8, 8, 4), (dynamic(2), slice(2, 5)))[0]}) == 1
    assert indexer.pretty(["i"], (8, 8, 4)) == "i, 2:5, :"
    assert indexer.result_shape == (3, 4) and indexer.is_block and len(operands) == 1
    spans = Indexer((Span(None, 3), Span(4, 3, -2), Pick()), pick_shape=(2,))
    assert spans.pretty(["s", "p"]) == "ds(s, 3), 4::-2, p" and not spans.is_block


def test_resolved_operands_are_equal_exactly_if_they_point_to_one_place() -> None:
    indexer, operands = normalize((5,), dynamic(-2))
    (same,) = resolve((5,), indexer, operands)
    assert same.dtype == np.int32
    np.testing.assert_array_equal(same, 3)
    (host,) = resolve((5,), indexer, [as_value(np.int64(-9))])
    np.testing.assert_array_equal(host, 0)


def test_static_reads_are_slices() -> None:
    text = jit(lambda x: x[1, ::2]).lower(np.zeros((4, 6), np.float32)).as_text()
    assert "slice" in text and "gather" not in text and "dynamic" not in text


def test_axes_side_by_side_that_are_picked_from_are_indexed_as_one() -> None:
    places = np.asarray([[2, 0], [1, 1]])
    picked = jit(vmap(lambda x, i: x[i]))
    x = H[0, :2]
    np.testing.assert_array_equal(picked(x, places), np.take_along_axis(x, places, 1))
    lowered = picked.lower(x, places).as_text()
    assert "tensor<12xf32>, tensor<2x2x1xi64>" in lowered and "batching_dims" not in lowered
    written = jit(vmap(lambda x, i: x.at[i].add(1.0, mode="promise_in_bounds")))(0 * x, places)
    np.testing.assert_array_equal(written, [[1, 0, 1, 0, 0, 0], [0, 2, 0, 0, 0, 0]])


@pytest.mark.parametrize("i", [2**64 - 1, 2**64 - 2, 2**63, 2**63 - 1, 2**40])
def test_an_unsigned_index_beyond_int64_is_beyond_the_end(i: int) -> None:
    x, at = as_value(np.arange(8.0)), to_array(as_value(np.uint64(i)))
    assert float(x[at]) == 7
    assert float(jit(lambda x, at: x[at])(x, at)) == 7
    np.testing.assert_array_equal(jit(lambda x, at: x[ds(at, 2)])(x, at), [6, 7])
    np.testing.assert_array_equal(vmap(lambda at: x[at])(at[None]), [7])
