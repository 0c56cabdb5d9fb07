"""Bad input to array functions, random numbers and layers: types of errors, messages, and the user's line."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop import nn, random
from fiveloop.core.testing.misuse import assert_misuse

X = fnp.asarray(np.arange(4, dtype=np.float32))
M = fnp.asarray(np.ones((3, 2), np.float32))
KEY = random.key(0)

CASES: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "shape": (
        lambda: fnp.ones("a"),
        TypeError,
        "full: expected `shape` to hold integers, got 'a'",
    ),
    "negative shape": (
        lambda: fnp.zeros((2, -1)),
        ValueError,
        "full: expected no negative sizes in `shape`, got (2, -1)",
    ),
    "dtype": (
        lambda: fnp.asarray([1.0], dtype="float99"),
        TypeError,
        "asarray: expected `dtype` to name a dtype, got 'float99'",
    ),
    "ragged lists": (
        lambda: fnp.asarray([[1, 2], [3]]),
        ValueError,
        "asarray: expected nested lists of equal lengths, got [[1, 2], [3]]",
    ),
    "string": (
        lambda: fnp.sin("a"),  # type: ignore[arg-type]  # that is the point
        TypeError,
        "sin: argument `x` must be an array or a scalar, got 'a' of type str",
    ),
    "shapes to concatenate": (
        lambda: fnp.concatenate([X, M]),
        TypeError,
        "concatenate: expected arrays of one dtype and one shape save along axis 0, got f32[4] and f32[3,2]",
    ),
    "nothing to concatenate": (
        lambda: fnp.concatenate([]),
        ValueError,
        "concatenate: expected at least one array, got none",
    ),
    "inner sizes": (
        lambda: fnp.matmul(M, M),
        ValueError,
        "matmul: expected inner sizes that agree, got 2 and 3 in f32[3,2] @ f32[3,2]",
    ),
    "labels": (
        lambda: fnp.einsum("ij,jk->ik", M, M),
        ValueError,
        "einsum: label 'j' has two sizes, in f32[3,2] and in f32[3,2]",
    ),
    "axis": (
        lambda: fnp.sort(X, axis=3),
        ValueError,
        "sort: expected `axis` in [-1, 1) for 1 axes, got 3",
    ),
    "index": (
        lambda: fnp.take(X, 9),
        IndexError,
        "index 9 is out of bounds for axis 0 of size 4",
    ),
    "widths": (
        lambda: fnp.pad(X, (1, 2, 3)),
        ValueError,
        "pad: expected `pad_width` to be a number, a pair, or a pair for each of 1 axes, got (1, 2, 3)",
    ),
    "key": (
        lambda: random.normal(X, (2,)),
        TypeError,
        "random_bits: expected a key, an array of two uint32 words, got f32[4]; see `vmap` for many",
    ),
    "seed": (
        lambda: random.key(1.5),
        TypeError,
        "key: expected `seed` to be an integer, got f32*[]",
    ),
    "dtype of random numbers": (
        lambda: random.normal(KEY, (2,), np.int32),
        TypeError,
        "normal: expected a real floating point dtype, got int32",
    ),
    "classes": (lambda: nn.one_hot(X, 3), TypeError, "one_hot: expected integers, got f32[4]"),
}


@pytest.mark.parametrize(("call", "kind", "message"), CASES.values(), ids=CASES)
def test_bad_input(call: Callable[[], object], kind: type[Exception], message: str) -> None:
    assert_misuse(call, kind, message)
