"""`vjp(...).with_refs(...)`: reads of an argument add their cotangents where they have read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import Jaxpr, closed_call, ds, grad, jit, jvp, make_jaxpr, vjp, vmap
from fiveloop.core.extend import jaxprs_in
from fiveloop.loops import cond, fori_loop, scan
from fiveloop.remat import checkpoint
from fiveloop.state import freeze, new_ref

SIZE = 12
X = np.linspace(0.5, 1.5, SIZE)


def product(x: Any, i: Any) -> Any:
    return x[i] * x[i + 1]


def product_of(x: Any, y: Any) -> Any:
    return x[0] * y[1]


READS: dict[str, Any] = {
    "one": lambda x, i: fnp.sin(x[i]),
    "two": product,
    "the same twice": lambda x, i: x[i] * x[i],
    "known": lambda x, i: x[3] * x[-1] * x[i],
    "slices": lambda x, i: (x[2:5] * x[1:7:2]).sum() * i,
    "windows": lambda x, i: (x[ds(i, 3)] * x[ds(i + 5, 3)]).sum(),
    "call": lambda x, i: closed_call(product)(x, i) * jit(product)(x, i + 1),
    "checkpoint": lambda x, i: checkpoint(product)(x, i) ** 2,
    "branches": lambda x, i: cond(i > 1, lambda: product(x, i), lambda: x[0] * x[i]),
    "loop": lambda x, i: fori_loop(0, 3, lambda j, c: c * x[i + j] * x[i], 1.0),
    "scan": lambda x, i: scan(lambda c, j: (c * x[j], x[i] * c), 1.0, fnp.arange(3))[1].sum(),
    "loop in a call": jit(lambda x, i: fori_loop(0, 2, lambda j, c: c + product(x, j), 1.0) * i),
}
WHOLE: dict[str, Any] = {
    "picks": lambda x, i: (x[fnp.stack([i, i + 1, i])] * x[fnp.stack([i + 1, i, i])]).sum(),
    "given twice": lambda x, i: jit(lambda a, b: a[i] * b[i + 1])(x, x),
    "given twice to branches": lambda x, i: cond(i > 1, lambda a, b: a[i] * b[0], product_of, x, x),
    "given twice in a loop": lambda x, i: fori_loop(
        0, 3, lambda j, c: c * closed_call(lambda a, b: a[i] * b[j])(x, x), 1.0
    ),
    "whole beside a read": lambda x, i: (x * x).sum() * x[i],
    "written": lambda x, i: (x.at[i].set(x[2]) ** 2).sum(),
    "not at all": lambda x, i: i * 2.0,
    "carried": lambda x, i: fori_loop(0, 3, lambda j, c: c.at[j].add(c[j + 1] * c[i]), x).sum(),
}


def summed(f: Any, start: Any) -> Any:
    """A loop that adds the gradients of steps to a Ref."""

    def run(x: Any) -> Any:
        total = new_ref(start)

        def step(i: Any, _: Any) -> Any:
            value, back = vjp(lambda x: f(x, i), x)
            back.with_refs(total)(fnp.ones_like(value))
            return _

        fori_loop(0, 4, step, 0)
        return freeze(total)

    return run


def wanted(f: Any) -> Any:
    return 1.0 + sum(np.asarray(grad(lambda x, i=i: f(x, i))(X)) for i in range(4))


@pytest.mark.parametrize("f", [*READS.values(), *WHOLE.values()], ids=[*READS, *WHOLE])
def test_cotangents_are_added_to_a_ref(f: Any) -> None:
    want = wanted(f)
    run = summed(f, fnp.ones(SIZE, np.float64))
    np.testing.assert_allclose(np.asarray(jit(run)(X)), want)
    eager = new_ref(np.ones(SIZE))
    for i in range(4):
        value, back = vjp(f, X, i)
        back.with_refs(eager, None)(fnp.ones_like(value))
    np.testing.assert_allclose(np.asarray(eager[...]), want)


def made(jaxpr: Jaxpr) -> list[tuple[Any, ...]]:
    """The shapes of all values that equations make, and write to Refs, at any depth."""
    # What a loop holds in the end it has changed in place.
    own = [v.aval.shape for e in jaxpr.eqns if e.primitive.name != "for" for v in e.outvars]
    added = [
        eqn.invars[1].aval.shape
        for eqn in jaxpr.eqns
        if eqn.primitive.name in ("addupdate", "swap")
    ]
    return own + added + [s for e in jaxpr.eqns for j in jaxprs_in(e.params) for s in made(j)]


@pytest.mark.parametrize("f", READS.values(), ids=READS)
def test_reads_make_nothing_of_the_size_of_the_argument(f: Any) -> None:
    def back(x: Any, total: Any, i: Any) -> Any:
        vjp(lambda x: f(x, i), x)[1].with_refs(total)(np.ones(()))

    assert (SIZE,) not in made(make_jaxpr(back)(X, new_ref(X), 1))


def test_an_eager_gradient_is_added_in_place() -> None:
    total = new_ref(np.zeros(SIZE))
    total[0] = 1.0
    address = np.asarray(total.array).ctypes.data  # type: ignore[attr-defined]  # of a Ref that exists now
    vjp(lambda x: x[1] * x[2], X)[1].with_refs(total)(1.0)
    np.testing.assert_allclose(np.asarray(total[:3]), [1.0, X[2], X[1]])
    assert np.asarray(total.array).ctypes.data == address  # type: ignore[attr-defined]  # as above


def test_targets_that_are_parts_or_alike_or_read_by_the_function() -> None:
    rows = new_ref(np.zeros((2, SIZE)))
    vjp(lambda x: x[1] * x[2], X)[1].with_refs(rows.at[1])(1.0)
    np.testing.assert_allclose(np.asarray(rows[:, 1]), [0.0, X[2]])
    total = new_ref(np.zeros(SIZE))
    vjp(lambda x, y: jit(lambda: x[1] * y[1])(), X, X + 1)[1].with_refs(total, total)(1.0)
    np.testing.assert_allclose(float(total[1]), 2 * X[1] + 1)
    scale = new_ref(np.full(SIZE, 3.0))

    def reads_twice(x: Any) -> Any:
        return scan(lambda c, i: (c * scale[i] * x[i], None), 1.0, fnp.arange(3))[0]

    def back(x: Any) -> Any:
        vjp(reads_twice, x)[1].with_refs(scale)(np.ones(()))
        return freeze_copy(scale)

    want = 3.0 + np.asarray(grad(reads_twice)(X))
    np.testing.assert_allclose(np.asarray(jit(back)(X)), want)


def freeze_copy(ref: Any) -> Any:
    return ref[...] * 1.0


@pytest.mark.parametrize("name", ["two", "windows", "loop", "checkpoint"])
def test_derivatives_of_gradients_in_refs(name: str) -> None:
    f = READS[name]
    run = summed(f, fnp.zeros(SIZE, np.float64))

    def dense(x: Any) -> Any:
        return sum(grad(lambda x, i=i: f(x, i))(x) for i in range(4))

    for way in (lambda g: jvp(g, (X,), (X,))[1], lambda g: grad(lambda x: (g(x) ** 2).sum())(X)):
        np.testing.assert_allclose(np.asarray(way(run)), np.asarray(way(dense)))  # type: ignore[no-untyped-call]  # lambdas
    lanes = np.stack([X, X + 1])
    want = [np.asarray(dense(lane)) for lane in lanes]
    np.testing.assert_allclose(np.asarray(vmap(run)(lanes)), want)


def test_a_cotangent_is_added_where_a_clamped_read_has_read() -> None:
    def run(x: Any, i: Any) -> Any:
        total = new_ref(fnp.zeros(SIZE, np.float64))
        vjp(lambda x: x[i] * x[ds(i, 3)].sum() * x[-i], x)[1].with_refs(total)(np.ones(()))
        return freeze(total)

    for i in (40, -40, 11, SIZE):
        at, block = int(np.clip(i, 0, SIZE - 1)), int(np.clip(i, 0, SIZE - 3))
        back = int(np.clip(SIZE - i if i > 0 else -i, 0, SIZE - 1))
        want = np.zeros(SIZE)
        want[at] += X[block : block + 3].sum() * X[back]
        want[block : block + 3] += X[at] * X[back]
        want[back] += X[at] * X[block : block + 3].sum()
        np.testing.assert_allclose(np.asarray(jit(run)(X, i)), want)
