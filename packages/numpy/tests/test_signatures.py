"""Each function has its parameters where NumPy's function of the name has them, with the same names and defaults."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core.arrays.methods import Methods

OPERANDS: dict[str, str] = {
    "x": "a arr array ary m z v val object prototype A x1 a1 type1 from_ arys",
    "y": "b x2 a2 type2",
    "xs": "arrays tup args xi operands arrays_and_dtypes",
    "shapes": "args",
}
"""Our names of the operands, which the Array API takes by position alone, and those that NumPy gives to them."""

RENAMED: dict[str, dict[str, str]] = {
    "arange": {"start": "start_or_stop"},  # `start` in the Array API
    "arctan2": {"y": "x1", "x": "x2"},
    "atan2": {"y": "x1", "x": "x2"},
    "clip": {"min": "a_min", "max": "a_max"},  # `min` and `max` in the Array API
    "eye": {"n": "N", "m": "M"},  # `n_rows` and `n_cols` in the Array API
    "tri": {"n": "N", "m": "M"},
    "einsum": {"subscripts": "operands"},  # the first of them
    "indices": {"shape": "dimensions"},
    "select": {"conditions": "condlist", "choices": "choicelist"},
}
"""Names that differ from NumPy's, which has others than the Array API, or than its own other functions."""

BY_POSITION: dict[str, dict[str, str]] = {
    "arange": {"dtype": "NumPy takes it by position, and says otherwise since its functions tell"},
    "linalg.tensordot": {
        "axes": "NumPy's `tensordot` takes it by position; one function has both names"
    },
}
"""What we take by position where NumPy takes keywords alone, which misreads no call."""

OURS: dict[str, str] = {
    "argsort": "descending",  # of the Array API
    "bincount": "length",
    "cumprod": "reverse",
    "cumsum": "reverse",
    "einsum": "preferred_element_type",
    "linalg.matmul": "preferred_element_type",
    "matmul": "preferred_element_type",
    "pad": "constant_values",  # among NumPy's `**kwargs`
    "sort": "descending",  # of the Array API
}
"""Keywords that NumPy does not have."""

DEFAULTS: dict[str, str] = {
    "argsort": "stable",  # as in the Array API
    "cross": "axis",  # NumPy's None stands for -1
    "permute_dims": "axes",  # required, as in the Array API
    "put_along_axis": "axis",  # as in `take_along_axis`
    "sort": "stable",  # as in the Array API
}
"""Defaults that differ, besides those of `dtype`: our numbers are of 32 bits."""

ALONE = {"cummax", "cummin", "norm", "row_stack", "top_k"}
"""Functions that NumPy has not, or no longer, or has elsewhere: `norm` is that of `linalg`."""


def functions() -> dict[str, tuple[Callable[..., Any], Any]]:
    """The public functions, each with NumPy's of the name."""
    found: dict[str, tuple[Callable[..., Any], Any]] = {}
    for prefix, ours, theirs in (("", fnp, np), ("linalg.", fnp.linalg, np.linalg)):
        for name, f in vars(ours).items():
            if inspect.isfunction(f) and not name.startswith("_") and name not in ALONE:
                found[prefix + name] = (f, getattr(theirs, name))
    return found


def parameters(f: Any) -> list[inspect.Parameter]:
    """The parameters of a function, or of one of NumPy's."""
    if isinstance(
        f, np.ufunc
    ):  # older ones do not tell: operands, and keywords of which we have none
        names = ["x"] if f.nin == 1 else [f"x{k + 1}" for k in range(f.nin)]
        axis = [inspect.Parameter("axis", inspect.Parameter.KEYWORD_ONLY, default=-1)]
        given = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY) for name in names]
        return given + axis * (f.signature is not None)
    return list(inspect.signature(f).parameters.values())


@pytest.mark.parametrize("name", functions())
def test_signature_is_numpys(name: str) -> None:
    """What we take by position NumPy takes there, and keywords are NumPy's, or in a table above."""
    ours, theirs = (parameters(f) for f in functions()[name])
    places = [p for p in theirs if p.kind < inspect.Parameter.KEYWORD_ONLY]
    by_name = {p.name: p for p in theirs}
    for k, p in enumerate(ours):
        like = by_name.get(p.name)
        if p.kind < inspect.Parameter.KEYWORD_ONLY and p.name not in BY_POSITION.get(name, {}):
            like = places[min(k, len(places) - 1)]
            known = {p.name, *OPERANDS.get(p.name, "").split(), RENAMED.get(name, {}).get(p.name)}
            assert like.name in known, f"{name}: {p} at place {k}, where NumPy has {like}"
        elif like is None:
            assert OURS[name] == p.name, f"{name}: NumPy has no keyword {p.name}"
            continue
        assert like is not None
        told = "no value" not in str(like.default)
        if told and p.name not in ("dtype", DEFAULTS.get(name)):
            assert p.default == like.default, f"{name}: default of {p}, where NumPy has {like}"


METHODS = [name for name in vars(Methods) if not name.startswith("_") and name in dir(np.ndarray)]


@pytest.mark.parametrize("name", [name for name in METHODS if callable(getattr(np.ndarray, name))])
def test_method_is_numpys(name: str) -> None:
    """What a method takes by position, NumPy's takes there."""
    ours, theirs = (list(parameters(getattr(c, name))) for c in (Methods, np.ndarray))
    for mine, like in zip(ours, theirs, strict=False):
        if mine.kind < inspect.Parameter.KEYWORD_ONLY:
            named = mine.kind == like.kind == inspect.Parameter.VAR_POSITIONAL or name == "view"
            assert named or mine.name == like.name


def test_tables_are_of_functions() -> None:
    assert {*RENAMED, *BY_POSITION, *OURS, *DEFAULTS} <= {*functions()}


X = np.array([[1.0, -2.0, 0.0], [3.0, 4.5, -6.0]])
ORDERS = (None, 0, 1, 2, 3.5, -1, -0.5, np.inf, -np.inf)
NORMS = [
    *[(X[1], order, None, False) for order in ORDERS],
    *[(X, order, 0, True) for order in ORDERS if order is None or order > 0],
    *[(X, order, 1, False) for order in (None, 1, 2, np.inf, -np.inf)],
    *[(X, order, None, False) for order in (None, "fro", 1, -1, np.inf, -np.inf)],
    *[(X[None], order, axes, True) for order in (1, np.inf, "fro") for axes in ((1, 2), (-1, 1))],
    (X[:, :, None], -np.inf, (2, 0), False),
]


@pytest.mark.parametrize(("x", "order", "axis", "keepdims"), NORMS)
def test_norm_is_numpys(x: Any, order: Any, axis: Any, keepdims: bool) -> None:
    want = np.linalg.norm(x, order, axis, keepdims)
    got = fnp.linalg.norm(x, order, axis, keepdims)
    assert got.shape == want.shape
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-12)


@pytest.mark.parametrize(("x", "order"), [(X, 2), (X, "nuc"), (X[0], "fro"), (X[None], 1), (X, 3)])
def test_norm_of_another_order_is_refused(x: Any, order: Any) -> None:
    with pytest.raises(
        ValueError, match="norm: expected `ord` to be a number for one axis"
    ) as info:
        fnp.linalg.norm(x, order)
    assert "name the axes in `axis`" in str(info.value)


CUBE = np.arange(12.0).reshape(2, 2, 3)
CALLS: dict[str, Callable[[Any], Any]] = {
    "norm": lambda m: m.linalg.norm(X[0], 1),
    "trace": lambda m: m.linalg.trace(CUBE, offset=1),
    "diagonal": lambda m: m.linalg.diagonal(CUBE),
    "nan_to_num": lambda m: m.nan_to_num(np.array([np.nan, np.inf]), False, 7.0, 8.0),
    "logspace": lambda m: m.logspace(0.0, 2.0, 4, False, 2.0),
    "logspace axis": lambda m: m.logspace(np.zeros(2), np.ones(2), 3, axis=1),
    "sum": lambda m: m.sum(X, 0, np.float64),
    "var": lambda m: m.var(X, 1, np.float64, ddof=1),
    "cumsum": lambda m: m.cumsum(X, 1, np.float64),
    "bincount": lambda m: m.bincount(np.array([0, 2]), None, 5),
    "cumulative_sum": lambda m: m.cumulative_sum(X, axis=1, include_initial=True),
    "cumulative_prod": lambda m: m.cumulative_prod(X[0], include_initial=True),
    "cumulative_sum of a number": lambda m: m.cumulative_sum(np.array(3.0)),
}


@pytest.mark.parametrize("name", CALLS)
def test_call_by_position_means_the_same(name: str) -> None:
    got, want = CALLS[name](fnp), CALLS[name](np)
    assert got.shape == want.shape
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-6)


def test_running_sums_of_several_axes_need_one() -> None:
    with pytest.raises(ValueError, match="cumulative_sum: expected `axis`"):
        fnp.cumulative_sum(X)
