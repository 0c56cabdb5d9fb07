"""Bad input to array functions, random numbers and layers: types of errors, messages, and the user's line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop import nn, random
from fiveloop.core import ConcretizationError, jit
from fiveloop.testing.core.misuse import assert_misuse

X = fnp.asarray(np.arange(4, dtype=np.float32))
M = fnp.asarray(np.ones((3, 2), np.float32))


@dataclass
class Point:
    """A class that nobody has registered."""

    x: float


CUBE = fnp.ones((1, 1, 1))
KEY = random.key(0)

CASES: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "shape": (
        lambda: fnp.ones("a"),
        TypeError,
        "ones: expected `shape` to hold integers, got 'a'",
    ),
    "negative shape": (
        lambda: fnp.zeros((2, -1)),
        ValueError,
        "zeros: expected no negative sizes in `shape`, got (2, -1)",
    ),
    "dtype": (
        lambda: fnp.asarray([1.0], dtype="float99"),
        TypeError,
        "asarray: expected `dtype` to name a dtype, got 'float99'",
    ),
    "dtype to fill": (
        lambda: fnp.zeros_like(X, "flot32"),
        TypeError,
        "zeros_like: expected `dtype` to name a dtype, got 'flot32'",
    ),
    "percentile": (
        lambda: fnp.percentile(X, 101),
        ValueError,
        "percentile: expected `q` in [0, 100], got 101",
    ),
    "shape to broadcast to": (
        lambda: fnp.broadcast_to(M, (2, 2)),
        ValueError,
        "broadcast_to: cannot broadcast (3, 2) to (2, 2)",
    ),
    "axes named twice": (
        lambda: M.transpose(0, 0),
        ValueError,
        "transpose: expected each axis once in `axes`, got (0, 0)",
    ),
    "things in lists": (
        lambda: fnp.asarray([None]),
        TypeError,
        "asarray: an element of `x` must be an array or a scalar, got None of type NoneType",
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
        ValueError,
        "concatenate: expected arrays of one shape save along axis 0, got f32[4] and f32[3,2]",
    ),
    "shapes to append": (
        lambda: fnp.append(M, M[:, :1], 0),
        ValueError,
        "concatenate: expected arrays of one shape save along axis 0, got f32[3,2] and f32[3,1]",
    ),
    "dataclass": (
        lambda: jit(lambda point: point.x)(Point(1.0)),
        TypeError,
        "jit of <lambda>: argument `point` must be an array or a scalar, got Point(x=1.0) of type Point; make its "
        "class a tree of its fields with `fiveloop.core.register_dataclass`",
    ),
    "dataclass in a function": (
        lambda: fnp.sin(Point(1.0)),  # type: ignore[arg-type]  # that is the point
        TypeError,
        "sin: argument `x` must be an array or a scalar, got Point(x=1.0) of type Point; make its class a tree of its "
        "fields with `fiveloop.core.register_dataclass`",
    ),
    "complex number": (
        lambda: fnp.asarray(1j, fnp.float32),
        TypeError,
        "asarray: the complex number 1j does not become float32; take its real part, `x.real`, first",
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
    "labels that are no text": (
        lambda: fnp.einsum(3, X),  # type: ignore[arg-type]  # that is the point
        TypeError,
        "einsum: expected `subscripts` to be a string such as 'ij,jk->ik', got 3",
    ),
    "sizes of dot": (
        lambda: fnp.dot(M, M),
        ValueError,
        "dot: expected equal sizes along the axes that are summed, got axes (1,) of f32[3,2] and (0,) of f32[3,2]",
    ),
    "sizes of tensordot": (
        lambda: fnp.tensordot(M, M, 1),
        ValueError,
        "tensordot: expected equal sizes along the axes that are summed, got axes (1,) of f32[3,2] and (0,) of "
        "f32[3,2]",
    ),
    "number of axes of tensordot": (
        lambda: fnp.tensordot(M, M, 5),
        ValueError,
        "tensordot: expected `axes` in [0, 2], got 5",
    ),
    "sizes of inner": (
        lambda: fnp.inner(M, X),
        ValueError,
        "inner: expected equal sizes along the axes that are summed, got axes (1,) of f32[3,2] and (0,) of f32[4]",
    ),
    "shapes to stack": (
        lambda: fnp.stack([X, M]),
        ValueError,
        "stack: expected arrays of one shape, got f32[4] and f32[3,2]",
    ),
    "no sequence to concatenate": (
        lambda: fnp.concatenate(5),  # type: ignore[arg-type]  # that is the point
        TypeError,
        "concatenate: expected a sequence of arrays, got 5",
    ),
    "indices along an axis": (
        lambda: fnp.take_along_axis(M, X, 0),
        TypeError,
        "take_along_axis: expected integer indices with the axes of f32[3,2], got f32[4]",
    ),
    "axes of indices": (
        lambda: fnp.take_along_axis(M, np.zeros(1, int), 0),
        ValueError,
        "take_along_axis: expected integer indices with the axes of f32[3,2], got i64[1]",
    ),
    "axes to count": (
        lambda: fnp.bincount(np.zeros((2, 2), int)),
        ValueError,
        "bincount: expected a vector of integers, got i64[2,2]",
    ),
    "shapes of keys": (
        lambda: fnp.lexsort((X, X[:2])),
        ValueError,
        "sort: expected arrays of one shape, got f32[2] and f32[4] and i32[4]",
    ),
    "shifts": (
        lambda: fnp.roll(M, (1, 2, 3), (0, 1)),
        ValueError,
        "roll: expected a shift for each of (0, 1), got 3: (1, 2, 3)",
    ),
    "axis of cumsum": (
        lambda: fnp.cumsum(X, axis=2),
        ValueError,
        "cumsum: expected `axis` in [-1, 1) for 1 axes, got 2",
    ),
    "axis of flip": (
        lambda: fnp.flip(M, 4),
        ValueError,
        "flip: expected `axis` in [-2, 2) for 2 axes, got 4",
    ),
    "axis of unstack": (
        lambda: fnp.unstack(X, axis=2),
        ValueError,
        "unstack: expected `axis` in [-1, 1) for 1 axes, got 2",
    ),
    "shift of roll": (
        lambda: fnp.roll(X, 1.5),
        TypeError,
        "roll: expected `shift` to be integers, got f32*[]",
    ),
    "times of tile": (
        lambda: fnp.tile(X, -1),
        ValueError,
        "tile: expected no negative numbers in `reps`, got -1",
    ),
    "greatest of nothing": (
        lambda: fnp.max(X[:0]),
        ValueError,
        "max: expected at least one element along axes (0,), got f32[0]",
    ),
    "part of a quantile": (
        lambda: fnp.quantile(X, "a"),  # type: ignore[arg-type]  # that is the point
        TypeError,
        "quantile: expected `q` to be a number known while tracing, got 'a'",
    ),
    "times of diff": (
        lambda: fnp.diff(X, n=-1),
        ValueError,
        "diff: expected `n` not to be negative, got -1",
    ),
    "number of linspace": (
        lambda: fnp.linspace(0, 1, 2.5),  # type: ignore[arg-type]  # that is the point
        TypeError,
        "linspace: expected `num` to be an integer, got 2.5",
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
        "normal: expected a key, an array of two uint32 words, got f32[4]; see `vmap` for many",
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
    "number of classes": (
        lambda: nn.one_hot(1, 2.5),  # type: ignore[arg-type]  # that is the point
        TypeError,
        "one_hot: expected `num_classes` to be an integer, got 2.5",
    ),
    "points": (
        lambda: fnp.interp(X, X, X[1:]),
        ValueError,
        "interp: expected `xp` and `fp` to be vectors of one size, got f32[4] and f32[3]",
    ),
    "coefficients": (
        lambda: fnp.polyval(1.0, X),
        ValueError,
        "polyval: expected `p` to be a vector, got f32[]",
    ),
}


KNOWN: dict[str, tuple[Callable[[Any], object], str]] = {
    "zeros": (fnp.zeros, "shape"),
    "reshape": (lambda n: X.reshape(n, -1), "shape"),
    "sum": (lambda n: fnp.sum(CUBE, axis=n), "axis"),
    "arange": (fnp.arange, "stop"),
    "linspace": (lambda n: fnp.linspace(0, 1, n), "num"),
    "tile": (lambda n: fnp.tile(X, n), "reps"),
    "roll": (lambda n: fnp.roll(CUBE, 1, axis=n), "axis"),
    "split": (lambda n: fnp.split(X, n), "indices_or_sections"),
    "repeat": (lambda n: fnp.repeat(X, n), "repeats"),
    "top_k": (lambda n: fnp.top_k(X, n), "k"),
    "normal": (lambda n: random.normal(KEY, (n,)), "shape"),
}


@pytest.mark.parametrize(("fun", "use", "name"), [(f, *case) for f, case in KNOWN.items()])
def test_a_traced_integer_where_a_known_one_is_needed(
    fun: str, use: Callable[[Any], object], name: str
) -> None:
    assert_misuse(
        lambda: jit(lambda n: use(n))(2),
        ConcretizationError,
        f"{fun}: expected `{name}` to be known while tracing, got Traced<i32*[]>; if it comes from an argument, name "
        "that one in static_argnums",
        within=use if use.__name__ == "<lambda>" else None,
    )
    assert jit(use, static_argnums=0)(2) is not None


@pytest.mark.parametrize(("call", "kind", "message"), CASES.values(), ids=CASES)
def test_bad_input(call: Callable[[], object], kind: type[Exception], message: str) -> None:
    assert_misuse(call, kind, message)
