"""`disable_jit`: bodies run as plain Python on elements that are known, and values and gradients stay the same."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import (
    Tracer,
    closed_call,
    disable_jit,
    grad,
    jit,
    jvp,
    make_jaxpr,
    tree_leaves,
    value_and_grad,
    vmap,
)
from fiveloop.core.extend import Concrete
from fiveloop.loops import cond, for_loop, fori_loop, map, scan, switch, while_loop
from fiveloop.remat import checkpoint
from fiveloop.state import freeze, new_ref
from fiveloop.testing.core.compare import assert_all_close
from fiveloop.testing.core.misuse import raised

X = fnp.asarray(np.linspace(0.5, 2.0, 4))
H = np.asarray(X)
seen: list[Any] = []
untyped_scan: Any = scan
untyped_while: Any = while_loop


def by_for(x: Any) -> Any:
    def body(i: Any, refs: Any) -> None:
        seen.append(refs["y"][i])
        refs["y"][i + 1] = refs["y"][i] * x[i] + 1.0
        refs["total"][...] += refs["y"][i]

    out = for_loop(3, body, {"y": fnp.ones(4, np.float64), "total": fnp.zeros((), np.float64)})
    return (out["y"] ** 2).sum() + out["total"]


def by_reversed_scan(x: Any) -> Any:
    def step(carry: Any, row: Any) -> Any:
        seen.append(carry)
        return carry * row, {"y": carry + row}

    last, ys = scan(step, 1.0, x, reverse=True)
    return last + (ys["y"] * fnp.arange(4.0)).sum()


def by_closed_over_ref(x: Any) -> Any:
    ref = new_ref(x)

    def step(carry: Any, i: Any) -> Any:
        seen.append(carry)
        ref[i] += carry * ref[i - 1]
        return carry + ref[i], None

    last, _ = scan(step, x[0], np.arange(4, dtype=np.int32))
    return last + (freeze(ref) ** 2).sum()


def by_while(x: Any) -> Any:
    def more(carry: Any) -> Any:
        seen.append(carry[0])
        return carry[0] < 3

    return while_loop(more, lambda c: (c[0] + 1, c[1] * c[1].sum()), (0, x))[1].sum()


def by_branches(x: Any) -> Any:
    ref = new_ref(x)

    def double(y: Any) -> Any:
        seen.append(y)
        ref[0] = y[1] * 2.0
        return y * 2.0

    y = cond(x[0] < 1.0, double, lambda y: y, x)
    z = switch(1, [lambda y: y, lambda y: y**2], y)
    return z.sum() + freeze(ref)[0]


def by_calls(x: Any) -> Any:
    @jit
    def inner(y: Any, *, scale: float) -> Any:
        seen.append(y)
        return fnp.sin(y) * scale

    again = checkpoint(lambda y: closed_call(fnp.exp)(inner(y, scale=2.0)))
    return again(x).sum() + fori_loop(0, 3, lambda i, t: t + x[i], 0.0) + map(fnp.cos, x).sum()


WAYS = [by_for, by_reversed_scan, by_closed_over_ref, by_while, by_branches, by_calls]


def forward(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: jvp(f, (x,), (np.ones(4),))


def reverse(f: Callable[..., Any]) -> Callable[..., Any]:
    return value_and_grad(f) if f is not by_while else forward(f)


def batched(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: vmap(f)(fnp.stack([x, 2 * x]))


@pytest.mark.parametrize("transform", [lambda f: f, forward, reverse, batched, jit])
@pytest.mark.parametrize("f", WAYS)
def test_nothing_changes(f: Any, transform: Any) -> None:
    want = tree_leaves(transform(f)(X))
    seen.clear()
    with disable_jit():
        got = tree_leaves(transform(f)(X))
    assert_all_close(got, want)
    assert seen != []


@pytest.mark.parametrize("f", WAYS)
def test_bodies_see_elements(f: Any) -> None:
    seen.clear()
    with disable_jit():
        jit(f)(X)
    assert seen and all(isinstance(x, Concrete) for x in seen)


@pytest.mark.parametrize("f", WAYS)
def test_the_mode_ends_with_its_block(f: Any) -> None:
    with disable_jit():
        f(X)
    seen.clear()
    jit(f)(X)
    assert seen and all(isinstance(x, Tracer) for x in seen)


def test_python_may_branch_on_values_in_bodies() -> None:
    def f(x: Any) -> Any:
        return scan(lambda c, row: (c * row if row > 1.0 else c, None), 1.0, x)[0]

    with disable_jit():
        assert float(np.asarray(f(X))) == np.prod(H[H > 1.0])
        slope = np.asarray(jit(grad(f))(X))
    np.testing.assert_allclose(slope, np.where(H > 1.0, np.prod(H[H > 1.0]) / H, 0.0))


def test_jaxprs_keep_their_loops() -> None:
    with disable_jit():
        text = str(make_jaxpr(lambda x: jit(by_for)(x))(X))
    assert "for[" in text
    assert "closed_call" not in text


def test_a_loop_without_steps() -> None:
    with disable_jit():
        last, ys = untyped_scan(lambda c, x: (c + x, c * x), 1.0, np.zeros((0,)))
    assert float(np.asarray(last)) == 1.0
    assert ys.shape == (0,)


def test_static_arguments_stay_what_they_are() -> None:
    @jit
    def f(x: Any, n: int) -> Any:
        return x * n

    with disable_jit():
        assert float(np.asarray(jit(lambda x, n: x * [1, 2][n], static_argnums=1)(3.0, 1))) == 6.0
        assert f(X, 2).shape == (4,)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: untyped_scan(lambda c, x: (c.astype(np.float32), x), X[0], X), "keep its types"),
        (lambda: untyped_scan(lambda c, x: ((c, c), x), 1.0, X), "keep its structure"),
        (lambda: untyped_scan(lambda c, x: c, 1.0, X), "must return a pair"),
        (lambda: for_loop(2, lambda i, r: r[...], fnp.ones(2)), "must return None"),
        (lambda: untyped_while(lambda c: c < 3, lambda c: c * 1.5, np.int32(1)), "keep its types"),
    ],
)
def test_bad_bodies(call: Callable[[], Any], message: str) -> None:
    with disable_jit(), pytest.raises(TypeError, match=message):
        call()


def test_it_can_be_switched_back() -> None:
    traced: list[bool] = []

    @jit
    def fun(x: Any) -> Any:
        traced.append(isinstance(x, Tracer))
        return x + 1.0

    with disable_jit():
        fun(1.0)
        with disable_jit(False):
            fun(1.0)
        fun(1.0)
    disable_jit(disable=False)(fun)(fnp.ones(2))
    assert traced == [False, True, False, True]


def both(a: Any, b: Any) -> Any:
    a[0], b[0] = 1.0, 2.0
    return a[0] + b[0]


@pytest.mark.parametrize(
    "fun",
    [jit(both), checkpoint(both), closed_call(both), lambda a, b: cond(True, both, both, a, b)],
)
def test_parts_that_overlap_are_refused_as_well(fun: Callable[[Any, Any], Any]) -> None:
    ref = new_ref(fnp.zeros(6))
    for pair in ((ref, ref), (ref.at[:4], ref.at[3:])):
        message = str(raised(partial(fun, *pair))).partition("\n")[0]
        with disable_jit():
            assert str(raised(partial(fun, *pair))).partition("\n")[0] == message
        assert "so that what is written through one would change the other" in message
    with disable_jit():
        assert float(fun(ref.at[:3], ref.at[3:])) == 3.0
