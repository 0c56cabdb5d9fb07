"""Checks of derivatives of functions of pytrees: difference quotients and inner products, to order two.

Values are computed as the user computes them, eagerly or under `jit`. Arguments should be float64: quotients of
float32 say little.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fiveloop.core.api.autodiff import jvp, vjp
from fiveloop.core.arrays.array import as_value
from fiveloop.core.pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

STEP = 1e-4

HostArray = np.ndarray[Any, Any]
Function = Callable[..., Any]


Pushed = tuple[Sequence[Any], Sequence[Any]]
"""Values, and their tangents."""


def check_jvp(
    fun: Function, args: Sequence[Any], *, order: int = 1, rtol: float = 1e-6, seed: int = 0
) -> Pushed:
    """The jvp of `fun` at `args` agrees with central differences, and with `order=2` so does the jvp of the jvp.

    Returns the values and the tangents, in directions that the seed chooses.
    """
    rng = np.random.default_rng(seed)
    flat, leaves = _of_floats(fun, args)
    dots = [_direction(x, rng) for x in leaves]
    outs, outs_dot = jvp(flat, tuple(leaves), tuple(dots))
    _agree("jvp: value", outs, flat(*leaves), 1e-9)
    _agree("jvp: tangent", outs_dot, _quotient(flat, leaves, dots), rtol)
    if order > 1:
        again = lambda *xs: jvp(flat, xs, tuple(dots))[1]
        check_jvp(again, leaves, order=order - 1, rtol=10 * rtol, seed=seed + 1)
    return outs, outs_dot


def check_vjp(
    fun: Function,
    args: Sequence[Any],
    *,
    order: int = 1,
    rtol: float = 1e-6,
    seed: int = 0,
    pushed: Pushed | None = None,
) -> None:
    """The vjp of `fun` at `args` is the transpose of its jvp: `<w, J v> == <J^T w, v>`.

    With `order=2` the same holds of the vjp as a function, whose jvp must also agree with central differences.
    `pushed` is what `check_jvp` has returned for the same function, arguments and seed.
    """
    rng = np.random.default_rng(seed)
    flat, leaves = _of_floats(fun, args)
    dots = [_direction(x, rng) for x in leaves]
    values, outs_dot = pushed or (flat(*leaves), jvp(flat, tuple(leaves), tuple(dots))[1])
    outs, pull = vjp(flat, *leaves)
    _agree("vjp: value", outs, values, 1e-9)
    cts = [_direction(np.asarray(y), rng) for y in outs]
    forward, scale = _inner(cts, outs_dot)
    backward, _ = _inner(pull(cts), dots)
    assert abs(forward - backward) <= rtol * max(1.0, scale), (
        f"vjp: <w, J v> is {forward}, but <J^T w, v> is {backward}"
    )
    if order > 1:
        again = lambda *xs: list(vjp(flat, *xs)[1](cts))
        found = check_jvp(again, leaves, rtol=10 * rtol, seed=seed + 1)
        more: Any = {"order": order - 1, "rtol": 10 * rtol, "seed": seed + 1}
        check_vjp(again, leaves, **more, pushed=found)


def check_grads(fun: Function, args: Sequence[Any], *, order: int = 2, rtol: float = 1e-6) -> None:
    """Both modes, and forward over forward, forward over reverse and reverse over reverse, to the given order."""
    pushed = check_jvp(fun, args, order=order, rtol=rtol)
    check_vjp(fun, args, order=order, rtol=rtol, pushed=pushed)


def _of_floats(fun: Function, args: Sequence[Any]) -> tuple[Function, list[HostArray]]:
    """The function of its float leaves that gives its float leaves; the other leaves stay as they are."""
    leaves, tree = tree_flatten(tuple(args))
    hosts = [np.asarray(as_value(x)) for x in leaves]
    floats = [k for k, x in enumerate(hosts) if x.dtype.kind in "fc"]

    def flat(*xs: Any) -> list[Any]:
        full: list[Any] = list(leaves)
        for k, x in zip(floats, xs, strict=True):
            full[k] = x
        outs = tree_leaves(fun(*tree_unflatten(tree, full)))
        return [y for y in map(as_value, outs) if y.aval.differentiable]

    return flat, [hosts[k] for k in floats]


def _direction(x: HostArray, rng: np.random.Generator) -> HostArray:
    drawn: Any = rng.standard_normal(x.shape)
    if x.dtype.kind == "c":
        drawn = drawn + 1j * rng.standard_normal(x.shape)
    return np.asarray(drawn).astype(x.dtype)


def _quotient(fun: Function, xs: Sequence[HostArray], dots: Sequence[HostArray]) -> list[HostArray]:
    """The central difference of fourth order."""

    def at(h: float) -> list[HostArray]:
        moved = [np.asarray(x + h * t) for x, t in zip(xs, dots, strict=True)]
        return [np.asarray(y) for y in fun(*moved)]

    points = zip(at(-2 * STEP), at(-STEP), at(STEP), at(2 * STEP), strict=True)
    return [np.asarray((a - 8 * b + 8 * c - d) / (12 * STEP)) for a, b, c, d in points]


def _agree(what: str, got: Any, want: Any, rtol: float) -> None:
    for x, y in zip(got, want, strict=True):
        a, b = np.asarray(x), np.asarray(y)
        scale = max(1.0, float(np.abs(b).max(initial=0.0)))
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * scale, err_msg=what)


def _inner(xs: Sequence[Any], ys: Sequence[Any]) -> tuple[float, float]:
    """The real inner product, and the sum of the sizes of its terms."""
    products = [np.asarray(x) * np.asarray(y) for x, y in zip(xs, ys, strict=True)]
    total = sum(float(np.sum(p).real) for p in products)
    return total, sum(float(np.sum(np.abs(p))) for p in products)


def as_float64(tree: Any) -> Any:
    """A pytree with its float leaves in float64."""
    return tree_map(lambda x: _as_float64(np.asarray(x)), tree)


def _as_float64(x: HostArray) -> HostArray:
    return x.astype(np.float64) if x.dtype.kind == "f" else x
