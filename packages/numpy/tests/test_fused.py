"""Every fused function gives on arrays, in one program, what it gives jitted, or the same error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiveloop import numpy as fnp
from fiveloop.core import Value, eval_shape, jit, tree_leaves, tree_structure

Call = Callable[..., Any]

FUSED = {
    prefix + name: f
    for module, prefix in ((fnp, ""), (fnp.linalg, "linalg."))
    for name, f in vars(module).items()
    if getattr(f, "__code__", None) is fnp.sin.__code__  # of the one wrapper
}

OTHERS: dict[str, Call] = {
    "append": lambda f, x, y: (f(x, y), f(x, y, 0)),
    "array_split": lambda f, x, y: f(x, 2),
    "astype": lambda f, x, y: (f(x, "float16"), f(x, bool), f(x, np.dtype(np.int64))),
    "average": lambda f, x, y: (f(x), f(x, 0), f(x, weights=y)),
    "bincount": lambda f, x, y: f(x, length=4),
    "broadcast_to": lambda f, x, y: f(x, (2, *x.shape)),
    "clip": lambda f, x, y: (f(x, 1, 2), f(x, None, 2), f(x, y, max=y), f(x, 0.5)),
    "concat": lambda f, x, y: (f([x, y]), f((x, y), -1)),
    "concatenate": lambda f, x, y: (f([x, y]), f((x, y), axis=-1), f([x, y], None)),
    "cross": lambda f, x, y: f(x[..., :3], y[..., :3]),
    "diag": lambda f, x, y: (f(x), f(x, 1)),
    "diff": lambda f, x, y: (f(x), f(x, 2), f(x, axis=0)),
    "divmod": lambda f, x, y: f(x, y),
    "einsum": lambda f, x, y: f("...i,...i->...", x, y),
    "expand_dims": lambda f, x, y: (f(x, 0), f(x, (0, -1))),
    "eye": lambda f, x, y: (f(3), f(2, 3, k=1, dtype=x.dtype)),
    "lexsort": lambda f, x, y: f([x, y]),
    "linspace": lambda f, x, y: (f(x, y, 3), f(x, 2, 3, endpoint=False), f(0, 1, 5), f(0.5, 2.0, num=4)),
    "logspace": lambda f, x, y: f(x, y, 3),
    "moveaxis": lambda f, x, y: f(x, 0, -1),
    "nan_to_num": lambda f, x, y: (f(x), f(x, nan=1.0, posinf=2.0)),
    "linalg.norm": lambda f, x, y: (f(x), f(x, 1), f(x, axis=-1, keepdims=True), f(x, 3.0, -1)),
    "pad": lambda f, x, y: (f(x, 1), f(x, (1, 2), constant_values=3), f(x, 1, "edge")),
    "percentile": lambda f, x, y: f(x, 30),
    "permute_dims": lambda f, x, y: f(x, (0,)),
    "power": lambda f, x, y: (f(x, y), f(x, 2), f(x, 0.5)),
    "put_along_axis": lambda f, x, y: f(x, fnp.zeros(x.shape, int), y),
    "quantile": lambda f, x, y: (f(x, 0.3), f(x, 0.5, -1, method="lower")),
    "repeat": lambda f, x, y: (f(x, 2), f(x, 2, -1)),
    "reshape": lambda f, x, y: (f(x, -1), f(x, (-1, 1))),
    "roll": lambda f, x, y: (f(x, 1), f(x, (1,), (0,))),
    "round": lambda f, x, y: (f(x), f(x, 1), f(x, decimals=-1)),
    "select": lambda f, x, y: f([x > y, x < y], [x, y], 7),
    "split": lambda f, x, y: f(x, [1]),
    "stack": lambda f, x, y: (f([x, y]), f((x, y), axis=-1)),
    "hstack": lambda f, x, y: f([x, y]),
    "vstack": lambda f, x, y: f([x, y]),
    "row_stack": lambda f, x, y: f([x, y]),
    "column_stack": lambda f, x, y: f([x, y]),
    "swapaxes": lambda f, x, y: f(x, 0, -1),
    "take": lambda f, x, y: (f(x, 1), f(x, fnp.asarray([0, 1])), f(x, fnp.asarray([1]), axis=0)),
    "take_along_axis": lambda f, x, y: f(x, fnp.zeros(x.shape, int)),
    "tensordot": lambda f, x, y: (f(x, y, x.ndim), f(x, y, 0)),
    "tile": lambda f, x, y: (f(x, 2), f(x, (2, 1))),
    "top_k": lambda f, x, y: f(x, 1),
    "tri": lambda f, x, y: f(3, dtype=x.dtype),
    "unravel_index": lambda f, x, y: f(x, (2, 3)),
    "where": lambda f, x, y: (f(x > y, x, y), f(x, x, 0), f(x, 0.0, y), f(x > y, 1, 2.0)),
}  # fmt: skip
TWO = {"x", "y"}, {"y", "x"}, {"a", "v"}, {"x", "bins"}
BY_AXIS = {"sum", "prod", "mean", "var", "std", "max", "min", "all", "any", "sort", "cumsum", "argmax"}  # fmt: skip


def _calls(name: str, f: Any, x: Any, y: Any) -> Any:
    """What a function gives of arrays, and of an array and numbers."""
    if name in OTHERS:
        return OTHERS[name](f, x, y)
    code = f.__wrapped__.__code__
    if set(code.co_varnames[: code.co_argcount][:2]) in TWO:
        return f(x, y), f(x, 2), f(-1.5, y) if x.dtype.kind in "fc" else f(y, x)
    return (f(x), f(x, axis=0), f(x, -1)) if name in BY_AXIS else f(x)


def _arrays(dtype: str, shape: tuple[int, ...]) -> list[Value]:
    count = int(np.prod(shape))
    first = np.array([2, 0, 3, 1, -2, 1.5, 2])[:count].reshape(shape)
    second = np.array([1, 2, 0, 1, 3, -0.5, 2])[:count].reshape(shape)
    if dtype[0] in "bu":
        first, second = np.abs(first), np.abs(second)
    return [fnp.asarray(z, dtype) for z in (first, second)]


def _attempt(run: Call, *args: Any) -> Any:
    with np.errstate(all="ignore"):
        try:
            return run(*args)
        except Exception as error:
            return type(error)


def _assert_same(name: str, found: Any, expected: Any) -> None:
    assert tree_structure(found) == tree_structure(expected), name
    for a, b in zip(tree_leaves(found), tree_leaves(expected), strict=True):
        assert a.aval is b.aval, name
        wide = np.complex128 if a.dtype.kind == "c" else np.float64
        rtol = 4 * float(fnp.finfo(a.dtype).eps) if a.dtype.kind in "fcV" else 0
        given, wanted = (np.asarray(z).astype(wide) for z in (a, b))
        np.testing.assert_allclose(given, wanted, rtol=rtol, atol=rtol, err_msg=name)


CASES = [
    ("float32", (2, 3)),
    ("float32", ()),
    ("float32", (0,)),
    ("float16", (3,)),
    ("bfloat16", (4,)),
    ("float64", (3,)),
    ("complex64", (3,)),
    ("int32", (2, 3)),
    ("int64", (3,)),
    ("uint8", (3,)),
    ("bool", (3,)),
]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_fused_calls_give_what_jitted_ones_give(case: int) -> None:
    """All functions on the first case; on each of the others its share of them, as each is a program or several."""
    x, y = _arrays(*CASES[case])
    share = {
        name: f for k, (name, f) in enumerate(FUSED.items()) if not case or k % 10 == case % 10
    }
    expected = {
        name: _attempt(eval_shape, lambda x, y: _calls(name, f, x, y), x, y)  # noqa: B023
        for name, f in share.items()
    }
    works = {name: f for name, f in share.items() if not isinstance(expected[name], type)}
    jitted = jit(lambda x, y: {name: _calls(name, f, x, y) for name, f in works.items()})(x, y)
    for name, f in share.items():
        found, again = (_attempt(_calls, name, f, x, y) for _ in range(2))
        if name in works:
            _assert_same(name, found, jitted[name])
            _assert_same(name, again, jitted[name])
        else:
            assert found is again is expected[name], name
