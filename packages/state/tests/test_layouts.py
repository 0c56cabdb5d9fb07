"""Refs in another layout: `ref.reshape(shape)`, `ref.transpose(axes)` and `ref.T` are Refs that write to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiveloop.core import ds, grad, jit, make_jaxpr, vmap
from fiveloop.core.extend import as_value, to_array
from fiveloop.state import Ref, freeze, new_ref, swap
from fiveloop.testing.core.misuse import assert_misuse

BASE = np.arange(24.0).reshape(2, 3, 4)
TWO = to_array(as_value(np.int32(2)))
LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "flat": lambda x: x.reshape(-1),
    "ravel": lambda x: x.ravel(),
    "merged": lambda x: x.reshape(6, 4),
    "merged behind": lambda x: x.reshape((2, 12)),
    "split": lambda x: x.reshape(2, 3, 2, 2),
    "across": lambda x: x.reshape(8, 3),
    "ones": lambda x: x.reshape(1, 2, 3, 1, 4, 1),
    "reversed": lambda x: x.T,
    "turned": lambda x: x.transpose(1, 2, 0),
    "turned by a tuple": lambda x: x.transpose((0, 2, 1)),
    "turned and flat": lambda x: x.T.reshape(-1, 2),
    "flat and turned": lambda x: x.reshape(4, 6).T.reshape(2, 12).T,
    "nothing": lambda x: x.reshape(2, 3, 4).transpose(0, 1, 2),
}
INDICES: list[tuple[Any, Any]] = [
    (..., ...),
    (1, 1),
    (TWO, 2),
    ((slice(None), 1), np.s_[:, 1]),
    ((TWO, -1), (2, -1)),
    (np.s_[1:, ::-1], np.s_[1:, ::-1]),
    (ds(TWO, 2), np.s_[2:4]),
    (np.array([1, 0, 1]), np.array([1, 0, 1])),
    (np.s_[:, np.array([[1], [0]])], np.s_[:, np.array([[1], [0]])]),
    (np.s_[0, ..., np.array([1, 0])], np.s_[0, ..., np.array([1, 0])]),
    (np.s_[None, 1:2], np.s_[None, 1:2]),
    (np.s_[0:0], np.s_[0:0]),
]


def _fits(x: Any, host: Any, library: Any) -> bool:
    try:
        x[host]
    except IndexError:
        return False
    return not isinstance(library, type(ds(0, 1))) or len(x) >= 4


@pytest.mark.parametrize("name", LAYOUTS)
def test_an_index_into_a_layout_is_one_into_the_ref(name: str) -> None:
    numbers = LAYOUTS[name](np.arange(24).reshape(BASE.shape))
    possible = [(i, h) for i, h in INDICES if _fits(numbers, h, i)]

    def run(ref: Any) -> list[Any]:
        out = []
        for k, (index, _) in enumerate(possible):
            view = LAYOUTS[name](ref)
            out.append(view[index] if k % 2 else view.at[index][...])
            view[index] += k + 1.0
        return out

    ref, want, wanted = new_ref(BASE), BASE.ravel().copy(), []
    found = jit(run)(ref)
    for k, (_, host) in enumerate(possible):
        wanted.append(want[numbers[host]])
        np.add.at(want, numbers[host], k + 1.0)
    for got, expected in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(np.asarray(got), expected)
        assert got.shape == expected.shape
    np.testing.assert_array_equal(np.asarray(ref[...]).ravel(), want)


def test_a_layout_is_a_ref_and_writes_to_the_ref() -> None:
    ref = new_ref(BASE)
    columns = ref.reshape(6, 4).T
    assert isinstance(columns, Ref)
    assert (columns.shape, str(columns.dtype), ref.T.T.shape) == ((4, 6), "float64", ref.shape)
    columns[0] = 7.0
    columns.at[1:3].T[0] = 8.0
    old = swap(columns, (3, 5), 9.0)
    want = BASE.copy()
    host = want.reshape(6, 4).T
    host[0] = 7.0
    host[1:3].T[0] = 8.0
    host[3, 5] = 9.0
    np.testing.assert_array_equal(np.asarray(ref[...]), want)
    assert float(old) == 23.0
    columns[columns[...] > 8.5] = 0.0
    assert float(ref[...].max()) == 8.0
    small = new_ref(np.zeros((1, 2)))
    assert repr(small.at[0].reshape(2, 1).T) == (
        "Ref([[0. 0.]], dtype=float64).at[0, :].reshape(2, 1).transpose(1, 0)"
    )
    assert small.reshape(1, 2) is small


def test_one_element_through_a_layout_is_one_element() -> None:
    def write(ref: Any, i: Any, x: Any) -> None:
        ref.reshape(-1)[i] = x
        ref.T[i, 0, 1] += x
        ref.reshape(8, 3)[i, 2] = x

    jaxpr = make_jaxpr(write)(new_ref(BASE), TWO, TWO.astype(np.float64))
    assert str(jaxpr) == ONE_ELEMENT


ONE_ELEMENT = """\
{ lambda a:Ref{f64[2,3,4]} b:i32[] c:f64[] ; Accum<a> Write<a> ; let
    d:i32[] = resolve_index[size=24 window=None dtype=i32] b
    e:i32[] = div d 12
    f:i32[] = rem d 12
    g:i32[] = div f 4
    h:i32[] = rem f 4
    i:i32[] = resolve_index[size=24 window=None dtype=i32] b
    j:bool[] = greater_equal i 0
    k:bool[] = less i 24
    l:bool[] = bitwise_and j k
    m:i32[] = select l e 2
    a[m?, g?, h?] <- c
    a[1, 0, b?] += c
    n:i32[] = resolve_index[size=8 window=None dtype=i32] b
    o:i32[] = mul n 3
    p:i32[] = add o 2
    q:i32[] = div p 12
    r:i32[] = rem p 12
    s:i32[] = div r 4
    t:i32[] = rem r 4
    u:i32[] = resolve_index[size=8 window=None dtype=i32] b
    v:bool[] = greater_equal u 0
    w:bool[] = less u 8
    x:bool[] = bitwise_and v w
    y:i32[] = select x q 2
    a[y?, s?, t?] <- c
  in () }"""


@pytest.mark.parametrize("transform", [lambda f: f, jit])
def test_gradients_through_layouts(transform: Callable[[Any], Any]) -> None:
    def total(x: Any) -> Any:
        ref = new_ref(x)
        ref.T[0] *= 2.0
        ref.reshape(-1)[TWO] = ref.reshape(6, 4)[1, 1] * 3.0
        return (freeze(ref) * BASE).sum()

    weights = BASE.copy()
    weights[:, :, 0] *= 2.0
    weights[0, 0, 2], weights[0, 1, 1] = 0.0, weights[0, 1, 1] + 3.0 * BASE[0, 0, 2]
    np.testing.assert_array_equal(np.asarray(transform(grad(total))(BASE)), weights)
    lanes = transform(vmap(grad(total)))(np.stack([BASE, -BASE]))
    np.testing.assert_array_equal(np.asarray(lanes), [weights, weights])


def half(part: Any) -> Any:
    """Works on one Ref."""
    part[0] *= 0.5
    return (part[...] ** 2).sum()


@pytest.mark.parametrize("transform", [lambda f: f, jit])
def test_calls_take_layouts(transform: Callable[[Any], Any]) -> None:
    ref = new_ref(BASE)
    total = transform(half)(ref.T)
    want = BASE.copy()
    want[:, :, 0] *= 0.5
    assert float(total) == (want**2).sum()
    np.testing.assert_array_equal(np.asarray(ref[...]), want)
    slope = transform(grad(half))(ref.reshape(4, 6))
    scale = np.full((4, 6), 2.0)
    scale[0] = 0.5
    np.testing.assert_array_equal(np.asarray(slope), want.reshape(4, 6) * scale)
    want.reshape(4, 6)[0] *= 0.5
    part = ref.transpose(1, 2, 0)
    sums = transform(vmap(half, in_axes=2))(part)
    want[:, 0] *= 0.5
    np.testing.assert_array_equal(np.asarray(sums), (want**2).sum((1, 2)))
    np.testing.assert_array_equal(np.asarray(ref[...]), want)


@pytest.mark.parametrize("transform", [lambda f: f, jit])
def test_methods_are_the_functions(transform: Callable[[Any], Any]) -> None:
    def run(ref: Any) -> list[Any]:
        out = [ref.get(), ref.get(1), ref.at[0].get(idx=(1,)), ref.T.get((0, slice(1)))]
        assert ref.set(5.0, (0, 1)) is None
        ref.at[1].set(value=6.0)
        assert ref.T.addupdate(1.0, idx=0) is None
        ref.addupdate(0.5, ())
        return [*out, ref.swap(np.arange(3.0), 0), ref.T.swap(2.0)]

    ref = new_ref(np.arange(6.0).reshape(2, 3))
    found = transform(run)(ref)
    want = [np.arange(6.0).reshape(2, 3), [3.0, 4.0, 5.0], 1.0, [0.0]]
    want += [[1.5, 5.5, 2.5], [[0.0, 7.5], [1.0, 6.5], [2.0, 6.5]]]
    for got, expected in zip(found, want, strict=True):
        np.testing.assert_array_equal(np.asarray(got), expected)
    assert ref[...].tolist() == [[2.0] * 3] * 2
    assert {"get", "set", "swap", "addupdate"} <= {*dir(ref)} & {*dir(Ref)}


def test_one_element_in_a_shape_may_be_named_several_times_or_never() -> None:
    ref = new_ref(np.arange(4.0))
    part = ref.at[TWO].reshape(1)
    part[np.array([0, 0, -1])] += 1.0
    part[np.array([], np.int32)] = 7.0
    part[0:0] = 7.0
    again = ref.at[1:2].reshape(()).reshape(1, 1)
    assert again[np.array([0, 0])].tolist() == [[1.0], [1.0]]
    assert (part[np.array([0, 0])].tolist(), ref[...].tolist()) == ([5.0, 5.0], [0, 1, 5, 3])


R = new_ref(np.zeros((4, 3), np.float32))
CASES: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "another size": (
        lambda: R.reshape(5, 2),
        ValueError,
        "reshape: expected a shape of 12 elements for an array of shape (4, 3), got (5, 2)",
    ),
    "no such size": (
        lambda: R.T.reshape(5, -1),
        ValueError,
        "reshape: cannot find the dim -1 in (5, -1) for an array of shape (3, 4)",
    ),
    "an axis twice": (
        lambda: jit(lambda r: r.transpose(0, 0))(R),
        ValueError,
        "transpose: expected each axis once in `axes`, got (0, 0)",
    ),
    "layouts that overlap": (
        lambda: jit(lambda a, b: None)(R, R.T),
        ValueError,
        "jit of <lambda>: argument `a` and argument `b` are parts of one Ref that overlap, Ref{f32[4,3]} and "
        "Ref{f32[4,3]}.transpose(1, 0), so that what is written through one would change the other; pass parts that "
        "lie apart",
    ),
    "a layout frozen": (
        lambda: freeze(R.T),
        TypeError,
        "freeze: expected a Ref that was made here, got one of type Ref{f32[3,4]}, which is a part of another; freeze "
        "that one, or read the part: `part[...]`",
    ),
    "what does not fit a layout": (
        lambda: R.reshape(2, 6).set(np.zeros(3, np.float32)),
        ValueError,
        "cannot write a value of shape (3,) where the index selects shape (2, 6): it does not broadcast to it",
    ),
    "an array of positions in a Ref without axes": (
        lambda: new_ref(1.0).reshape(1)[np.array([0])],
        IndexError,
        "expected an integer or a slice for a new axis of a view, got []; index the Ref without `None` first",
    ),
    "another method of an array": (
        lambda: R.T.sum(),
        TypeError,
        "sum: expected `x` to be an array, got Ref{f32[3,4]}; read a Ref first: `ref[...]`",
    ),
}


@pytest.mark.parametrize(("call", "kind", "message"), CASES.values(), ids=CASES)
def test_bad_use(call: Callable[[], object], kind: type[Exception], message: str) -> None:
    assert_misuse(call, kind, message)
