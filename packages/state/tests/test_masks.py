"""Masks at every place of an index, known and traced, against NumPy; and masks without axes."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiveloop.core import grad, hessian, jit, vmap
from fiveloop.core.extend import as_value
from fiveloop.state import accumulate, freeze, new_ref, swap
from fiveloop.testing.core.misuse import assert_misuse

RNG = np.random.default_rng(0)
HOST = RNG.normal(size=(3, 4, 5))
FIRST, MIDDLE, LAST = (np.arange(n) % 3 != 1 for n in HOST.shape)
ALL = slice(None)
CHOSEN = np.array([True, False, True, True])
PLACES: dict[str, tuple[Any, ...]] = {
    "first": (FIRST,),
    "middle": (ALL, MIDDLE),
    "last": (ALL, ALL, LAST),
    "after dots": (..., LAST),
    "two axes after dots": (..., RNG.random((4, 5)) > 0.5),
    "two axes": (RNG.random((3, 4)) > 0.5,),
    "two axes, then an integer": (RNG.random((3, 4)) > 0.5, 2),
    "an integer, then two axes": (1, RNG.random((4, 5)) > 0.5),
    "three axes": (RNG.random((3, 4, 5)) > 0.5,),
    "then an integer": (FIRST, 2),
    "an integer and a slice before": (1, ALL, LAST),
    "a slice and an integer after": (FIRST, ALL, 2),
    "between integers": (0, MIDDLE, 1),
    "after a new axis": (None, FIRST),
    "before a new axis": (FIRST, None),
    "before a slice and a new axis": (FIRST, ALL, None),
    "before a new axis and an integer": (ALL, MIDDLE, None, 2),
    "between slices": (slice(0, 2), MIDDLE, slice(None, None, 2)),
    "after a reversed axis": (slice(None, None, -1), MIDDLE),
    "after an integer and a new axis": (0, None, MIDDLE),
}


def _set(ref: Any, index: Any, x: Any) -> None:
    ref[index] = x


def _add(ref: Any, index: Any, x: Any) -> None:
    ref[index] += x


def _multiply(ref: Any, index: Any, x: Any) -> None:
    ref[index] *= x


def _max(ref: Any, index: Any, x: Any) -> None:
    accumulate(ref, index, x, "max")


def _host_max(array: Any, index: Any, x: Any) -> None:
    array[index] = np.maximum(array[index], x)


WRITES = {
    "set": (_set, _set),
    "add": (_add, _add),
    "mul": (_multiply, _multiply),
    "max": (_max, _host_max),
}


def with_mask(index: tuple[Any, ...], mask: Any) -> tuple[Any, ...]:
    return tuple(mask if isinstance(i, np.ndarray) else i for i in index)


def mask_in(index: tuple[Any, ...]) -> Any:
    return next(i for i in index if isinstance(i, np.ndarray))


def shared_by_all(index: tuple[Any, ...]) -> Any:
    """Numbers with one element for all that the mask chooses."""
    one = np.zeros(mask_in(index).shape, np.bool_)
    one.flat[0] = True
    return RNG.normal(size=HOST[with_mask(index, one)].shape)


@pytest.mark.parametrize("name", PLACES)
def test_a_mask_at_any_place_writes_as_in_numpy(name: str) -> None:
    index = PLACES[name]
    values = np.asarray(3.0), shared_by_all(index)

    def run(mask: Any) -> list[Any]:
        out = []
        for ours, _ in WRITES.values():
            for x in values:
                ref = new_ref(HOST)
                ours(ref, with_mask(index, mask), x)
                out.append(ref[...])
        return [*out, as_value(HOST).at[with_mask(index, mask)].set(values[1])]

    want = []
    for _, theirs in WRITES.values():
        for x in values:
            want.append(HOST.copy())
            theirs(want[-1], index, x)
    for fun in (run, jit(run)):
        for got, expected in zip(fun(mask_in(index)), [*want, want[1]], strict=True):
            np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("name", [n for n, i in PLACES.items() if mask_in(i).ndim == 1])
def test_one_value_for_each_that_a_mask_chooses_from(name: str) -> None:
    index = PLACES[name]
    everywhere = with_mask(index, np.ones(mask_in(index).shape, np.bool_))
    x = RNG.normal(size=HOST[everywhere].shape)
    both = HOST.copy()
    both[everywhere] = x
    chosen = np.zeros(HOST.shape, np.bool_)
    chosen[index] = True

    @jit
    def run(mask: Any) -> Any:
        ref = new_ref(HOST)
        ref[with_mask(index, mask)] = x
        return ref[...]

    np.testing.assert_array_equal(run(mask_in(index)), np.where(chosen, both, HOST))


FLAGS: dict[str, tuple[Any, ...]] = {
    "true": (True,),
    "false": (False,),
    "NumPy's true": (np.bool_(True),),
    "NumPy's false": (np.bool_(False),),
    "an array without axes": (np.asarray(True),),
    "true and an integer": (True, 0),
    "a slice and true": (ALL, True),
    "an integer, a slice and true": (0, ALL, True),
    "false and true": (False, True),
    "true and a mask": (True, FIRST),
    "false and an integer": (False, 0),
    "integers and true": (np.asarray([0, 1]), True),
    "true, a new axis, an integer": (True, None, 1),
}


@pytest.mark.parametrize("name", FLAGS)
@pytest.mark.parametrize("wrap", [lambda f: f, jit], ids=["eager", "jit"])
def test_masks_without_axes(name: str, wrap: Callable[[Any], Any]) -> None:
    index = FLAGS[name]

    def run(init: Any) -> tuple[Any, ...]:
        ref = new_ref(init)
        before = ref[index]
        ref[index] = 7.0
        ref[index] += 1.0
        ref.at[index][...] *= 2.0
        return before, ref[...]

    want = HOST.copy()
    want[index] = 16.0
    before, after = wrap(run)(HOST)
    np.testing.assert_array_equal(before, HOST[index], strict=False)
    assert before.shape == HOST[index].shape
    np.testing.assert_array_equal(after, want)


@pytest.mark.parametrize("flag", [True, False])
def test_a_mask_without_axes_of_a_ref_without_axes(flag: bool) -> None:
    @jit
    def run(x: Any) -> tuple[Any, ...]:
        ref = new_ref(x)
        before = ref[flag]
        ref[flag] += 1.0
        return before, ref[...]

    before, after = run(2.0)
    assert before.shape == (int(flag),)
    assert float(after) == 2.0 + flag


@pytest.mark.parametrize("flag", [True, False])
def test_a_traced_bool_decides_whether_anything_is_written(flag: bool) -> None:
    @jit
    def run(flag: Any) -> Any:
        ref = new_ref(HOST)
        ref[flag] = 5.0
        ref[0, flag] += 1.0
        return ref[...]

    want = HOST.copy()
    want[flag] = 5.0
    want[0, flag] += 1.0
    np.testing.assert_array_equal(run(np.bool_(flag)), want)


def test_masks_of_each_lane_and_their_derivative() -> None:
    masks = RNG.random((6, 4)) > 0.5
    shares = RNG.normal(size=6)

    def run(array: Any, mask: Any, x: Any) -> Any:
        ref = new_ref(array)
        ref[:, mask] *= x
        ref[0, :, mask[0]] = 9.0
        return ref[...].sum()

    slopes = vmap(grad(run), in_axes=(None, 0, 0))(HOST, masks, shares)
    for slope, mask, share in zip(slopes, masks, shares, strict=True):
        want = np.ones(HOST.shape)
        want[:, mask] = share
        want[0, :, bool(mask[0])] = 0.0
        np.testing.assert_allclose(slope, want)


CHANGES: dict[str, tuple[Callable[[Any, Any], Any], Any, Any]] = {
    "-=": (operator.isub, np.float32, 3),
    "*=": (operator.imul, np.int8, 3),
    "/=": (operator.itruediv, np.float32, 4),
    "//=": (operator.ifloordiv, np.int32, 3),
    "%=": (operator.imod, np.uint8, 3),
    "**=": (operator.ipow, np.float32, 3),
    "&=": (operator.iand, np.int8, 3),
    "&= of bools": (operator.iand, np.bool_, False),
    "|=": (operator.ior, np.uint8, 3),
    "^=": (operator.ixor, np.bool_, True),
    "<<=": (operator.ilshift, np.int32, 3),
    ">>=": (operator.irshift, np.int32, 1),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_a_mask_chooses_is_changed_by_every_operator(name: str) -> None:
    change, dtype, x = CHANGES[name]
    array = np.arange(12).reshape(3, 4).astype(dtype)
    value = np.asarray(x, dtype)
    want = array.copy()
    want[:, CHOSEN] = change(want[:, CHOSEN], value)

    def run(mask: Any) -> Any:
        ref = new_ref(array)
        ref[:, mask] = change(ref[:, mask], value)
        return ref[...]

    for fun in (run, jit(run)):
        np.testing.assert_array_equal(fun(CHOSEN), want)


@pytest.mark.parametrize("change", [operator.itruediv, operator.imul, operator.ipow])
def test_what_a_mask_leaves_out_makes_no_nan_in_derivatives(change: Any) -> None:
    x, y = np.array([0.0, 2.0, 3.0]), np.array([0.0, 2.0, np.inf])
    fine = np.array([False, True, False])

    def run(x: Any, y: Any) -> Any:
        ref = new_ref(x)
        mask = y == 2.0
        ref[mask] = change(ref[mask], y)
        return freeze(ref).sum()

    slopes = jit(grad(run, argnums=(0, 1)))(x, y)
    bends = jit(hessian(run))(x, y)
    by_hand = grad(lambda a, b: change(a, b), argnums=(0, 1))(2.0, 2.0)
    for slope, one, outside in zip(slopes, by_hand, (1.0, 0.0), strict=True):
        np.testing.assert_allclose(slope, np.where(fine, one, outside), rtol=1e-6)
    assert np.isfinite(np.asarray(bends)).all()


def test_an_update_at_a_mask_makes_no_nan_in_derivatives_of_what_is_left_out() -> None:
    x, y = np.array([0.0, 2.0, 3.0]), np.array([np.inf, 2.0, np.nan])
    run = lambda x: x.at[x == 2.0].multiply(y).sum()
    assert jit(grad(run))(x).tolist() == [1.0, 2.0, 1.0]


REF = new_ref(np.zeros((3, 4), np.float32))
ROWS, COLUMNS = np.ones(3, np.bool_), np.ones(4, np.bool_)
MISUSES: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "two traced masks": (
        lambda: jit(lambda a, b: REF.__setitem__((a, b), 1.0))(ROWS, COLUMNS),
        IndexError,
        "expected a mask that is known only at run time to be the only array in an index, got Traced<bool[3]> beside "
        "another: NumPy pairs the positions that it names with those of the other, and their number is not static; "
        "combine masks first (`a[:, None] & b`), or index in two steps: `ref.at[i][mask] = x`",
    ),
    "a traced mask of another size": (
        lambda: jit(lambda m: REF.__setitem__((0, m), 1.0))(ROWS),
        IndexError,
        "expected a mask of shape (4,) for axis 1 of an array of shape (3, 4), got (3,)",
    ),
    "a value for each chosen element": (
        lambda: jit(lambda m: REF.__setitem__((slice(None), m), np.ones((3, 2))))(COLUMNS),
        ValueError,
        "cannot write a value of shape (3, 2) where a mask that is known only at run time chooses from shape (3, 4): "
        "expected a shape that broadcasts to (3, 1), for what all chosen elements share, or (3, 4), of which the "
        "elements at the mask are written",
    ),
    "swapped at a traced mask": (
        lambda: jit(lambda m: swap(REF, (slice(None), m), 1.0))(COLUMNS),
        TypeError,
        "expected a mask whose elements are known to read Ref{f32[3,4]} at it, got the traced mask Traced<bool[4]>: "
        "the size of the result must be static; read all, and use `where(mask, ref[...], other)`",
    ),
    "a part at a traced mask": (
        lambda: jit(lambda m: REF.at[:, m][...])(COLUMNS),
        TypeError,
        "`ref.at[mask]`: expected a mask whose elements are known to name a part of Ref{f32[3,4]}, got the traced mask "
        "Traced<bool[4]>: the size of a part must be static; write at the mask, `ref[mask] = x` or `ref[mask] += x`",
    ),
    "an array read at a traced mask": (
        lambda: jit(lambda m: as_value(np.zeros((3, 4)))[:, m])(COLUMNS),
        TypeError,
        "expected a mask whose elements are known, got the traced mask Traced<bool[4]>: the size of the result must be "
        "static; use `where`, or write with `x.at[mask].set(v)`",
    ),
}


@pytest.mark.parametrize(("call", "kind", "message"), MISUSES.values(), ids=MISUSES)
def test_misuse(call: Callable[[], object], kind: type[Exception], message: str) -> None:
    assert_misuse(call, kind, message)
