"""Comparing arrays: tolerances by dtype, relative to the size of what is compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

TOLERANCES = {"float64": 1e-10, "float32": 2e-5, "float16": 5e-3, "bfloat16": 4e-2}
"""The relative error allowed between two computations of one value, by dtype."""


def tolerance(dtype: Any) -> float:
    """The relative error allowed for a dtype; a complex one is as its parts, an exact one has none."""
    dtype = np.dtype(dtype)
    if dtype.kind == "c":
        return TOLERANCES["float64" if dtype.itemsize == 16 else "float32"]
    return TOLERANCES.get(dtype.name, 0.0)


def assert_close(got: Any, want: Any, what: str = "value", *, scale: float = 1.0) -> None:
    """Two arrays have the same type and nearly the same elements; `scale` widens the tolerance."""
    a, b = np.asarray(got), np.asarray(want)
    assert a.shape == b.shape, f"{what}: shapes differ: {a.shape} and {b.shape}"
    assert a.dtype == b.dtype, f"{what}: dtypes differ: {a.dtype} and {b.dtype}"
    rtol = scale * tolerance(a.dtype)
    if rtol == 0.0:
        np.testing.assert_array_equal(a, b, err_msg=what)
        return
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    a, b = a.astype(wide), b.astype(wide)
    if np.array_equal(a, b):
        return
    finite = np.abs(b[np.isfinite(b)])
    atol = rtol * max(1.0, float(finite.max(initial=0.0)))
    np.testing.assert_allclose(a, b, rtol=rtol, atol=atol, err_msg=what)


def assert_all_close(
    got: Sequence[Any], want: Sequence[Any], what: str = "values", *, scale: float = 1.0
) -> None:
    """Two lists of arrays agree, one by one."""
    assert len(got) == len(want), f"{what}: {len(got)} and {len(want)} arrays"
    for k, (a, b) in enumerate(zip(got, want, strict=True)):
        assert_close(a, b, f"{what} {k}", scale=scale)


def assert_near(got: Any, want: Any) -> None:
    """As `assert_close`, where the dtype does not matter: what is wanted is brought to that of what is given."""
    a = np.asarray(got)
    assert_close(a, np.asarray(want).astype(a.dtype))


def assert_all_near(got: Sequence[Any], want: Sequence[Any]) -> None:
    """Two lists of arrays agree one by one, dtypes aside."""
    assert len(got) == len(want), f"{len(got)} and {len(want)} arrays"
    for a, b in zip(got, want, strict=True):
        assert_near(a, b)
