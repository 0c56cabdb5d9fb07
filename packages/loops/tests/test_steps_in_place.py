"""Steps that write, read what they have written, and write again: none copies an array."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from fiveloop.core import disable_jit, ds, grad, jit, jvp, make_jaxpr, vmap
from fiveloop.core.backend.gate import array_copies
from fiveloop.core.extend import as_value, broadcast_in_dim
from fiveloop.core.lower.dispatch import prepared
from fiveloop.core.lower.module import Emission, lower_jaxpr
from fiveloop.core.primitives.elementwise import abs as abs_
from fiveloop.core.primitives.special import cos
from fiveloop.loops import cond, for_loop, fori_loop, switch, while_loop

SIZE, LANES = 40, 2
RNG = np.random.default_rng(0)
X = RNG.normal(size=SIZE).astype(np.float32)
XS = RNG.normal(size=(LANES, SIZE)).astype(np.float32)
P = as_value(RNG.integers(0, SIZE, SIZE).astype(np.int32))
PS = as_value(RNG.integers(0, SIZE, (LANES, SIZE)).astype(np.int32))


def swapped(i: Any, y: Any) -> Any:
    one, other = y[i], y[P[i]]
    return y.at[i].set(other).at[P[i]].set(one)


def carried(x: Any) -> Any:
    """A `while` that swaps elements of an array that it carries."""
    return while_loop(lambda c: c[0] < SIZE, lambda c: (c[0] + 1, swapped(*c)), (0, x))[1]


def condition_reads(x: Any) -> Any:
    """The same; the condition reads the array."""
    more = lambda c: (c[0] < SIZE - 1) & (c[1][c[0]] < 9.0)
    return while_loop(more, lambda c: (c[0] + 1, swapped(*c)), (0, x))[1]


def two_carried(x: Any) -> Any:
    """A `while` that follows indices that it changes."""

    def body(c: Any) -> Any:
        i, k, p, y = c
        t = p[k]
        y = y.at[t].set(0.5 * y[k]).at[k].add(y[(k + 1) % SIZE])
        return i + 1, t, p.at[k].set(p[(k + i) % SIZE]), y

    return while_loop(lambda c: c[0] < SIZE, body, (0, 0, P, x))[3]


def while_in_while(x: Any) -> Any:
    """A `while` that carries an array through another one."""

    def body(c: Any) -> Any:
        k, y = c
        y = while_loop(lambda c: c[0] < SIZE, lambda c: (c[0] + 1, swapped(*c)), (k, y))[1]
        return k + 1, y.at[k].set(y[P[k]])

    return while_loop(lambda c: c[0] < 3, body, (0, x))[1]


def while_in_for(x: Any) -> Any:
    """A `while` within a loop."""

    def outer(j: Any, y: Any) -> Any:
        return while_loop(lambda c: c[0] < SIZE, lambda c: (c[0] + 1, swapped(*c)), (j, y))[1]

    return fori_loop(0, 3, outer, x)


def for_in_while(x: Any) -> Any:
    """A loop within a `while`, and a branch that updates."""

    def body(c: Any) -> Any:
        k, y = c
        y = cond(y[k] > 0, lambda y: y.at[P[k]].set(y[k]), lambda y: y, y)
        return k + 1, fori_loop(0, SIZE, swapped, y)

    return while_loop(lambda c: c[0] < 3, body, (0, x))[1]


def read_start(x: Any) -> Any:
    """An element is written, a block read that starts where the array says, and a block written."""

    def body(i: Any, y: Any) -> None:
        y[i] = 0.5 * y[(i + 3) % SIZE]
        start = (abs_(y[(i + 1) % SIZE]) * SIZE).astype(np.int32) % (SIZE - 4)
        y[ds(i % (SIZE - 4), 4)] = 0.7 * y[ds(start, 4)]

    return for_loop(SIZE, body, x)


def element_then_window(x: Any) -> Any:
    """An element is written, then a window updated."""

    def body(i: Any, y: Any) -> None:
        y[i] = cos(y[i]) * y[P[i]]
        y[ds((7 * i) % (SIZE - 4), 4)] *= 1.1

    return for_loop(SIZE, body, x)


def window_unrolled(x: Any) -> Any:
    """A window is read and written, then an element, three steps to a turn."""

    def body(i: Any, y: Any) -> None:
        y[ds(i % (SIZE - 4), 4)] = 0.5 * y[ds((i + 2) % (SIZE - 4), 4)]
        y[P[i]] += 0.3 * y[i]

    return for_loop(SIZE, body, x, unroll=3)


def beside_a_branch(x: Any) -> Any:
    """A branch updates one of three arrays, beside an update of another, three steps to a turn."""

    def body(i: Any, c: Any) -> Any:
        y, z, w = c
        z = cond(w[i] > 0, lambda z: z.at[i].set(y[i]), lambda z: z, z)
        return y.at[i].set(y[P[i]]), z, w.at[i].add(0.1)

    return sum(fori_loop(0, SIZE, body, (x, x * 2, x * 3), unroll=3))


def chased(x: Any) -> Any:
    """In each lane a write, a pointer chased to the next, and a write there."""

    def one(x: Any, p: Any) -> Any:
        def body(i: Any, refs: Any) -> None:
            y, p = refs
            p[i] = p[(i + 1) % SIZE]
            j = p[p[i]]
            p[j] = i
            y[j] = y[i] + 1.0

        return for_loop(SIZE, body, (x, p))[0]

    return vmap(one)(x, PS)


def late_picks(x: Any) -> Any:
    """In each lane a write at a place of its own beside others, and reads after them, which no order keeps apart."""

    def one(x: Any, p: Any) -> Any:
        def outer(i: Any, y: Any) -> None:
            def inner(j: Any, _: Any) -> None:
                k = i * 8 + j
                y[p[k]] = 0.25
                y[-k - 1] = 0.5
                value = cos(y[p[k]]) + y[p[k]]
                y[-k - 1] = value
                y[k] += value

            for_loop(8, inner, ())

        return for_loop(SIZE // 8, outer, x)

    return vmap(one)(x, PS)


def looping(y: Any, i: Any, count: int, add: bool) -> None:
    def inner(j: Any, _: Any) -> None:
        at = (i + 2 * j) % SIZE
        y[at] = 0.5 * y[P[i]] + (y[at] if add else 0.0)

    for_loop(count, inner, ())


def switch_of_loops(x: Any) -> Any:
    """A switch of three branches, of which one loops, and one updates."""

    def body(i: Any, y: Any) -> None:
        def update() -> None:
            y[P[i]] = y[i]

        switch(P[i] % 3, [lambda: None, lambda: looping(y, i, 3, False), update])

    return for_loop(SIZE, body, x)


def loops_in_both(x: Any) -> Any:
    """Two branches that both loop, beside an update of the same array; they return a number."""

    def body(i: Any, refs: Any) -> None:
        y, z = refs

        def branch(count: int, add: bool) -> Any:
            looping(y, i, count, add)
            return y[i] * 2.0

        z[i] += cond(y[P[i]] > 0, lambda: branch(3, False), lambda: branch(4, True))
        y[P[i]] = y[i] + 1.0

    return sum(for_loop(SIZE, body, (x, x)))


def loop_or_carry(x: Any) -> Any:
    """Branches on an array that is carried: one loops, one updates, one does nothing."""

    def body(i: Any, y: Any) -> Any:
        loop = lambda y: fori_loop(0, 3, lambda j, y: y.at[(i + j) % SIZE].set(0.5 * y[P[i]]), y)
        return switch(P[i] % 3, [lambda y: y, loop, lambda y: y.at[i].set(y[P[i]])], y)

    return fori_loop(0, SIZE, body, x)


FORWARD = (carried, condition_reads, two_carried, while_in_while, while_in_for, for_in_while)
ENDS = as_value(np.array([SIZE - 10, SIZE], np.int32))


def lanes_swap(x: Any) -> Any:
    """In each lane a `while` that swaps elements at indices of its own."""
    return _lanes(_swap, x, lambda c, n: c[0] < SIZE)


def lanes_end(x: Any) -> Any:
    """The same; lanes end at different steps, and ask the array whether they do."""
    return _lanes(_swap, x, lambda c, n: (c[0] < n) & (c[2][c[0] % SIZE] < 9.0))


def lanes_follow(x: Any) -> Any:
    """Lanes that end at different steps follow indices that they change, and read between their writes."""

    def step(i: Any, p: Any, y: Any) -> Any:
        t = p[i]
        y = y.at[t].set(0.5 * y[i]).at[i].add(y[(i + 1) % SIZE])
        return p.at[i].set(p[(i + t) % SIZE]), y

    return _lanes(step, x, lambda c, n: c[0] < n)


def lanes_of_rows(x: Any) -> Any:
    """Lanes write blocks of a matrix, of which one index is theirs and the other that of a loop around."""

    def one(x: Any, p: Any, n: Any) -> Any:
        def outer(k: Any, total: Any) -> Any:
            def body(c: Any) -> Any:
                i, m = c
                return i + 1, m.at[k, ds(p[i] % (SIZE - 4), 4)].set(m[k + 1, ds(i % (SIZE - 4), 4)])

            m = while_loop(lambda c: c[0] < n, body, (0, broadcast_in_dim(x, (5, SIZE), (1,))))[1]
            return total + m[k]

        return fori_loop(0, 3, outer, x)

    return vmap(one)(x, PS, ENDS)


def _swap(i: Any, p: Any, y: Any) -> Any:
    one, other = y[i], y[p[i]]
    return p, y.at[i].set(other).at[p[i]].set(one)


def _lanes(step: Any, x: Any, more: Any) -> Any:
    def one(x: Any, p: Any, n: Any) -> Any:
        body = lambda c: (c[0] + 1, *step(*c))
        return while_loop(lambda c: more(c, n), body, (0, p, x))[2]

    return vmap(one)(x, PS, ENDS)


LANES_OF_WHILES = (lanes_swap, lanes_end, lanes_follow, lanes_of_rows)
BOTH = (
    read_start,
    element_then_window,
    window_unrolled,
    beside_a_branch,
    chased,
    late_picks,
    switch_of_loops,
    loops_in_both,
    loop_or_carry,
)
Program = Callable[[Any], Any]


def given(f: Program) -> Any:
    return XS if f in (chased, late_picks, *LANES_OF_WHILES) else X


def forms(f: Program) -> Sequence[Program]:
    gradient = grad(lambda x: (f(x) ** 2).sum())
    if f in FORWARD + LANES_OF_WHILES:
        return f, lambda x: jvp(f, (x,), (x,))[1]
    return f, gradient, lambda x: jvp(gradient, (x,), (x,))[1]


@pytest.mark.parametrize("f", FORWARD + LANES_OF_WHILES + BOTH)
def test_no_step_copies_an_array(f: Program) -> None:
    for form in forms(f):
        compiled = jit(form).lower(given(f)).compile()
        assert not array_copies(compiled.as_text()) and compiled.copies == 0


@pytest.mark.parametrize("f", FORWARD + LANES_OF_WHILES + BOTH)
def test_steps_compute_what_python_does(f: Program) -> None:
    with disable_jit():
        want = f(given(f))
    np.testing.assert_allclose(jit(f)(given(f)), want, rtol=1e-5, atol=1e-5)


def test_a_program_without_an_order_is_read_for_copies() -> None:
    """A `while` of which each step needs all of the array swaps elements in a copy of it, and says so."""

    def body(c: Any) -> Any:
        i, y = c
        return i + 1, swapped(i, y).at[0].add(y.max())

    compiled = jit(lambda x: while_loop(lambda c: c[0] < SIZE, body, (0, x))[1]).lower(X).compile()
    assert compiled.copies == len(array_copies(compiled.as_text())) > 0


def others_swapped(x: Any, others: Any) -> Any:
    """Each element changes places with another one."""

    def body(i: Any, x: Any) -> None:
        x[i], x[others[i]] = x[others[i]], x[i]

    return for_loop(4, body, x)


def others_chased(x: Any, others: Any) -> Any:
    """The same, with the places in an array that changes."""

    def body(i: Any, refs: Any) -> None:
        x, others = refs
        k = others[i]
        x[i], x[k] = x[k], x[i]
        others[i], others[k] = others[k], others[i]

    return for_loop(4, body, (x, others))


@pytest.mark.parametrize(("run", "integers"), [(others_swapped, 0), (others_chased, 4)])
def test_only_places_that_change_pass_a_branch(run: Any, integers: int) -> None:
    """The others would go through memory for nothing."""
    jaxpr = make_jaxpr(run)(np.ones(4, np.float32), np.arange(4, dtype=np.int32))
    text = lower_jaxpr(prepared(jaxpr).ready(), "cpu", Emission.SCALAR_IF).text
    types = text.split('"stablehlo.if"')[1].split("}) : (tensor<i1>) -> ")[1].splitlines()[0]
    assert types.count("tensor<i32>") == integers
    assert types.count("tensor<f32>") == 2
