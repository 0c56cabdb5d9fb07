"""At the edges of what dtypes and shapes allow, the functions equal NumPy's."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiveloop import nn
from fiveloop import numpy as fnp
from fiveloop.core import grad, hessian, jit, jvp, make_jaxpr, vmap
from fiveloop.state import new_ref
from fiveloop.testing.core.gradcheck import check_grads
from fiveloop.testing.core.misuse import assert_misuse

NP: Any = np  # its types are called with lists
F = NP.float32
H = np.full((3, 300), 300, np.float16)
B = np.array([True, False, True])
BOTH = np.array([True, True, True])
C = np.array([1 + 2j, 1 - 1j, -2 + 3j, complex(np.nan, 1), 0], np.complex64)
D = np.array([1 + 0j, 1 - 1j, 4 - 3j, 2, complex(0, np.nan)], np.complex64)
SIGNED = F([-0.0, 0.0, 4.0, -4.0, 1.0, -1.0, np.inf, 3.0, 0.0, -3.0])
DIVISOR = F([2.0, -2.0, -2.0, 2.0, 0.0, 0.0, 2.0, np.inf, 0.0, np.inf])

CALLS: dict[str, Callable[[Any], Any]] = {
    "digitize down": lambda m: m.digitize(F([0.5, 1, 1.5, 2.5, 3.5]), F([3, 2, 1])),
    "digitize down right": lambda m: m.digitize(F([0.5, 1, 1.5, 3]), F([3, 2, 1]), right=True),
    "digitize no bins": lambda m: m.digitize(F([0.5, 1]), F([])),
    "searchsorted nan": lambda m: m.searchsorted(F([1, 2, np.nan]), F([np.nan, 2])),
    "searchsorted nan right": lambda m: m.searchsorted(
        F([1, 2, np.nan]), F([np.nan, 2]), side="right"
    ),
    "searchsorted no nan": lambda m: m.searchsorted(F([1, 2, 3]), F([np.nan, 2]), side="right"),
    "mean of half": lambda m: m.mean(H, axis=1),
    "mean of many": lambda m: m.mean(np.ones(70000, np.float16)),
    "mean of half where": lambda m: m.mean(H, where=H > 0),
    "var of half": lambda m: m.var(H * NP.float16([[1], [2], [3]]) / 9, axis=0),
    "average of many": lambda m: m.average(np.ones(70000, np.float16)),
    "floor_divide": lambda m: m.floor_divide(SIGNED, DIVISOR),
    "mod": lambda m: m.mod(SIGNED, DIVISOR),
    "hypot": lambda m: m.hypot(F([np.inf, np.inf, 1, np.nan]), F([np.inf, np.nan, -np.inf, 1])),
    "mod by zero": lambda m: m.mod(NP.int8([5, -5]), NP.int8(0)),
    "mod by zero unsigned": lambda m: m.mod(NP.uint8([5, 0]), NP.uint8([0, 2])),
    "fmod by zero": lambda m: m.fmod(NP.int32([5, -5]), NP.int32([0, 3])),
    "round complex": lambda m: m.round(NP.complex64([1.26 + 2.7j])),
    "round complex places": lambda m: m.round(NP.complex64([1.26 + 2.74j]), 1),
    "rint complex": lambda m: m.rint(NP.complex64([1.26 + 2.7j])),
    "log2 complex": lambda m: m.log2(NP.complex64([0, 2j])),
    "log10 complex": lambda m: m.log10(NP.complex64([0, 10j])),
    "vecdot": lambda m: m.vecdot(F([[1, 2], [3, 4]]), F([1, 1])),
    "fabs": lambda m: m.fabs(NP.int8([-128, 3])).astype(F),
    "argwhere of none": lambda m: m.argwhere(F(0)),
    "argwhere of one": lambda m: m.argwhere(F(3)),
    "trace of none": lambda m: m.trace(np.ones((0, 3), F)),
    "diagonal of none": lambda m: m.diagonal(np.ones((4, 0, 3), F), 0, 1, 2),
    "diag of none": lambda m: m.diag(np.ones((2, 3), F), 7),
    "median of none": lambda m: m.median(np.ones((0, 2), F), axis=0),
    "median of none kept": lambda m: m.median(np.ones((0, 2), F), keepdims=True),
    "median over axes": lambda m: m.median(F(np.arange(24) % 7).reshape(2, 4, 3), axis=(0, -1)),
    "median over axes kept": lambda m: m.median(np.ones((2, 4, 3), F), axis=(2, 0), keepdims=True),
    "median over no axes": lambda m: m.median(F([3, 1, 2]), axis=()),
    "median of inf": lambda m: m.median(F([np.inf, -np.inf, np.inf])),
    "var of fewer": lambda m: m.var(np.ones((2, 0), F), axis=1, ddof=1),
    "std of fewer": lambda m: m.std(F([1, 2]), ddof=3),
    "var where": lambda m: m.var(SIGNED[:6].reshape(2, 3), axis=1, ddof=1, where=B),
    "std where nothing": lambda m: m.std(F([[1, 2], [3, 4]]), axis=0, where=B[:2]),
    "var complex where": lambda m: m.var(C[:3], where=B),
    "sum initial": lambda m: m.sum(F([[1, 2, 3]]), axis=1, initial=2, where=B),
    "prod initial": lambda m: m.prod(np.ones((0, 3), F), axis=0, keepdims=True, initial=3),
    "max initial": lambda m: m.max(F([[1, 2, 3], [7, 8, -9]]), axis=1, initial=2, where=~B),
    "min initial": lambda m: m.min(np.ones((2, 0), F), axis=1, initial=5),
    "max complex initial": lambda m: m.max(C[:3], axis=0, initial=0, keepdims=True),
    "all where": lambda m: m.all(F([[1, 0, 3], [0, 1, 2]]), axis=1, where=B),
    "any where": lambda m: m.any(F([[0, 1, 0], [0, 0, 2]]), axis=1, where=B),
    "take wrap": lambda m: m.take(F([[1, 2], [3, 4]]), np.array([-5, 3, 4]), mode="wrap"),
    "take clip": lambda m: m.take(F([[1, 2], [3, 4]]), np.array([-5, 3]), axis=1, mode="clip"),
    "diff prepend": lambda m: m.diff(
        F([[1, 4], [9, 5]]), axis=0, prepend=2, append=np.ones((1, 2), F)
    ),
    "diff append twice": lambda m: m.diff(F([[1, 4], [9, 5]]), 2, append=3.5),
    "diff no times": lambda m: m.diff(F([1, 4]), 0, append=3.5),
    "meshgrid sparse": lambda m: m.meshgrid(F([1, 2, 3]), F([4, 5]), sparse=True)[0],
    "meshgrid sparse ij": lambda m: m.meshgrid(F([1, 2]), F([4]), sparse=True, indexing="ij")[1],
    "square of bools": lambda m: m.square(B),
    "power of bools": lambda m: m.power(B, BOTH),
    "power of bools int": lambda m: m.power(B, 2),
    "floor_divide of bools": lambda m: m.floor_divide(B, BOTH),
    "mod of bools": lambda m: m.mod(B, BOTH),
    "fmod of bools": lambda m: m.fmod(B, BOTH),
    "divmod of bools": lambda m: m.stack(m.divmod(B, BOTH)),
    "left_shift of bools": lambda m: m.left_shift(B, BOTH),
    "right_shift of bools": lambda m: m.right_shift(B, BOTH),
    "nan_to_num complex": lambda m: m.nan_to_num(NP.complex64([complex(np.nan, np.inf), 1j])),
    "max complex": lambda m: m.max(C[:3]),
    "min complex": lambda m: m.min(C[:3].reshape(3, 1), axis=0, keepdims=True),
    "nanmin complex": lambda m: m.nanmin(C),
    "nanmax complex": lambda m: m.nanmax(D.reshape(1, -1), axis=0, keepdims=True)[:, :4],
    "clip beyond": lambda m: m.clip(NP.uint8([5, 200]), 0, 255),
    "clip complex": lambda m: m.clip(C, D[1], None),
}
COMPLEX = "maximum minimum fmax fmin less less_equal greater greater_equal".split()


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("name", [*CALLS, *COMPLEX])
def test_edges(name: str, traced: bool) -> None:
    run = CALLS.get(name, lambda m: getattr(m, name)(C, D))
    known = ("argwhere",)  # the number of its results depends on the elements
    got = jit(lambda: run(fnp))() if traced and not name.startswith(known) else run(fnp)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        want = np.asarray(run(np))
    assert got.shape == want.shape
    assert got.dtype == want.dtype or want.dtype.kind in "iu" or want.dtype.itemsize > 4
    np.testing.assert_allclose(np.asarray(got), want, rtol=2e-3 if want.dtype == "e" else 1e-6)
    if want.dtype.kind == "f":
        numbers = ~np.isnan(want)
        np.testing.assert_array_equal(
            np.signbit(np.asarray(got))[numbers], np.signbit(want)[numbers]
        )


def test_the_remainder_has_its_derivative_where_it_is_zero() -> None:
    slopes = grad(lambda x: fnp.sum(fnp.remainder(x, np.array([2.0, -2.0, 2.0]))))(
        np.array([4.0, 4.0, 1.0])
    )
    np.testing.assert_array_equal(slopes, [1, 1, 1])
    assert grad(lambda x: fnp.floor_divide(x, 2.0))(np.float64(3.0)) == 0


def test_the_derivative_of_hypot_is_finite_beside_infinities() -> None:
    slopes = grad(lambda x: fnp.sum(fnp.hypot(x, np.array([np.inf, 4.0]))))(np.array([1.0, 3.0]))
    np.testing.assert_allclose(slopes, [0, 0.6])


PARTS = np.full((3, 3), -1 / 3) + np.eye(
    3
)  # the square of distances from a mean, of three, is x @ PARTS @ x
SIDES = np.array([3.0, 0.0, 4.0])


@pytest.mark.parametrize("transform", [lambda f: f, jit])
@pytest.mark.parametrize(
    ("fun", "x", "want"),
    [
        (fnp.var, [0, 1, 2], PARTS * 2 / 3),
        (fnp.var, [1, 1, 1], PARTS * 2 / 3),
        (fnp.var, [[0, 1, 2]], PARTS[None, :, None] * 2 / 3),
        (
            fnp.std,
            [0, 1, 2],
            PARTS / 3 / np.sqrt(2 / 3) - np.outer([-1, 0, 1], [-1, 0, 1]) / 9 / (2 / 3) ** 1.5,
        ),
        (fnp.linalg.norm, SIDES, np.eye(3) / 5 - np.outer(SIDES, SIDES) / 125),
        (lambda x: fnp.hypot(x[0], x[1]), [2, 0], [[0, 0], [0, 0.5]]),
        (
            lambda x: fnp.hypot(x[0], x[1]),
            [3e200, 4e200],
            [[128e-203, -96e-203], [-96e-203, 72e-203]],
        ),
        (lambda x: fnp.hypot(x[0], x[1]), [0, 0], [[0, 0], [0, 0]]),
        (fnp.sinc, 0, -(np.pi**2) / 3),
        (fnp.sinc, 1e-9, -(np.pi**2) / 3),
    ],
)
def test_second_derivatives_where_a_distance_is_zero(
    fun: Any, x: Any, want: Any, transform: Any
) -> None:
    found = np.asarray(transform(hessian(fun))(np.asarray(x, np.float64)))
    np.testing.assert_allclose(found, np.asarray(want).reshape(found.shape), rtol=1e-9, atol=1e-14)


def test_sinc_and_its_slope_are_continuous_where_its_series_ends() -> None:
    x = np.linspace(0.0094, 0.0097, 31)
    np.testing.assert_allclose(fnp.sinc(x), np.sinc(x), rtol=3e-16)
    a = np.pi * x
    slopes = np.asarray(vmap(grad(fnp.sinc))(x))
    np.testing.assert_allclose(slopes, (a * np.cos(a) - np.sin(a)) / (a * x), rtol=1e-10)


def test_the_length_and_variance_of_complex_numbers_have_all_derivatives() -> None:
    z = np.array([0.3 - 0.4j, 0, 2 + 1j])
    np.testing.assert_allclose(fnp.linalg.norm(z), np.linalg.norm(z), rtol=1e-7)
    np.testing.assert_allclose(fnp.var(z), np.var(z), rtol=1e-7)
    check_grads(fnp.linalg.norm, (z,))
    check_grads(fnp.var, (z,))


def test_flat_indices_count_from_the_end_and_are_clamped() -> None:
    rows, columns = fnp.unravel_index(np.array([100, -9, -1, 5]), (2, 4))
    np.testing.assert_array_equal(rows, [1, 0, 1, 1])
    np.testing.assert_array_equal(columns, [3, 0, 3, 1])


@pytest.mark.parametrize("kind", [np.float16, fnp.bfloat16])
def test_norms_of_half_floats_are_formed_in_float32(kind: Any) -> None:
    x = np.full((1, 300), 300, kind)
    for out, want in ((nn.layer_norm(x), 0), (nn.rms_norm(x), 1)):
        assert out.dtype == kind
        np.testing.assert_array_equal(out, np.full((1, 300), want, kind))
    assert nn.layer_norm(np.ones((1, 70000), kind)).shape == (1, 70000)


def test_half_floats_do_better_than_those_of_numpy() -> None:
    assert fnp.std(np.ones(70000, np.float16)) == 0
    np.testing.assert_array_equal(fnp.average(H, axis=1, weights=H), H[:, 0])


def test_a_maximum_of_complex_numbers_keeps_nan() -> None:
    assert np.isnan(fnp.maximum(complex(np.nan, 1), 2)).all()
    assert np.isnan(fnp.max(C))


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: fnp.vecdot(np.ones((2, 3)), np.ones((2, 1))), ValueError, "vecdot: .*equal sizes"),
        (lambda: fnp.asarray([300], np.int8), OverflowError, "asarray: .* 300 does not fit int8"),
        (lambda: fnp.array([[0], [-1]], np.uint8), OverflowError, "integer -1 does not fit uint8"),
        (
            lambda: fnp.append(NP.uint8([255]), -3),
            OverflowError,
            "append: .* -3 does not fit uint8",
        ),
        (lambda: fnp.fabs(C), TypeError, "fabs: expected real numbers"),
        (lambda: fnp.clip(NP.uint8([5]), 0, -3), OverflowError, "clip: argument `max`: .* -3"),
        (lambda: fnp.unravel_index(F([1]), (2,)), TypeError, "expected integer indices"),
    ],
)
def test_refusals(call: Callable[[], Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        call()


def test_arrays_without_elements_show_their_shape() -> None:
    assert repr(fnp.ones((0, 3))) == "Array([], shape=(0, 3), dtype=float32)"
    assert repr(fnp.ones(0)) == "Array([], dtype=float32)"


def test_numbers_in_lists_have_all_digits_of_the_dtype_that_is_asked_for() -> None:
    for given in ([0.2], [[0.2, 1.0]], (0.1, 0.7)):
        got = np.asarray(fnp.array(given, np.float64))
        np.testing.assert_array_equal(got, np.array(given), strict=True)
    assert fnp.array([16777217.0], np.int64).item() == 16777217
    assert fnp.array([1e-300], np.bool_).item()
    got = np.asarray(fnp.linspace(0.1, 0.7, 4, dtype=np.float64))
    np.testing.assert_allclose(got, np.linspace(0.1, 0.7, 4), rtol=1e-15)


def test_linspace_of_integers_is_rounded_down() -> None:
    for start, stop, num in ((0, 22, 23), (0, 49, 50), (-3, -1, 6), (-13, 13, 27)):
        got = fnp.linspace(start, stop, num, dtype=np.int32)
        np.testing.assert_array_equal(got, np.linspace(start, stop, num, dtype=np.int32))


def test_numbers_beside_wide_values_have_all_their_digits() -> None:
    x = np.float64(0.1)
    for make in (
        lambda x: fnp.array([x, 0.2]),
        lambda x: fnp.array([[x, 0.2], [0.3, 1]]),
        lambda x: fnp.array([x, 0.2], np.float64),
    ):
        got = np.asarray(jit(make)(x))
        assert got.dtype == np.float64
        np.testing.assert_array_equal(got, np.round(got, 3))


WIDE = np.linspace(0.0, 1.0, 3)
JOINED: dict[str, Callable[[Any, Any], Any]] = {
    "hstack": lambda m, x: m.hstack([x, 0.2, 0.7]),
    "hstack, number first": lambda m, x: m.hstack([0.2, x]),
    "hstack, complex": lambda m, x: m.hstack([x, 0.2j]),
    "vstack": lambda m, x: m.vstack([x[:1], 0.2]),
    "vstack of numbers": lambda m, x: m.vstack([0.1, x[0], 0.2]),
    "column_stack": lambda m, x: m.column_stack([x[:1], 0.2]),
    "stack": lambda m, x: m.stack([x[0], 0.2, 0.3]),
    "concatenate": lambda m, x: m.concatenate([x, 0.2, x], None),
    "append": lambda m, x: m.append(0.2, x),
    "outer": lambda m, x: m.outer(x, 0.2),
    "outer, number first": lambda m, x: m.outer(0.2, x),
    "kron": lambda m, x: m.kron(0.2, x),
    "tensordot": lambda m, x: m.tensordot(x, 0.2, 0),
    "einsum": lambda m, x: m.einsum("i,,->i", x, 0.2, 0.3),
    "select": lambda m, x: m.select([x > 0.7, x > 0.2], [x, 0.3], 0.1),
    "select, no default": lambda m, x: m.select([x > 0.7, x > 0.2], [x, 0.3]),
    "where": lambda m, x: m.where(x > 0.2, 0.7, x),
    "clip": lambda m, x: m.clip(x, 0.2, 0.7),
    "clip, number first": lambda m, x: m.clip(0.2, x * 0.3, x),
    "pad": lambda m, x: m.pad(x, 1, constant_values=0.2),
    "full": lambda m, x: m.full((2,), 0.2, np.float64),
    "full_like": lambda m, x: m.full_like(x, 0.2),
    "searchsorted": lambda m, x: m.searchsorted(x * 0.4, 0.2, side="right").astype(np.int32),
    "digitize": lambda m, x: m.digitize(0.2, np.array([0.1, 0.2, 0.3])).astype(np.int32),
    "nan_to_num": lambda m, x: m.nan_to_num(x * np.nan, nan=0.2),
    "linspace": lambda m, x: m.linspace(0.1, x, 3),
    "logspace": lambda m, x: m.logspace(0.1, 0.7, 3, dtype=np.float64),
    "quantile": lambda m, x: m.quantile(x, 0.37),
    "trapezoid": lambda m, x: m.trapezoid(x, dx=0.2),
    "float_power": lambda m, x: m.float_power(x, 0.2),
    "heaviside": lambda m, x: m.heaviside(x, 0.2),
}


@pytest.mark.parametrize("name", JOINED)
def test_numbers_joined_with_wide_arrays_have_all_their_digits(name: str) -> None:
    fun = JOINED[name]
    want = np.asarray(fun(np, WIDE))
    for run in (lambda f: f, jit):
        got = np.asarray(run(lambda x: fun(fnp, x))(WIDE))
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-15, atol=0)


@pytest.mark.parametrize("name", ["hstack", "vstack", "column_stack"])
def test_what_is_no_sequence_of_arrays_is_refused(name: str) -> None:
    fun: Any = getattr(fnp, name)
    assert_misuse(lambda: fun(3), TypeError, f"{name}: expected a sequence of arrays, got 3")
    assert_misuse(lambda: fun([]), ValueError, f"{name}: expected at least one array, got none")
    message = f"{name}: argument `y` must be an array or a scalar, got 'b' of type str"
    assert_misuse(lambda: fun([WIDE, "b"]), TypeError, message)


@pytest.mark.parametrize("x", [np.inf, -np.inf])
@pytest.mark.parametrize("name", ["logaddexp", "maximum", "minimum"])
def test_equal_infinities_share_the_slope(name: str, x: float) -> None:
    fun = getattr(fnp, name)
    at = np.array(x), np.array(x)
    assert fun(*at).item() == x
    assert [float(g) for g in grad(fun, (0, 1))(*at)] == [0.5, 0.5]
    assert [float(jvp(fun, at, t)[1]) for t in ((1.0, 0.0), (0.0, 1.0))] == [0.5, 0.5]
    twice = grad(lambda a, b: grad(fun)(a, b), (0, 1))(*at)
    assert [float(g) for g in twice] == [0.0, 0.0]
    assert np.isnan(fun(np.array(np.nan), at[1]).item())


@pytest.mark.parametrize("transform", [lambda f: f, jit])
def test_like_a_ref_is_like_what_it_holds(transform: Callable[..., Any]) -> None:
    makers: list[Any] = [
        fnp.zeros_like,
        fnp.ones_like,
        fnp.empty_like,
        lambda x: fnp.full_like(x, 2),
    ]
    host = np.arange(6, dtype=np.int16).reshape(2, 3)
    parts: Any = ((lambda r: r, host), (lambda r: r.T, host.T), (lambda r: r.at[0], host[0]))
    for part, like in parts:
        found = transform(lambda r: [make(r) for make in makers])(part(new_ref(host)))
        for got, value in zip(found, (0, 1, 0, 2), strict=True):
            np.testing.assert_array_equal(np.asarray(got), np.full_like(like, value))
            assert got.dtype == np.int16


def test_searchsorted_is_one_loop_whatever_the_size() -> None:
    sizes = [len(make_jaxpr(fnp.searchsorted)(np.zeros(n, F), F(1.0)).eqns) for n in (1, 5, 20_000)]
    assert sizes == [1, 1, 1]


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("size", [1, 2, 8, 33])
def test_searchsorted_of_tables_of_their_own(size: int, side: Any) -> None:
    rng = np.random.default_rng(size)
    tables = np.sort(rng.integers(0, size, (3, size)), axis=1).astype(F)
    wanted = rng.integers(-1, size + 1, (3, 4)).astype(F)
    got = vmap(lambda a, v: fnp.searchsorted(a, v, side))(tables, wanted)
    want = [np.searchsorted(a, v, side) for a, v in zip(tables, wanted, strict=True)]
    np.testing.assert_array_equal(np.asarray(got), want)
    slope = grad(lambda v: (v * fnp.searchsorted(tables[0], v, side)).sum())(wanted[0])
    np.testing.assert_array_equal(np.asarray(slope), want[0])
