"""The functions equal NumPy's, in shape, value and dtype (but for NumPy's float64 from integers)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiveloop import numpy as fnp
from fiveloop.core import grad, jit, make_jaxpr

RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, (3, 4)).astype(np.float32)
Y = RNG.uniform(-2, 2, (4,)).astype(np.float32)
P = RNG.uniform(0.1, 0.9, (3, 4)).astype(np.float32)
I = np.array([[-7, 3, 0], [5, 2, -4]], np.int32)
J = np.array([2, -3, 5], np.int32)
U = np.array([1, 200, 7], np.uint8)
B = np.array([[True, False, True], [False, False, True]])
Z = (RNG.standard_normal((2, 3)) + 1j * RNG.standard_normal((2, 3))).astype(np.complex64)
S = np.array([0.0, -0.0, 1.5, -2.5, np.inf, -np.inf, np.nan], np.float32)
T = RNG.standard_normal((2, 3, 4)).astype(np.float32)
V = np.array([3.0, 1.0, 2.0, 1.0, 3.0], np.float32)
NO_ARRAY: Any = [1.0]
M = RNG.standard_normal((4, 4)).astype(np.float32)

UNARY: dict[str, list[Any]] = {
    "exp exp2 expm1 sin cos tan arctan sinh cosh tanh arcsinh square cbrt rint deg2rad rad2deg sinc": [
        X,
        I,
    ],
    "log log2 log10 log1p sqrt arcsin arccos arctanh reciprocal": [P],
    "arccosh": [P + 1],
    "floor ceil trunc sign abs negative positive": [X, I, S[:6]],
    "isnan isinf isfinite signbit nan_to_num": [S, X],
    "real imag conj angle abs": [Z, X],
    "logical_not": [X, I, B],
    "bitwise_invert": [I, B, U],
    "exp sin cos sqrt log tanh": [Z],
}
BINARY: dict[str, list[Any]] = {
    "add subtract multiply maximum minimum": [(X, Y), (I, J), (X, 2), (U, 3)],
    "divide hypot arctan2 logaddexp copysign heaviside fmod": [(X, Y), (X, 1.5)],
    "floor_divide remainder": [(X, Y), (I, J), (I, 3), (U, U), (X, -0.7)],
    "fmax fmin": [(S, 1.0), (X, Y)],
    "equal not_equal less less_equal greater greater_equal": [(I, J), (X, Y), (S, S)],
    "logical_and logical_or logical_xor": [(B, I), (I, J)],
    "bitwise_and bitwise_or bitwise_xor": [(I, J), (U, U)],
    "left_shift right_shift": [(I, 2), (U, 1)],
    "power": [(P, Y), (X, 3), (X, -2), (I, 2)],
    "isclose": [(X, X + 1e-6), (S, S)],
}


def cases(table: dict[str, list[Any]]) -> list[Any]:
    """One case for each name and arguments of a table."""
    return [
        pytest.param(name, args if isinstance(args, tuple) else (args,), id=f"{name}-{k}")
        for names, groups in table.items()
        for name in names.split()
        for k, args in enumerate(groups)
    ]


def assert_like_numpy(got: Any, want: Any, rtol: float = 2e-5) -> None:
    """Equal shapes and near values; equal dtypes, where NumPy's wide results of integers count as 32 bits."""
    want = np.asarray(want)
    assert got.shape == want.shape
    assert got.dtype.kind == want.dtype.kind
    assert got.dtype.itemsize in (want.dtype.itemsize, want.dtype.itemsize // 2)
    np.testing.assert_allclose(np.asarray(got), want, rtol=rtol, atol=2e-6)


@pytest.mark.parametrize(("name", "args"), [*cases(UNARY), *cases(BINARY)])
def test_elementwise(name: str, args: tuple[Any, ...]) -> None:
    with np.errstate(all="ignore"):
        want = getattr(np, name)(*args)
    assert_like_numpy(getattr(fnp, name)(*args), want)


CALLS: dict[str, Callable[[Any], Any]] = {
    "arange": lambda m: m.arange(2, 11, 3),
    "arange down": lambda m: m.arange(5, 0, -2),
    "arange float": lambda m: m.arange(0.0, 1.0, 0.3),
    "linspace": lambda m: m.linspace(1.0, 3.0, 7),
    "linspace open": lambda m: m.linspace(1.0, 3.0, 4, endpoint=False),
    "linspace of arrays": lambda m: m.linspace(Y, Y + 1, 3),
    "linspace axis": lambda m: m.linspace(Y, Y + 1, 3, axis=1),
    "logspace": lambda m: m.logspace(0.0, 2.0, 3),
    "eye": lambda m: m.eye(3, 4, 1),
    "tri": lambda m: m.tri(3, 4, -1),
    "tril": lambda m: m.tril(T, 1),
    "triu": lambda m: m.triu(M, -1),
    "full": lambda m: m.full((2, 3), 2.5),
    "full of array": lambda m: m.full((2, 4), Y),
    "zeros_like": lambda m: m.zeros_like(I),
    "meshgrid": lambda m: m.stack(m.meshgrid(Y, J[:2])),
    "meshgrid ij": lambda m: m.stack(m.meshgrid(Y, Y, Y, indexing="ij")),
    "indices": lambda m: m.indices((2, 3)),
    "asarray list": lambda m: m.asarray([[1, 2], [3, 4]]),
    "asarray bools": lambda m: m.asarray([True, False]),
    "reshape": lambda m: m.reshape(T, (6, -1)),
    "ravel": lambda m: m.ravel(T),
    "transpose": lambda m: m.transpose(T, (2, 0, 1)),
    "swapaxes": lambda m: m.swapaxes(T, 0, -1),
    "moveaxis": lambda m: m.moveaxis(T, (0, 1), (-1, 0)),
    "expand_dims": lambda m: m.expand_dims(X, (0, 3)),
    "squeeze": lambda m: m.squeeze(X[None, :, None]),
    "atleast": lambda m: m.atleast_3d(X),
    "broadcast_to": lambda m: m.broadcast_to(Y, (2, 3, 4)),
    "concatenate": lambda m: m.concatenate([X, X, Y[None]], axis=0),
    "concatenate flat": lambda m: m.concatenate([X, Y], axis=None),
    "stack": lambda m: m.stack([X, X], axis=-1),
    "hstack": lambda m: m.hstack([X, X]),
    "vstack": lambda m: m.vstack([X, Y]),
    "column_stack": lambda m: m.column_stack([Y, Y]),
    "split": lambda m: m.split(X, 2, axis=1)[1],
    "split at": lambda m: m.split(T, [1, 3], axis=2)[1],
    "array_split": lambda m: m.array_split(V, 3)[2],
    "flip": lambda m: m.flip(T, (0, 2)),
    "rot90": lambda m: m.rot90(X, 3),
    "rot90 once": lambda m: m.rot90(T, 1, (1, 2)),
    "roll": lambda m: m.roll(X, -3),
    "roll axes": lambda m: m.roll(X, (1, -2), axis=(0, 1)),
    "tile": lambda m: m.tile(X, (2, 1, 3)),
    "repeat": lambda m: m.repeat(X, 2, axis=1),
    "repeat each": lambda m: m.repeat(V, [1, 0, 2, 3, 1]),
    "pad": lambda m: m.pad(X, ((1, 2), (0, 3)), constant_values=7),
    "pad edge": lambda m: m.pad(X, 2, mode="edge"),
    "pad reflect": lambda m: m.pad(X, ((2, 1), (3, 2)), mode="reflect"),
    "pad wrap": lambda m: m.pad(V, (3, 7), mode="wrap"),
    "append": lambda m: m.append(X, X, axis=0),
    "sum": lambda m: m.sum(T, axis=(0, 2)),
    "sum of bools": lambda m: m.sum(B, axis=0),
    "sum where": lambda m: m.sum(I, axis=1, where=B, keepdims=True),
    "prod": lambda m: m.prod(T, axis=1),
    "mean": lambda m: m.mean(T, axis=(0, 1), keepdims=True),
    "mean of ints": lambda m: m.mean(I, axis=0),
    "mean where": lambda m: m.mean(T[0], axis=0, where=B[:, :, None][0]),
    "var": lambda m: m.var(T, axis=1, ddof=1),
    "std": lambda m: m.std(Z, axis=0),
    "max": lambda m: m.max(T, axis=1),
    "min of all": lambda m: m.min(T),
    "ptp": lambda m: m.ptp(T, axis=-1),
    "all": lambda m: m.all(B, axis=0),
    "any": lambda m: m.any(I, axis=1, keepdims=True),
    "count_nonzero": lambda m: m.count_nonzero(I, axis=1),
    "argmax": lambda m: m.argmax(V),
    "argmin": lambda m: m.argmin(T, axis=1),
    "average": lambda m: m.average(X, axis=1, weights=P[0]),
    "median": lambda m: m.median(X, axis=1),
    "median of all": lambda m: m.median(V),
    "quantile": lambda m: m.quantile(X, 0.3, axis=0, keepdims=True),
    "percentile": lambda m: m.percentile(X, 75),
    "nansum": lambda m: m.nansum(S[[0, 2, 6]]),
    "nanmean": lambda m: m.nanmean(S[[2, 3, 6]]),
    "nanmax": lambda m: m.nanmax(S[[2, 3, 6]]),
    "nanmin": lambda m: m.nanmin(S[[2, 3, 6]]),
    "cumsum": lambda m: m.cumsum(T, axis=1),
    "cumsum flat": lambda m: m.cumsum(I),
    "cumprod": lambda m: m.cumprod(X, axis=0),
    "diff": lambda m: m.diff(T, n=2, axis=2),
    "diff of bools": lambda m: m.diff(B),
    "trapezoid": lambda m: m.trapezoid(X, Y.cumsum(), axis=1),
    "matmul": lambda m: m.matmul(T, M),
    "matmul vector": lambda m: m.matmul(T, Y),
    "dot": lambda m: m.dot(T, M),
    "vdot": lambda m: m.vdot(Z, Z),
    "inner": lambda m: m.inner(X, M),
    "outer": lambda m: m.outer(Y, V),
    "tensordot": lambda m: m.tensordot(T, X, ((1, 2), (0, 1))),
    "kron": lambda m: m.kron(X, I),
    "cross": lambda m: m.cross(X[:, :3], X[:, 1:]),
    "diag": lambda m: m.diag(V, -2),
    "diag of matrix": lambda m: m.diag(X, 1),
    "diagonal": lambda m: m.diagonal(T, -1, 2, 0),
    "trace": lambda m: m.trace(M, 1),
    "norm": lambda m: m.linalg.norm(X, axis=1, keepdims=True),
    "where": lambda m: m.where(X > 0, X, 0),
    "select": lambda m: m.select([X > 1, X > 0], [X, -X], 9.0),
    "take": lambda m: m.take(T, np.array([[0, 2], [1, 1]]), axis=1),
    "take flat": lambda m: m.take(X, np.array([5, 0])),
    "take_along_axis": lambda m: m.take_along_axis(X, np.array([[3, -1], [0, 0], [1, 2]]), axis=1),
    "take_along_axis broadcast": lambda m: m.take_along_axis(X, np.array([[1, 0, 2, 2]]), axis=0),
    "searchsorted": lambda m: m.searchsorted(
        np.sort(V), np.array([0.0, 1.0, 2.5, 3.0, 4.0], np.float32)
    ),
    "searchsorted right": lambda m: m.searchsorted(np.sort(V), V, side="right"),
    "interp": lambda m: m.interp(
        X, np.array([-1.0, 0.0, 0.0, 1.0]), np.array([3.0, 1.0, 2.0, 5.0])
    ),
    "interp beyond": lambda m: m.interp(S, np.array([-1.0, 1.0]), np.array([3.0, 1.0]), -9, 9),
    "isin": lambda m: m.isin(I, np.array([[1, 3], [-2, 1]])),
    "isin, inverted": lambda m: m.isin(I, I[0, 0], invert=True),
    "polyval": lambda m: m.polyval(Y, X),
    "digitize": lambda m: m.digitize(X, np.array([-1.0, 0.0, 1.0], np.float32)),
    "sort": lambda m: m.sort(X, axis=0),
    "sort flat": lambda m: m.sort(X, axis=None),
    "argsort": lambda m: m.argsort(V, stable=True),
    "lexsort": lambda m: m.lexsort([V, V[::-1]]),
    "clip": lambda m: m.clip(X, -1, Y),
    "round": lambda m: m.round(X, 2),
    "allclose": lambda m: m.allclose(X, X + 1e-7),
    "array_equal": lambda m: m.array_equal(X, X[:, :3]),
    "tril_indices": lambda m: m.stack(m.tril_indices(4, 1)),
    "unravel_index": lambda m: m.stack(m.unravel_index(np.array([5, 11]), (3, 4))),
}
EINSUMS = [
    ("ij,jk->ik", (3, 4), (4, 5)),
    ("ij,jk", (3, 4), (4, 5)),
    ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
    ("...ij,...jk->...ik", (2, 1, 3, 4), (6, 4, 5)),
    ("ii->i", (3, 3)),
    ("ii", (3, 3)),
    ("iji->j", (3, 4, 3)),
    ("ij->ji", (3, 4)),
    ("ij->", (3, 4)),
    ("i,j->ij", (3,), (4,)),
    ("ij,ij->i", (3, 4), (3, 4)),
    ("ij,kj->ki", (3, 4), (1, 4)),
    ("ab,bc,cd->ad", (2, 3), (3, 4), (4, 5)),
    ("ab,bc,cd,a->d", (2, 3), (3, 4), (4, 5), (2,)),
    ("bthd,bshd->bhts", (2, 3, 2, 4), (2, 5, 2, 4)),
    ("i...,i...->...", (3, 2, 4), (3, 4)),
    ("ij,j->i", (3, 4), (1,)),
    ("ij,k->k", (3, 4), (2,)),
]


@pytest.mark.parametrize("name", CALLS)
def test_functions(name: str) -> None:
    assert_like_numpy(CALLS[name](fnp), CALLS[name](np))


def test_functions_may_be_traced() -> None:
    names = [n for n in CALLS if n not in ("array_equal",)]
    outs = jit(lambda: [CALLS[name](fnp) for name in names])()
    for name, got in zip(names, outs, strict=True):
        np.testing.assert_allclose(got, CALLS[name](np), rtol=2e-5, atol=2e-6, err_msg=name)


@pytest.mark.parametrize("case", EINSUMS, ids=lambda c: c[0])
def test_einsum(case: tuple[Any, ...]) -> None:
    text, *shapes = case
    xs = [RNG.standard_normal(shape).astype(np.float32) for shape in shapes]
    assert_like_numpy(fnp.einsum(text, *xs), np.einsum(text, *xs))


@pytest.mark.parametrize("by", [-3, 0, 1, 4, 9, -(2**31), 2**31 - 1])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_a_roll_may_be_known_only_at_run_time(by: int, axis: int | None) -> None:
    roll = jit(lambda x, by: fnp.roll(x, by, axis=axis))
    np.testing.assert_array_equal(roll(X, np.int32(by)), np.roll(X, by, axis=axis))


def test_the_derivative_of_a_roll_is_a_roll() -> None:
    weights = np.arange(X.size, dtype=X.dtype).reshape(X.shape)
    derive = grad(lambda x: (fnp.roll(x, 1, axis=1) * weights).sum())
    np.testing.assert_array_equal(derive(X), np.roll(weights, -1, axis=1))
    assert "pad" not in str(make_jaxpr(derive)(X))
    np.testing.assert_array_equal(fnp.roll(X, X.shape[1], axis=1), X)


def test_the_derivative_of_a_roll_by_a_number_at_run_time_adds_a_window() -> None:
    weights = np.arange(float(X.size)).reshape(X.shape)
    derive = jit(grad(lambda x, by: (fnp.roll(x, by, axis=1) * weights).sum()))
    np.testing.assert_array_equal(derive(X, np.int32(2)), np.roll(weights, -2, axis=1))
    text = str(derive.lower(X, np.int32(2)).as_text())
    assert "gather" not in text and "scatter" not in text


def test_searching_and_counting_in_traced_arrays() -> None:
    found, count = jit(lambda a, v: [fnp.searchsorted(a, v), fnp.bincount(v, length=4)])(
        np.arange(1000), np.array([0, 3, 3, 9, -1])
    )
    np.testing.assert_array_equal(found, [0, 3, 3, 9, 0])
    np.testing.assert_array_equal(count, [1, 0, 0, 2])


@pytest.mark.parametrize("size", [0, 1, 2, 3, 7, 8, 9])
@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.float32, np.complex64])
def test_searching_sorted_vectors_of_any_size(size: int, dtype: Any) -> None:
    table = (np.arange(size) // 2).astype(dtype)
    wanted = np.array([0, 1, 2, 3, 4, 9], dtype)
    if table.dtype.kind in "fc":
        table[size // 2 :] = np.nan
        wanted = np.append(wanted, dtype(np.nan))
    for side in ("left", "right"):
        found = fnp.searchsorted(table, wanted, side)
        assert found.dtype == np.int32
        np.testing.assert_array_equal(found, np.searchsorted(table, wanted, side))


def test_the_greatest_along_any_axis() -> None:
    x = np.array([[3.0, 1.0, 2.0], [5.0, 4.0, 6.0]], np.float32)
    values, places = fnp.top_k(x, 1, axis=0)
    assert (values.tolist(), places.tolist()) == ([[5.0, 4.0, 6.0]], [[1, 1, 1]])
    assert fnp.top_k(x, 0)[0].shape == (2, 0)
    assert fnp.top_k(x > 2, 2)[1].tolist() == [[0, 1], [0, 1]]


def test_sorting_in_descending_order_keeps_the_order_of_equals() -> None:
    np.testing.assert_array_equal(fnp.argsort(V, descending=True), [0, 4, 2, 1, 3])
    np.testing.assert_array_equal(fnp.sort(V, descending=True), [3, 3, 2, 1, 1])
    values, places = fnp.top_k(V, 3)
    np.testing.assert_array_equal(values, [3, 3, 2])
    np.testing.assert_array_equal(places, [0, 4, 2])


def test_put_along_axis_writes_where_take_along_axis_reads() -> None:
    places, want = np.array([[3], [0], [-2]]), X.copy()
    np.put_along_axis(want, places, 9.0, axis=1)
    np.testing.assert_array_equal(fnp.put_along_axis(X, places, 9.0, axis=1), want)


def test_python_numbers_yield_and_numpy_arrays_keep_their_dtype() -> None:
    assert fnp.asarray([1, 2]).dtype == np.int32 and fnp.asarray([1.0]).dtype == np.float32
    assert fnp.asarray(2**40).dtype == np.int64 and fnp.asarray([2**40]).dtype == np.int64
    assert fnp.asarray(np.array([1.0])).dtype == np.float64
    assert fnp.add(np.ones(1, np.float32), 2.5).dtype == np.float32
    assert fnp.zeros(2).dtype == np.float32 and fnp.full(2, 1).dtype == np.int32
    assert fnp.asarray([fnp.zeros(2), fnp.ones(2)]).shape == (2, 2)
    assert fnp.result_type(fnp.bfloat16, 1.0) == fnp.bfloat16
    assert fnp.exp(np.ones(2, fnp.bfloat16)).dtype == fnp.bfloat16


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (
            lambda: fnp.exp(NO_ARRAY),
            TypeError,
            r"exp: argument `x` must be an array or a scalar, got \[1.0\]",
        ),
        (lambda: fnp.asarray([[1, 2], [3]]), ValueError, "inhomogeneous|equal lengths"),
        (lambda: fnp.reshape(X, (5, 2)), ValueError, r"12 elements .* got \(5, 2\)"),
        (lambda: fnp.matmul(X, X), ValueError, "inner sizes that agree, got 4 and 3"),
        (lambda: fnp.concatenate([X, Y]), ValueError, "one shape save along axis 0"),
        (lambda: fnp.sum(X, axis=2), ValueError, r"`axis` in \[-2, 2\) for 2 axes, got 2"),
        (lambda: fnp.split(X, 3, axis=1), ValueError, "divides axis 1 of size 4, got 3"),
        (lambda: fnp.einsum("ij,jk->ik", X, X), ValueError, "label 'j' has two sizes"),
        (lambda: fnp.einsum("ij,j->k", X, Y), ValueError, "each label of the result once"),
        (lambda: fnp.einsum("ijk->i", X), ValueError, "labels for the axes"),
        (lambda: fnp.add(X, np.ones(3, np.float32)), ValueError, r"\(3, 4\)"),
        (
            lambda: jit(lambda x: fnp.nonzero(x))(X),
            TypeError,
            "nonzero: expected elements that are known",
        ),
        (lambda: fnp.quantile(X, 2.0), ValueError, r"`q` in \[0, 1\], got 2.0"),
        (lambda: fnp.take_along_axis(X, X), TypeError, "expected integer indices"),
        (lambda: fnp.arange(0, 1, 0), ValueError, "`step` not to be zero"),
        (lambda: fnp.squeeze(X, 0), ValueError, "of size 1"),
    ],
)
def test_bad_arguments_are_explained(
    call: Callable[[], Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        call()


def test_errors_name_the_line_of_the_user() -> None:
    with pytest.raises(ValueError, match=r"test_against_numpy\.py:\d+"):
        fnp.einsum("ij,jk->ik", X, X)
