"""No write passes a read of its array: neither one that depends on nothing, nor a read for a whole array alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiveloop.core import grad, jit, vmap
from fiveloop.core.backend.gate import WholeCopy, array_copies
from fiveloop.core.primitives.special import tanh
from fiveloop.loops import for_loop, fori_loop, scan

SIZE = 64
RNG = np.random.default_rng(0)
X, Y, Z = (RNG.normal(size=SIZE) for _ in range(3))


def copies(f: Callable[..., Any], *args: Any) -> list[WholeCopy]:
    """The copies of arrays in loops, also of a program that needs no order."""
    return array_copies(jit(lambda *args: f(*args)).lower(*args).compile().as_text())


def number(r: Any, i: Any, z: Any) -> None:
    r[i] = 0.0


def another_array(r: Any, i: Any, z: Any) -> None:
    r[i] = z[i]


def twice(r: Any, i: Any, z: Any) -> None:
    r[i] = z[i]
    r[SIZE - 1 - i] = 2.0


def counter(r: Any, i: Any, z: Any) -> None:
    r[i] = i * 1.0


WRITES = (number, another_array, twice, counter)


def program(write: Callable[[Any, Any, Any], None]) -> Callable[..., Any]:
    """A loop that reads an element, ends the phase with a whole array, and then writes there."""

    def run(x: Any, y: Any, z: Any) -> Any:
        def body(i: Any, refs: Any) -> None:
            r, s = refs
            s[...] = s[...] * 0.5 + r[i]
            write(r, i, z)
            s[...] = s[...] + 1.0

        return for_loop(SIZE, body, (x, y))

    return run


@pytest.mark.parametrize("write", WRITES)
def test_no_array_is_copied(write: Callable[[Any, Any, Any], None]) -> None:
    assert not copies(program(write), X, Y, Z)


@pytest.mark.parametrize("write", WRITES)
def test_the_results_are_those_of_numpy(write: Callable[[Any, Any, Any], None]) -> None:
    r, s = X.copy(), Y.copy()
    for i in range(SIZE):
        s = s * 0.5 + r[i]
        write(r, i, Z)
        s = s + 1.0
    for got, want in zip(jit(program(write))(X, Y, Z), (r, s), strict=True):
        np.testing.assert_allclose(got, want)


def one_reads_the_other(r: Any, q: Any, s: Any, i: Any) -> None:
    s[...] = s[...] * 0.5 + r[i]
    q[i] = r[i] * 2.0
    r[i] = tanh(r[i])


def both_read_both(r: Any, q: Any, s: Any, i: Any) -> None:
    s[...] = s[...] * 0.5 + r[i] * q[i]
    q[i] = r[i] * 2.0 + 1.0
    r[i] = q[i] * 3.0


def numbers(r: Any, q: Any, s: Any, i: Any) -> None:
    s[...] += tanh(r[i]) * q[i]
    q[i] = 1.0
    r[i] = 3.0


def elsewhere(r: Any, q: Any, s: Any, i: Any) -> None:
    s[...] = s[...] * 0.5 + r[SIZE - 1 - i]
    q[i] += r[i]
    r[i] = 3.0 * q[i]


def alone(r: Any, q: Any, s: Any, i: Any) -> None:
    s[...] = s[...] * 0.5 + r[i]
    r[i] = tanh(r[i])


def alone_with_a_number(r: Any, q: Any, s: Any, i: Any) -> None:
    s[...] = s[...] * 0.5 + r[i]
    r[i] = 2.0


STEPS = (one_reads_the_other, alone, alone_with_a_number, both_read_both, numbers, elsewhere)


@pytest.mark.parametrize("step", STEPS)
def test_what_is_carried_whole_reads_before_the_writes(step: Callable[..., None]) -> None:
    def run(*args: Any) -> Any:
        return for_loop(SIZE, lambda i, refs: step(*refs, i), args)

    assert not copies(run, X, Y, Z)
    want = [X.copy(), Y.copy(), Z.copy()]
    for i in range(SIZE):
        step(*want, i)
    for got, x in zip(jit(run)(X, Y, Z), want, strict=True):
        np.testing.assert_allclose(got, x)


@pytest.mark.parametrize("made", [lambda c: c[0], lambda c: c.sum(), lambda c: tanh(c @ c)])
def test_a_write_of_what_is_carried_whole_comes_after_a_read(made: Callable[[Any], Any]) -> None:
    """To read `s` as a whole ends the phase that reads `r[i]`; what is made of `s` has not passed its order."""

    def run(r: Any, s: Any) -> Any:
        def body(i: Any, refs: Any) -> None:
            r, s = refs
            old = tanh(r[i])
            carried = s[...]
            r[i] = made(carried)
            s[...] = 0.5 * carried + old

        return for_loop(SIZE, body, (r, s))

    s = np.linspace(0.0, 1.0, SIZE // 2)
    assert not copies(run, X, s)
    r, want = X.copy(), s
    for i in range(SIZE):
        r[i], want = made(want), 0.5 * want + np.tanh(r[i])
    for got, x in zip(jit(run)(X, s), (r, want), strict=True):
        np.testing.assert_allclose(got, x)


def relaxed(a: Any) -> Any:
    """A sweep of Gauss and Seidel: what a cell gets, the next one reads."""

    def row(i: Any, r: Any) -> None:
        def cell(j: Any, _: Any) -> None:
            above, below = r[i, j + 1], r[i + 2, j + 1]
            r[i + 1, j + 1] = 0.25 * (above + below + r[i + 1, j] + r[i + 1, j + 2])

        for_loop(a.shape[1] - 2, cell, ())

    return for_loop(a.shape[0] - 2, row, a)


def summed_paths(a: Any) -> Any:
    """A table of which a cell adds up two neighbours."""

    def cell(i: Any, j: Any, d: Any) -> Any:
        return d.at[i + 1, j + 1].set(0.5 * d[i, j + 1] + 0.5 * d[i + 1, j] + 1.0 * i)

    inner = a.shape[1] - 1
    return fori_loop(
        0, a.shape[0] - 1, lambda i, d: fori_loop(0, inner, lambda j, d: cell(i, j, d), d), a
    )


TABLE = RNG.normal(size=(40, 12)).astype(np.float32)


@pytest.mark.parametrize("f", [relaxed, summed_paths])
def test_what_is_carried_on_and_written_reads_before_the_write(f: Callable[[Any], Any]) -> None:
    want = TABLE.astype(np.float64)
    for i in range(want.shape[0] - 2 if f is relaxed else want.shape[0] - 1):
        for j in range(want.shape[1] - 2 if f is relaxed else want.shape[1] - 1):
            near = want[i, j + 1], want[i + 1, j]
            if f is relaxed:
                want[i + 1, j + 1] = 0.25 * (sum(near) + want[i + 2, j + 1] + want[i + 1, j + 2])
            else:
                want[i + 1, j + 1] = 0.5 * sum(near) + i
    np.testing.assert_allclose(jit(f)(TABLE), want, rtol=1e-5, atol=1e-5)
    assert not copies(f, TABLE)
    assert not copies(grad(lambda a: (f(a) ** 2).sum()), TABLE)
    assert not copies(vmap(f), np.stack([TABLE, TABLE]))


@pytest.mark.parametrize("axis", [0, 1])
def test_the_gradient_of_a_batch_of_scans_copies_nothing(axis: int) -> None:
    w = RNG.normal(size=(16, 16)).astype(np.float32)
    xs = RNG.normal(size=(8, 8, 16)).astype(np.float32)

    def loss(w: Any) -> Any:
        def run(xs: Any) -> Any:
            step: Any = lambda h, x: (tanh(h @ w + x @ w), h)
            return (scan(step, np.zeros(16, np.float32), xs)[1] ** 2).sum()

        return vmap(run, in_axes=axis)(xs).sum()

    assert not copies(grad(loss), w)
