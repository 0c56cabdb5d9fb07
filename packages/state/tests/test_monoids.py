"""Accumulation by every monoid: values, derivatives, batches and messages, with every kind of index."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiveloop.core import RuleError, ds, grad, jit, jvp, linear_transpose, make_jaxpr, vmap
from fiveloop.core.extend import as_value
from fiveloop.state import accumulate, addupdate, freeze, new_ref
from fiveloop.testing.core.golden import assert_prints
from fiveloop.testing.core.misuse import assert_misuse
from fiveloop.testing.state.laws import check_function, check_law_lower_discharged

Array = np.ndarray[Any, Any]
UFUNCS = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
}
SMOOTH = ["add", "mul", "max", "min"]
RNG = np.random.default_rng(0)
SHAPE = (4, 3)
INDICES: dict[str, Callable[[Any, Any], Any]] = {
    "all": lambda i, k: ...,
    "static": lambda i, k: (1, -1),
    "traced": lambda i, k: (i, i),
    "slice": lambda i, k: (slice(None, None, -2), slice(1, 3)),
    "span": lambda i, k: ds(i, 2),
    "picks": lambda i, k: k,
    "picks and span": lambda i, k: (k, slice(0, 2)),
    "picks and position": lambda i, k: (k, i),
    "picks behind a new axis": lambda i, k: (None, slice(1, 3), k),
}
PICKS = np.array([2, 0, 2, 2], np.int32)
every_index = pytest.mark.parametrize("index", list(INDICES.values()), ids=list(INDICES))


def shares(index: Callable[[Any, Any], Any], dtype: Any = np.float64) -> Array:
    """Something to be accumulated, no two elements alike."""
    place: Any = _concrete(index)
    shape = np.zeros(SHAPE)[place].shape
    count = int(np.prod(shape, dtype=int))
    return (RNG.permutation(count).reshape(shape) * 3 % 17).astype(dtype)


def _concrete(index: Callable[[Any, Any], Any]) -> Any:
    found = index(1, PICKS)
    return slice(1, 3) if type(found).__name__ == "DynamicSpan" else found


def applied(index: Callable[[Any, Any], Any], monoid: str) -> Callable[..., Any]:
    def fun(x: Any, share: Any, i: Any, k: Any) -> Any:
        ref = new_ref(x)
        accumulate(ref, index(i, k), share, monoid)
        return freeze(ref)

    return fun


@every_index
@pytest.mark.parametrize("monoid", UFUNCS)
def test_values(monoid: str, index: Callable[[Any, Any], Any]) -> None:
    dtype: Any = np.int32 if monoid in ("and", "or") else np.float32
    x, share = RNG.integers(-9, 9, SHAPE).astype(dtype), shares(index, dtype)
    want = x.copy()
    UFUNCS[monoid].at(want, _concrete(index), share)
    fun = applied(index, monoid)
    for run in (fun, jit(fun)):
        np.testing.assert_array_equal(np.asarray(run(x, share, np.int32(1), PICKS)), want)


@pytest.mark.parametrize("monoid", ["and", "or"])
def test_bools(monoid: str) -> None:
    x, share = np.array([True, True, False, False]), np.array([True, False, True])
    want = x.copy()
    UFUNCS[monoid].at(want, [0, 0, 3], share)

    def fun(x: Any, share: Any) -> Any:
        ref = new_ref(x)
        accumulate(ref, np.array([0, 0, 3]), share, monoid)
        return freeze(ref)

    for run in (fun, jit(fun), lambda *xs: vmap(fun, axis_size=2, in_axes=None)(*xs)[1]):
        np.testing.assert_array_equal(np.asarray(run(x, share)), want)


@every_index
@pytest.mark.parametrize("monoid", SMOOTH)
def test_the_laws_hold(monoid: str, index: Callable[[Any, Any], Any]) -> None:
    x, share = RNG.standard_normal(SHAPE), shares(index) / 8 - 1.01
    s = check_function(applied(index, monoid), x, share, np.int32(1), PICKS)
    want = x.copy()
    UFUNCS[monoid].at(want, _concrete(index), share)
    np.testing.assert_allclose(s.run()[0], want)


@pytest.mark.parametrize("monoid", SMOOTH)
def test_compiled_derivatives(monoid: str) -> None:
    def fun(x: Any, share: Any, dot: Any) -> Any:
        run = applied(INDICES["picks"], monoid)
        return jvp(lambda v: run(x, v, 0, PICKS), (share,), (dot,))

    x, share = RNG.standard_normal(SHAPE), shares(INDICES["picks"]) / 8 - 1.01
    check_law_lower_discharged(check_function(fun, x, share, np.ones_like(share)))


def both_gradients(monoid: str, x: Any, share: Any, places: Any) -> list[list[float]]:
    """The gradients of a weighted sum with respect to the contents and to the shares."""
    weights = as_value(np.array([1.0, 10.0, 100.0]))

    def loss(x: Any, share: Any) -> Any:
        ref = new_ref(x)
        accumulate(ref, places, share, monoid)
        return (freeze(ref) * weights).sum()

    given = [as_value(np.array(v)) for v in (x, share)]
    return [np.asarray(jit(grad(loss, k))(*given)).tolist() for k in (0, 1)]


def test_the_first_of_equal_extremes_has_the_derivative() -> None:
    places = np.array([0, 0, 1, 1, 1])
    for monoid, sign in (("max", 1.0), ("min", -1.0)):
        x, share = [0.0, 2.0, 5.0], [3.0, 3.0, 2.0, 1.0, 2.0]
        found = both_gradients(monoid, np.array(x) * sign, np.array(share) * sign, places)
        assert found == [[0, 10, 100], [1, 0, 0, 0, 0]]


def test_the_old_element_stays_if_it_is_equal() -> None:
    assert both_gradients("max", [1.0, 2.0, 3.0], [1.0, 2.5], np.array([0, 1])) == [
        [1, 0, 100],
        [0, 10],
    ]
    assert both_gradients("max", [1.0, 2.0, 3.0], [1.0, 2.5, 3.0], ...) == [[1, 0, 100], [0, 10, 0]]


def test_products_at_zeros() -> None:
    places = np.array([0, 0, 1, 1, 1])
    x, share = [2.0, 3.0, 5.0], [0.0, 7.0, 0.0, 0.0, 4.0]
    assert both_gradients("mul", x, share, places) == [[0, 0, 100], [14, 0, 0, 0, 0]]


def test_second_derivatives_of_products_at_zeros() -> None:
    places = np.array([0, 0, 0])

    def product(share: Any) -> Any:
        ref = new_ref(np.array([2.0]))
        accumulate(ref, places, share, "mul")
        return freeze(ref)[0]

    x = as_value(np.array([0.0, 0.0, 3.0]))
    dots = [as_value(row) for row in np.eye(3)]
    rows = [np.asarray(jvp(grad(product), (x,), (d,))[1]) for d in dots]
    np.testing.assert_array_equal(rows, [[0, 6, 0], [6, 0, 0], [0, 0, 0]])


def test_a_nan_stays() -> None:
    x, share = np.array([np.nan, 1.0, 2.0]), np.array([5.0, np.nan, 3.0])
    for index in (..., np.arange(3)):
        ref = new_ref(x)
        accumulate(ref, index, share, "max")
        np.testing.assert_array_equal(np.asarray(freeze(ref)), [np.nan, np.nan, 3.0])


# under vmap


@pytest.mark.parametrize("monoid", UFUNCS)
@pytest.mark.parametrize("batched", ["nothing", "value", "index", "both"])
def test_all_lanes_accumulate_into_a_ref_that_they_share(monoid: str, batched: str) -> None:
    values = np.array([[3, 5], [6, 9], [3, 12]], np.int32)
    places = np.array([[0, 2], [1, 1], [2, 0]], np.int32)
    value_dim, place_dim = (0 if batched in (k, "both") else None for k in ("value", "index"))
    want = np.array([7, 13, 11], np.int32)
    ref = new_ref(want)
    for lane in range(3):
        value = values[lane] if value_dim == 0 else values[0]
        place = places[lane] if place_dim == 0 else places[0]
        UFUNCS[monoid].at(want, place, value)
    args = values if value_dim == 0 else values[0], places if place_dim == 0 else places[0]
    run = lambda v, k: accumulate(ref, k, v, monoid)
    vmap(run, in_axes=(value_dim, place_dim), axis_size=3)(*args)
    np.testing.assert_array_equal(np.asarray(ref[...]), want)


def test_lanes_with_their_own_refs_accumulate_apart() -> None:
    x, share = np.zeros((2, 3), np.float32), np.array([1.0, 2.0], np.float32)

    def run(x: Any, v: Any) -> Any:
        ref = new_ref(x)
        accumulate(ref, 1, v, "max")
        accumulate(ref, 1, 3.0, "mul")
        return freeze(ref)

    np.testing.assert_array_equal(np.asarray(vmap(run)(x, share)), [[0, 3, 0], [0, 6, 0]])


def test_equal_lanes_give_the_derivative_to_the_first() -> None:
    def loss(v: Any) -> Any:
        ref = new_ref(np.float32(0))
        vmap(lambda x: accumulate(ref, ..., x, "max"))(v)
        return freeze(ref)

    v = as_value(np.array([1, 4, 4, 2, 4], np.float32))
    assert np.asarray(grad(loss)(v)).tolist() == [0, 1, 0, 0, 0]


# what is seen, and what is refused


def test_how_it_prints() -> None:
    def fun(ref: Any, x: Any) -> None:
        accumulate(ref, 0, x, "max")
        accumulate(ref, ..., x, "mul")
        addupdate(ref, 1, x)

    assert_prints(
        make_jaxpr(fun)(new_ref(np.zeros(2, np.float32)), 1.0),
        """
        { lambda a:Ref{f32[2]} b:f32*[] ; Accum<a, max> Accum<a, mul> Accum<a> ; let
            c:f32[] = convert[dtype=f32] b
            a[0] max= c
            d:f32[] = convert[dtype=f32] b
            e:f32[2] = broadcast_in_dim[shape=(2,) dims=()] d
            a[:] *= e
            f:f32[] = convert[dtype=f32] b
            a[1] += f
          in () }
        """,
    )


NAMES = "'add', 'mul', 'max', 'min', 'and', 'or'"
REFUSED: dict[str, tuple[Any, str, type[Exception], str]] = {
    "an unknown monoid": (
        np.float32,
        "sum",
        ValueError,
        f"accumulate: expected a monoid among {NAMES}, got 'sum'",
    ),
    "logic on floats": (
        np.float32,
        "or",
        TypeError,
        "accumulate: expected a Ref of bools or integers for the monoid 'or', got Ref{f32[2]}; compare first, and "
        "keep what the comparison gives in a Ref of bools: `accumulate(ref, i, x > 0, 'or')`",
    ),
    "the greatest bool": (
        np.bool_,
        "max",
        TypeError,
        "accumulate: expected a Ref of integers or floats for the monoid 'max', got Ref{bool[2]}; combine bools by "
        "'and' or 'or', or count them in a Ref of integers",
    ),
    "sums of bools": (
        np.bool_,
        "add",
        TypeError,
        "accumulate: expected a Ref of integers or floats or complex numbers for the monoid 'add', got Ref{bool[2]}; "
        "combine bools by 'and' or 'or', or count them in a Ref of integers",
    ),
    "the least complex number": (
        np.complex64,
        "min",
        TypeError,
        "accumulate: expected a Ref of integers or floats for the monoid 'min', got Ref{c64[2]}; complex numbers have "
        "no order: keep `abs(x)`, or real and imaginary parts, in Refs of their own",
    ),
}


@pytest.mark.parametrize("transform", [lambda f: f, jit], ids=["eager", "jit"])
@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str, transform: Callable[..., Any]) -> None:
    dtype, monoid, kind, message = REFUSED[case]
    ref = new_ref(np.zeros(2, dtype))
    assert_misuse(
        lambda: transform(lambda: accumulate(ref, 0, np.zeros((), dtype), monoid))(), kind, message
    )


def test_a_differentiated_value_into_a_constant_ref() -> None:
    ref = new_ref(np.float32(0))

    def fun(x: Any) -> Any:
        accumulate(ref, ..., x, "max")
        return x

    assert_misuse(
        lambda: grad(fun)(1.0),
        TypeError,
        "accumulate: a value under differentiation is written to a Ref that is not differentiated, so its derivative "
        "would be lost; pass the Ref's contents into the differentiated function and make the Ref there, or write "
        "`stop_gradient(x)`",
        within=fun,
    )


def test_lanes_that_add_the_same_to_small_integers_wrap_around() -> None:
    ref = new_ref(np.zeros(2, np.int8))
    vmap(lambda x: addupdate(ref, 0, 1))(np.zeros(300))
    assert np.asarray(ref[...]).tolist() == [300 - 256, 0]


def test_no_lanes_and_no_places_change_nothing() -> None:
    ref = new_ref(np.ones(3, np.float32))
    accumulate(ref, np.zeros(0, int), np.zeros(0, np.float32), "mul")
    vmap(lambda x: accumulate(ref, 0, x, "max"))(np.zeros(0, np.float32))
    assert np.asarray(ref[...]).tolist() == [1, 1, 1]


def test_a_product_by_what_is_known_is_linear() -> None:
    factors = np.array([3.0, 5.0], np.float32)

    def scaled(v: Any, monoid: str) -> Any:
        ref = new_ref(v)
        accumulate(ref, np.array([0, 0]), factors, monoid)
        return freeze(ref)

    ones = np.ones(2, np.float32)
    (ct,) = linear_transpose(lambda v: scaled(v, "mul"), ones)(ones)
    assert np.asarray(ct).tolist() == [15, 1]
    with pytest.raises(
        RuleError, match="`accumulate` by 'min' has no transpose here: it is not linear"
    ):
        linear_transpose(lambda v: scaled(v, "min"), ones)(ones)


@pytest.mark.parametrize("monoid", SMOOTH)
@pytest.mark.parametrize("at", [-4, 3, 2**31 - 1])
@pytest.mark.parametrize("share", [np.nan, -np.inf, 0.0, 3.0])
def test_what_lies_outside_changes_no_bit(monoid: str, at: int, share: float) -> None:
    x = np.array([-0.0, np.inf, np.nan], np.float32)
    for old in (x, x[::-1].copy(), -x):

        def fun(old: Any, i: Any, share: Any) -> Any:
            ref = new_ref(old)
            accumulate(ref, i, share, monoid)
            return freeze(ref)

        got = jit(fun)(old, np.int32(at), np.float32(share))
        np.testing.assert_array_equal(np.asarray(got).view(np.int32), old.view(np.int32))
    # XLA takes zero and minus zero for minus zero where it knows the zero.
    zeros = np.zeros(3, np.float32)
    got = jit(lambda i, share: fun(zeros, i, share))(np.int32(at), np.float32(share))
    np.testing.assert_array_equal(np.signbit(np.asarray(got)), False)
