"""Views: parts of Refs that are Refs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiveloop.core import closed_call, custom_vjp, grad, jit, make_jaxpr, vmap
from fiveloop.core.extend import as_value, to_array
from fiveloop.state import Ref, ds, freeze, new_ref, swap
from fiveloop.testing.core.misuse import assert_misuse

BASE = np.arange(60.0).reshape(5, 4, 3)
TWO = to_array(as_value(np.int32(2)))
OUTER: dict[str, tuple[Any, Any]] = {
    "slice": (np.s_[1:4], np.s_[1:4]),
    "backward": (np.s_[::-1], np.s_[::-1]),
    "stride": (np.s_[::2, 1:], np.s_[::2, 1:]),
    "column": (np.s_[:, 2], np.s_[:, 2]),
    "last": (np.s_[..., 1], np.s_[..., 1]),
    "new axis": (np.s_[None], np.s_[None]),
    "rows": (np.array([3, 0, 0]), np.array([3, 0, 0])),
    "columns": (np.s_[:, np.array([1, 2])], np.s_[:, np.array([1, 2])]),
    "span": (ds(TWO, 3), np.s_[2:5]),
    "span with a stride": (ds(TWO, 2, 2), np.s_[2:5:2]),
    "one at run time": (TWO, 2),
    "nothing": (np.s_[0:0], np.s_[0:0]),
}
INNER: list[Any] = [
    0,
    -1,
    np.s_[::-1],
    np.s_[1:],
    np.s_[..., 0],
    None,
    np.array([0, -1]),
    np.s_[:, np.array([0, 1, 0])],
    np.s_[np.array([0, 1]), :, np.array([1, 0])],
    np.s_[:, None, 0],
    np.s_[0, np.array([[0], [1]])],
]


@pytest.mark.parametrize("transform", [lambda f: f, jit])
@pytest.mark.parametrize("name", OUTER)
def test_a_view_of_a_view_is_one_index(name: str, transform: Callable[..., Any]) -> None:
    library, host = OUTER[name]
    possible = [index for index in INNER if _fits(BASE[host], index)]

    def run(ref: Any) -> list[Any]:
        return [ref.at[library].at[index][...] for index in possible]

    found = transform(run)(new_ref(BASE))
    for index, got in zip(possible, found, strict=True):
        want = BASE[host][index]
        assert got.shape == want.shape, index
        np.testing.assert_array_equal(np.asarray(got), want)


def _fits(x: Any, index: Any) -> bool:
    try:
        x[index]
    except IndexError:
        return False
    return True


def test_an_index_into_a_view_is_clamped_to_the_view() -> None:
    ref = new_ref(np.arange(8.0))
    read = jit(lambda part, i: (part[i], part[ds(i, 2)]))
    one, two = read(ref.at[2:5], 9)
    assert (float(one), two.tolist()) == (4.0, [3.0, 4.0])
    assert float(read(ref.at[2:5], -1)[0]) == 4.0
    assert float(read(ref.at[6:1:-2], 1)[0]) == 4.0


def test_a_view_is_a_ref_and_writes_to_the_ref() -> None:
    ref = new_ref(BASE)
    part = ref.at[1:3].at[..., 0]
    assert isinstance(part, Ref)
    assert (part.shape, str(part.dtype), part.ndim) == ((2, 4), "float64", 2)
    part[0] = 7.0
    part[:, 1] += 1.0
    old = swap(part, (1, 2), 9.0)
    want = BASE.copy()
    want[1, :, 0] = 7.0
    want[1:3, 1, 0] += 1.0
    want[2, 2, 0] = 9.0
    np.testing.assert_array_equal(np.asarray(ref[...]), want)
    assert float(old) == BASE[2, 2, 0]
    assert repr(new_ref(np.zeros(2)).at[1]) == "Ref([0. 0.], dtype=float64).at[1]"


def move(a: Any, b: Any) -> Any:
    """Works on two Refs."""
    a[0] = b[1] * 2.0
    b[0] += 1.0
    return a[...].sum()


@pytest.mark.parametrize(
    "transform", [lambda f: f, jit, closed_call, lambda f: jit(closed_call(f))]
)
def test_parts_that_lie_apart_go_in_together(transform: Callable[..., Any]) -> None:
    ref = new_ref(BASE)
    total = transform(move)(ref.at[0], ref.at[3:, ::2].at[-1])
    want = BASE.copy()
    want[0, 0] = want[4, 2] * 2.0
    want[4, 0] += 1.0
    np.testing.assert_array_equal(np.asarray(ref[...]), want)
    assert float(total) == want[0].sum()


def test_parts_of_one_ref_are_one_operand() -> None:
    ref = new_ref(np.zeros((3, 2), np.float32))
    jaxpr = make_jaxpr(lambda r: jit(move)(r.at[0], r.at[1]))(ref)
    (call,) = jaxpr.eqns[:1]
    assert len(call.invars) == 1


@pytest.mark.parametrize("axis", [0, 1, -1, None])
@pytest.mark.parametrize("transform", [lambda f: f, jit])
def test_lanes_over_a_view(axis: int | None, transform: Callable[..., Any]) -> None:
    ref = new_ref(BASE)
    size = 3 if axis is None else None

    def run(part: Any, x: Any) -> Any:
        before = part[...].sum()
        part[0] += x
        return before

    part = ref.at[1:4, :3, 1]
    outs = transform(vmap(run, in_axes=(axis, 0), axis_size=size))(part, np.arange(3.0))
    want = BASE.copy()
    lanes = [want[1:4, :3, 1]] * 3
    if axis is not None:
        lanes = [np.moveaxis(want[1:4, :3, 1], axis, 0)[k] for k in range(3)]
    befores = [lane.sum() for lane in lanes]
    for k, lane in enumerate(lanes):
        lane[0] += k
    np.testing.assert_array_equal(np.asarray(outs), befores)
    np.testing.assert_array_equal(np.asarray(ref[...]), want)


def test_lanes_that_only_read_a_view_leave_no_write() -> None:
    ref = new_ref(BASE)

    def total(w: Any) -> Any:
        return vmap(lambda part: w * part[...])(ref.at[1:3]).sum()

    assert float(grad(total)(2.0)) == BASE[1:3].sum()
    assert float(jit(grad(total))(2.0)) == BASE[1:3].sum()


def test_a_custom_rule_takes_views() -> None:
    @custom_vjp
    def scaled(part: Any, w: Any) -> Any:
        part[0] += 1.0
        return w * 3.0

    def forward(part: Any, w: Any) -> Any:
        return scaled(part, w), None

    scaled.defvjp(forward, lambda _, ct: (None, ct * 10.0))
    ref = new_ref(BASE)
    slope = grad(lambda w: scaled(ref.at[ds(TWO, 2), 1], w))(1.0)
    assert (float(slope), ref[2, 1].tolist()) == (10.0, (BASE[2, 1] + 1).tolist())


R = new_ref(np.zeros((4, 3), np.float32))
SO = "so that what is written through one would change the other"
CASES: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "one Ref twice": (
        lambda: jit(move)(R, R),
        ValueError,
        f"jit of move: argument `a` and argument `b` are one Ref{{f32[4,3]}}, {SO}; pass it once",
    ),
    "one Ref in a tree": (
        lambda: closed_call(lambda t: None)({"x": [R], "y": R}),
        ValueError,
        f"closed_call of <lambda>: argument `t`['x'][0] and argument `t`['y'] are one Ref{{f32[4,3]}}, {SO}; pass it "
        "once",
    ),
    "parts that overlap": (
        lambda: jit(move)(R.at[0:2], b=R.at[1:]),
        ValueError,
        "jit of move: argument `a` and argument `b` are parts of one Ref that overlap, Ref{f32[4,3]}.at[0:2, :] and "
        f"Ref{{f32[4,3]}}.at[1:4, :], {SO}; pass parts that lie apart",
    ),
    "a Ref and its part": (
        lambda: vmap(move, (None, 0))(R, R.at[0]),
        ValueError,
        "vmap of move: argument `a` and argument `b` are parts of one Ref that overlap, Ref{f32[4,3]} and "
        f"Ref{{f32[4,3]}}.at[0, :], {SO}; pass parts that lie apart",
    ),
    "parts that may overlap": (
        lambda: jit(lambda i: jit(move)(R.at[i], R.at[ds(i, 2), 1]))(0),
        ValueError,
        "jit of move: argument `a` and argument `b` may overlap: they are Ref{f32[4,3]}.at[i, :] and "
        f"Ref{{f32[4,3]}}.at[ds(i, 2), 1] of one Ref, and their indices are known only at run time, {SO}; pass the "
        "Ref once, and the indices beside it",
    ),
    "parts of a differentiated function": (
        lambda: grad(lambda x, a, b: x)(1.0, R.at[0], R.at[:, 1]),
        ValueError,
        "grad of <lambda>: argument `a` and argument `b` are parts of one Ref that overlap, Ref{f32[4,3]}.at[0, :] "
        f"and Ref{{f32[4,3]}}.at[:, 1], {SO}; pass parts that lie apart",
    ),
    "an argument that is closed over": (
        lambda: jit(lambda part: part[0] + R[0, 0])(R.at[1]),
        ValueError,
        "jit of <lambda>: argument `part` is Ref{f32[4,3]}.at[1, :], which the function also closes over, so that "
        "what is written through one would be lost; pass it, or close over it",
    ),
    "a part frozen": (
        lambda: freeze(R.at[0]),
        TypeError,
        "freeze: expected a Ref that was made here, got one of type Ref{f32[3]}, which is a part of another; freeze "
        "that one, or read the part: `part[...]`",
    ),
    "out of bounds of a view": (
        lambda: R.at[1:3][2],
        IndexError,
        "index 2 is out of bounds for axis 0 of size 2",
    ),
    "a view out of bounds": (
        lambda: R.at[4],
        IndexError,
        "index 4 is out of bounds for axis 0 of size 4",
    ),
    "a view written": (
        lambda: R.at.__setitem__(0, 1.0),
        TypeError,
        "`ref.at` names parts of a Ref of type Ref{f32[4,3]}, and is not written: write `ref[index] = x`",
    ),
    "a view added to": (
        lambda: R.at[0].__iadd__(1.0),
        TypeError,
        "a Ref of type Ref{f32[3]} is no number to add to: write `ref[index] += x`, or, on a part, `part[...] += x`",
    ),
    "a Ref as an index": (
        lambda: R[new_ref(np.int32(1))],
        TypeError,
        "expected an index, got Ref{i32[]}; read a Ref first: `ref[...]`",
    ),
    "a traced slice": (
        lambda: jit(lambda i: R.at[i : i + 2])(1),
        TypeError,
        "expected the start of a slice of axis 0 to be known, got the traced value Traced<i32*[]>; use `ds(start, "
        "size)` for a run-time start, or if it comes from an argument, name that one in static_argnums",
    ),
    "a traced mask read": (
        lambda: jit(lambda m: R[m] + 1.0)(np.ones(4, np.bool_)),
        TypeError,
        "expected a mask whose elements are known to read Ref{f32[4,3]} at it, got the traced mask Traced<bool[4]>: "
        "the size of the result must be static; read all, and use `where(mask, ref[...], other)`",
    ),
    "a traced mask swapped": (
        lambda: jit(lambda m: swap(R, m, 1.0))(np.ones(4, np.bool_)),
        TypeError,
        "expected a mask whose elements are known to read Ref{f32[4,3]} at it, got the traced mask Traced<bool[4]>: "
        "the size of the result must be static; read all, and use `where(mask, ref[...], other)`",
    ),
    "a mask that does not fit": (
        lambda: R.__setitem__(np.ones(3, np.bool_), 1.0),
        IndexError,
        "expected a mask of shape (4,) for axis 0 of an array of shape (4, 3), got (3,)",
    ),
}


@pytest.mark.parametrize(("call", "kind", "message"), CASES.values(), ids=CASES)
def test_bad_use(call: Callable[[], object], kind: type[Exception], message: str) -> None:
    assert_misuse(call, kind, message)


def summed_twice(mask: Any) -> Any:
    ref = new_ref(np.zeros(3))
    part = ref[mask]
    part += 1.0
    part += 2.0
    part -= 0.5
    ref[mask] = part
    ref[mask] *= 2.0
    return ref[...]


def test_what_a_traced_mask_chooses_may_be_changed_twice() -> None:
    mask = np.asarray([True, False, True])
    for fun in (summed_twice, jit(summed_twice)):
        np.testing.assert_array_equal(np.asarray(fun(mask)), [5.0, 0.0, 5.0])


def written_elsewhere(mask: Any) -> None:
    ref, other = new_ref(np.zeros(3)), new_ref(np.ones(3))
    part = ref[mask]
    part += 1.0
    other[mask] = part


def written_late(mask: Any) -> None:
    ref = new_ref(np.zeros(3))
    part = ref[mask]
    ref[...] = 5.0
    part += 1.0
    ref[mask] = part


def changed_late(mask: Any) -> None:
    ref = new_ref(np.zeros(3))
    part = ref[mask]
    ref[...] = 5.0
    part *= 2.0


@pytest.mark.parametrize("fun", [written_elsewhere, written_late, changed_late])
def test_what_a_traced_mask_chooses_belongs_back_at_once(fun: Any) -> None:
    assert_misuse(
        lambda: jit(fun)(np.asarray([True, False, True])),
        TypeError,
        "what a traced mask chooses from Ref{f64[3]} can only be changed and written back at the same mask, before any "
        "other write; write `ref[mask] += x`, or read all and use `where(mask, ref[...] + x, other)`",
        within=fun,
    )


def test_a_sum_with_what_was_read_before_a_write_is_no_accumulation() -> None:
    total = new_ref(np.ones(()))

    @jit
    def late(x: Any) -> None:
        y = total[...]
        total[...] = 5.0
        y += x
        total[...] = y

    late(2.0)
    assert float(total[...]) == 3.0


def test_a_write_through_a_view_leaves_out_what_lies_outside_of_the_view() -> None:
    def write(x: Any, i: Any) -> Any:
        finals = []
        for k in range(3):
            ref = new_ref(x)
            [ref.at[i], ref.at[1:3], ref.at[ds(i - 1, 2)]][k][... if k != 1 else i - 1] = 9.0
            finals.append(freeze(ref))
        for at in [(0, i - 2), (slice(None), i - 3)]:
            ref = new_ref(x)
            ref.reshape((2, 2) if at[0] == 0 else (4, 1))[at] = 9.0
            finals.append(freeze(ref))
        ref = new_ref(x)
        ref.at[None][i - 3] = 9.0
        return [*finals, freeze(ref)]

    single, inner, span, row, column, lane = jit(write)(np.zeros(4), 4)
    for left_out in (single, inner, row, column, lane):
        np.testing.assert_array_equal(left_out, np.zeros(4))
    np.testing.assert_array_equal(span, [0, 0, 0, 9])
    _, inner, _, row, column, lane = jit(write)(np.zeros(4), 3)
    np.testing.assert_array_equal(inner, np.zeros(4))
    np.testing.assert_array_equal(row, [0, 9, 0, 0])
    np.testing.assert_array_equal(column, [9, 9, 9, 9])
    np.testing.assert_array_equal(lane, [9, 9, 9, 9])


@pytest.mark.parametrize("k", [0, -1, 1, -2])
def test_what_has_no_axes_is_left_out_by_index_too(k: int) -> None:
    def write(k: Any, picks: Any) -> Any:
        refs: Any = new_ref([1.0] * 3)
        refs[0].reshape(1)[k] = 2.0
        refs[1].reshape(1, 1)[k, 0] += 2.0
        refs[2].at[None][k] = 2.0
        part = new_ref(np.zeros(3))
        part.at[0].reshape(1)[picks] += np.array([2.0, 4.0])
        part.at[2].reshape(1)[picks] = np.array([2.0, 4.0])
        part.at[1].reshape(1, 1)[0, k] = 2.0
        old = swap(new_ref(5.0).reshape(1), k, 2.0)
        return [ref[...] for ref in refs], part[...], old

    inside = k in (0, -1)
    scalars, part, old = jit(write)(k, np.array([k, 3], np.int32))
    want = [2.0, 3.0, 2.0] if inside else [1.0] * 3
    np.testing.assert_array_equal(np.stack([np.asarray(x) for x in scalars]), want)
    np.testing.assert_array_equal(part, [2.0 * inside] * 3)
    assert float(old) == 5.0


def _writes_in_parts(k: Any) -> list[Any]:
    """Parts of parts at a run-time index, written and read; what was read comes last."""
    element, window, taken, relaid = (new_ref(np.arange(10.0)) for _ in range(4))
    part = element.at[1:5].at[k]
    part[...] = 90.0
    window.at[ds(k, 3)].at[1][...] += 90.0
    old = closed_call(lambda part, x: swap(part, ..., x))(taken.at[2:4].at[k].at[None], 90.0)
    relaid.reshape(2, 5).at[1].at[k].reshape(1, 1).at[0, k][...] += 90.0
    return [element[...], window[...], taken[...], relaid[...], part[...], old]


@pytest.mark.parametrize("k", [0, 1, 3, 4, 7, 9, 12, -1, -2, -5])
def test_a_part_of_a_part_is_read_where_it_fits_and_written_where_it_is(k: int) -> None:
    want = np.tile(np.arange(10.0), (4, 1))

    def fit(k: int, size: int) -> int:
        return min(max(k + size if k < 0 else k, 0), size - 1)

    held = float(want[0, 1 + fit(k, 4)]), float(want[2, 2 + fit(k, 2)])
    if -4 <= k < 4:
        want[0, 1 + k % 4] = 90.0
        held = 90.0, held[1]
    first = k + 10 if k < 0 else k
    if 0 <= first + 1 < 10:
        want[1, first + 1] += 90.0
    if -2 <= k < 2:
        want[2, 2 + k % 2] = 90.0
    if k in (0, -1):
        want[3, 5 + k % 5] += 90.0
    *contents, now, old = jit(_writes_in_parts)(k)
    np.testing.assert_array_equal(np.stack([np.asarray(x) for x in contents]), want)
    assert (float(now), float(np.squeeze(old))) == held
