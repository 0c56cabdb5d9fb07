"""Calls of jitted functions with NumPy arrays and numbers: nothing is misread, whatever was called before."""

from __future__ import annotations

import enum
import itertools
import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fiveloop.core import Array, Value, jit, make_jaxpr
from fiveloop.core.arrays import as_value, device_put
from fiveloop.core.extend import to_array

DTYPES = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
]


class Level(enum.IntEnum):
    LOW = 3


class Own(np.ndarray):
    pass


NUMBERS: list[Any] = [
    *(True, False, 0, 3, -(2**31), 2**31 - 1, 2**31, -(2**31) - 1, 2**63 - 1, -(2**63), Level.LOW),
    *(0.0, -0.0, 1.5, 0.1, 1e-320, 1e300, -1e300, 3.4028235e38, 3.40282357e38),
    *(math.inf, math.nan, 1 + 2j, complex(1e300, -0.0), complex(math.nan, math.inf)),
    *[np.dtype(d).type(3) for d in DTYPES],
    *(np.float32(-0.0), np.float64(1e300), ml_dtypes.bfloat16(1.5)),
]
BASE = np.arange(24).reshape(4, 6)
HOST_ARRAYS: list[Any] = [
    *[BASE.astype(d) for d in DTYPES],
    *[BASE.astype(d).astype(np.dtype(d).newbyteorder(">")) for d in DTYPES[2:]],
    *(
        BASE.T,
        BASE[::2, ::-1],
        BASE.astype("f4").T,
        BASE.astype("f4")[::-2],
        np.asfortranarray(BASE),
    ),
    *(np.float32(2).reshape(()), np.zeros((0, 3), "f4"), np.zeros(0), np.array(-0.0)),
    *(BASE.astype(ml_dtypes.bfloat16), BASE.astype("f4").view(Own)),
    *(np.ones(20_000, "f4"), np.ones(20_000, ">f4"), np.broadcast_to(np.float32(2), (3, 4))),
]


def assert_same(got: Value, leaf: Any) -> None:
    want = as_value(leaf)
    assert got.aval is want.aval, (got.aval, want.aval)
    a, b = np.asarray(got), np.asarray(to_array(want))
    assert a.tobytes() == b.tobytes() or np.array_equal(a, b, equal_nan=True), (a, b)
    assert np.array_equal(np.signbit(a.real), np.signbit(b.real)) or a.dtype.kind not in "fc"


@pytest.fixture(scope="module")
def identity() -> Any:
    return jit(lambda *args, **kwargs: (args, kwargs))


@pytest.mark.parametrize("leaves", [NUMBERS, HOST_ARRAYS], ids=["numbers", "arrays"])
def test_every_leaf_arrives_as_it_is(identity: Any, leaves: list[Any]) -> None:
    # All go through one function, so a signature that two of them share would give the program of another.
    for _ in range(3):
        for leaf in leaves:
            ((got,), _) = identity(leaf)
            assert_same(got, leaf)


def test_leaves_of_all_kinds_may_stand_together(identity: Any) -> None:
    array = device_put(np.ones(2, "f4"))
    for _ in range(3):
        for leaf in (1.5, 3, 2**40, True, np.float64(2.0), BASE, BASE.astype(">i4"), 1e300, 1j):
            ((first, held), named) = identity(leaf, {"a": array, "b": [leaf, None]}, key=leaf)
            for got in (first, held["b"][0], named["key"]):
                assert_same(got, leaf)
            assert type(held["a"]) is type(array)
            ((one, two), _) = identity(array, leaf)
            assert_same(one, array)
            assert_same(two, leaf)


def test_numbers_that_are_equal_are_told_apart_by_type(identity: Any) -> None:
    for _ in range(2):
        for one in (1, 1.0, True, np.float32(1), np.int32(1), np.array(1, "f4"), 1 + 0j):
            assert_same(identity(one)[0][0], one)
            assert_same(identity(k=[one])[1]["k"][0], one)


ALIKE: list[list[Any]] = [
    [3, -(2**31), 2**31, -(2**40), True, np.int64(3)],
    [1.5, 1e300, np.float64(0.1), np.float32(1.5)],
    [1j, np.complex128(0.1j)],
    [True, np.bool_(False)],
]


@pytest.mark.parametrize(
    "pair", [pair for leaves in ALIKE for pair in itertools.permutations(leaves, 2)], ids=str
)
def test_a_number_is_not_taken_for_another_that_came_first(pair: tuple[Any, Any]) -> None:
    # C++ has one type for some of them.
    given = jit(lambda x: x)
    for leaf in (*pair, *pair, pair[1], pair[0]):
        assert_same(given(leaf), leaf)


def test_named_arguments_stand_in_any_order_and_are_not_taken_for_others() -> None:
    told = jit(lambda a, b=10.0, c=100.0: (a, b, c))
    x = np.arange(3, dtype="f4")
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        *(((), {"a": x}), ((x,), {}), ((1,), {"b": 2}), ((1, 2), {}), ((1,), {"c": 2})),
        *(((), {"c": 3, "b": 2, "a": x}), ((), {"a": x, "b": 2, "c": 3}), ((x, 2, 3), {})),
        *(((x, 2), {"c": 3}), ((x,), {"c": 3.0, "b": True}), ((x,), {"b": [2.0], "c": 3})),
    ]
    for (args, kwargs), _ in itertools.product(calls, range(3)):
        want = {"b": 10.0, "c": 100.0, **dict(zip("abc", args, strict=False)), **kwargs}
        for got, name in zip(told(*args, **kwargs), "abc", strict=True):
            wanted = want[name][0] if isinstance(want[name], list) else want[name]
            assert_same(got[0] if isinstance(got, list) else got, wanted)


@pytest.mark.parametrize(
    "leaf",
    [
        *(np.ma.masked_array([1.0, 2.0], [True, False]), np.array(["a"]), np.array([None])),
        *(np.array([1], "M8[s]"), np.ones(2, np.longdouble), np.ones(2, [("a", "f4")]), "text"),
    ],
    ids=lambda x: str(getattr(x, "dtype", x)),
)
def test_what_holds_no_numbers_is_refused_also_later(leaf: Any) -> None:
    f = jit(lambda t: t)
    f({"a": np.ones(2, "f4")})
    for _ in range(2):
        for arg in ({"a": leaf}, leaf):
            with pytest.raises(TypeError, match="jit of <lambda>: argument `t`"):
                f(arg)


def test_an_integer_beyond_64_bits_is_refused(identity: Any) -> None:
    identity(1)
    for x in (2**63, -(2**63) - 1, 10**30):
        with pytest.raises(OverflowError, match="does not fit int64"):
            identity(x)
        with pytest.raises(OverflowError, match="does not fit int64"):
            identity([x])


@pytest.mark.parametrize("count", [5, 1_000, 100_000])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_memory_that_is_written_after_the_call_changes_no_result(count: int, dtype: str) -> None:
    f = jit(lambda t: (t[0] + 1, t[1] * 2))
    x = np.ones(count, dtype)
    outs = []
    for k in range(6):
        x[:] = k
        outs.append(f([x, x]))
        x[:] = -1
    for k, (a, b) in enumerate(outs):
        np.testing.assert_array_equal(np.asarray(a), np.full(count, k + 1, dtype))
        np.testing.assert_array_equal(np.asarray(b), np.full(count, k * 2, dtype))


@pytest.mark.parametrize("count", [3, 1_024, 16_000])
def test_calls_in_flight_in_several_threads_read_their_own_memory(count: int) -> None:
    f = jit(lambda x, y: x * 2 + y)

    def work(first: int) -> list[tuple[int, Value]]:
        x, outs = np.empty(count, np.float32), []
        for k in range(first, first + 60):
            x[:] = k
            outs.append((k, f(x, x)))
            x[:] = -1
        return outs

    with ThreadPoolExecutor(4) as pool:
        for k, out in itertools.chain(*pool.map(work, range(0, 800, 100))):
            np.testing.assert_array_equal(np.asarray(out), np.full(count, 3 * k, np.float32))


def test_a_function_is_traced_once_for_each_type_whoever_gives_it() -> None:
    traces = []

    def scaled(x: Any, scale: Any = 2.0) -> Any:
        traces.append(x.aval)
        return x * scale

    f = jit(scaled)
    x = np.ones(3, "f4")
    for _ in range(3):
        for given in (x, device_put(x), x.astype(">f4"), x[::-1], x.view(Own)):
            assert f(given).dtype == np.float32
    assert len(traces) == 1
    for k in range(3):
        f(x, float(k))
        f(x, scale=float(k))
    assert len(traces) == 3
    assert np.asarray(f(x, 3.0)).tolist() == [3.0] * 3


def test_static_and_donated_arguments_stand_beside_numbers() -> None:
    f = jit(lambda x, how, y: x + y if how[0] == 0 else x - y, static_argnums=1)
    x = np.ones(3, "f4")
    for _ in range(3):
        for how, want in (((0, "a"), 3.0), ((1, "a"), -1.0), ((0.0, "a"), 3.0), ((1.0, "a"), -1.0)):
            assert np.asarray(f(x, how, 2.0)).tolist() == [want] * 3
            assert np.asarray(f(x, y=2.0, how=how)).tolist() == [want] * 3
    signs = jit(lambda x, s: x * math.copysign(1.0, s[0]), static_argnums=1)
    for arg in (x, device_put(x)):
        for _ in range(2):
            assert float(signs(arg, (0.0,))[0]) == 1.0
            assert float(signs(arg, (-0.0,))[0]) == -1.0
    given = jit(lambda x, y: x + y, donate_argnums=0)
    for _ in range(3):
        assert np.asarray(given(x, 1.0)).tolist() == [2.0] * 3
        assert np.asarray(given(device_put(x), x)).tolist() == [2.0] * 3
    assert x.tolist() == [1.0] * 3


def test_numbers_go_fast_after_the_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    f = jit(lambda x, y: x + y)
    x = device_put(np.ones(3, "f4"))
    calls = [(x, 1.5), (x, np.ones(3, "f4")), (x, 3), (1.5, 2), (np.ones(3), 2.0), (x, x)]
    for args in calls * 2:
        f(*args)
    monkeypatch.setattr(f, "_miss", None)
    monkeypatch.setattr(f, "_entry", None)
    for args in calls:
        assert type(f(*args)) is type(x)


@pytest.mark.parametrize("count", [1, 20])
def test_trees_of_arrays_and_python_numbers_are_read_by_cpp(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    f = jit(lambda tree: sum(tree["arrays"]) * tree["number"])
    tree = {"arrays": [device_put(np.ones(3, "f4"))] * count, "number": 1.5}
    f(tree)
    monkeypatch.setattr(f, "_miss", None)
    monkeypatch.setattr(f._numpy, "run", None)
    for number in (2.5, -1.0):
        assert f({**tree, "number": number}).tolist() == [count * number] * 3


def test_errors_from_a_fast_call_show_the_users_frames_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("FIVELOOP_TRACEBACK")
    f = jit(lambda x: x)
    f(1.0)
    f(1.0)
    with pytest.raises(TypeError) as caught:
        f("text")
    assert [str(entry.path) for entry in caught.traceback] == [__file__]


def test_a_traced_call_takes_numbers_too() -> None:
    f = jit(lambda x, y: x * y)
    f(np.ones(2, "f4"), 2.0)
    jaxpr = make_jaxpr(lambda x: f(x, 2.0))(np.ones(2, "f4"))
    assert len(jaxpr.eqns) == 1
    assert isinstance(f(np.ones(2, "f4"), 2.0), Array)
