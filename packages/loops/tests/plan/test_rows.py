"""What an inner loop fills or reads is a row of the outer loop's array where that is the same, and a copy otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiveloop.core import Jaxpr, grad, ir, jit, jvp, make_jaxpr, vmap
from fiveloop.core.primitives.special import sin
from fiveloop.core.transforms import typecheck
from fiveloop.loops import cond, explain, fori_loop, planning, scan, while_loop
from fiveloop.loops.analysis.accesses import is_access
from fiveloop.loops.plan.passes import plan
from fiveloop.loops.primitives.for_loop import for_p
from fiveloop.state import new_ref
from fiveloop.testing.core.gradcheck import check_grads
from fiveloop.testing.core.samples import sample
from fiveloop.testing.loops.laws import check_law_planning

RNG = np.random.default_rng(0)
X: Any = RNG.normal(size=5)
ROWS: Any = RNG.normal(size=(3, 4, 5))

Fun = Callable[..., Any]


def nested(*sizes: int, reverse: bool = False) -> Fun:
    """The sum after scans in each other."""

    def run(x: Any, sizes: tuple[int, ...] = sizes) -> Any:
        if not sizes:
            return sin(x) * 1.1
        step = lambda c, _: (run(c, sizes[1:]), None)
        return scan(step, x, None, length=sizes[0], reverse=reverse)[0]

    return lambda x: run(x).sum()


def stacked(x: Any) -> Any:
    """The outputs of an inner scan, stacked by an outer one."""

    def step(c: Any, _: Any) -> Any:
        return scan(lambda c, _: (sin(c), c * 2), c, None, length=4)

    return scan(step, x, None, length=3)[1]


def read(x: Any, rows: Any) -> Any:
    """Rows that an inner loop reads slot by slot."""
    ref = new_ref(rows)

    def step(i: Any, c: Any) -> Any:
        row = ref[i]
        return fori_loop(0, 4, lambda j, c: sin(c + row[j]), c)

    return fori_loop(0, 3, step, x)


def copies(jaxpr: Jaxpr) -> int:
    """How many rows are read or written whole beside an inner loop, at any depth."""
    found = 0
    for eqn in jaxpr.eqns:
        for inner in ir.jaxprs_in(eqn.params):
            found += copies(inner)
            if any(e.primitive is for_p for e in inner.eqns):
                shapes = [e.params.indexer.result_shape for e in inner.eqns if is_access(e)]
                found += sum(len(shape) > 1 for shape in shapes)
    return found


def copies_of(f: Callable[[], Fun], *args: Any) -> tuple[int, int]:
    """The copies with and without the step."""
    with planning(rows=False):
        without = copies(planned(f(), *args))
    return copies(planned(f(), *args)), without


def planned(f: Fun, *args: Any) -> Jaxpr:
    jaxpr = plan(make_jaxpr(f)(*args))
    typecheck(jaxpr)
    return jaxpr


def assert_same(f: Fun, *args: Any) -> None:
    """The results with and without the step."""
    with planning(rows=False):
        want = jit(lambda *args: f(*args))(*args)
    np.testing.assert_array_equal(np.asarray(jit(f)(*args)), np.asarray(want))


@pytest.mark.parametrize("sizes", [(3, 4), (2, 3, 4), (2, 2, 3, 2), (1, 4), (3, 1), (0, 4), (3, 0)])
@pytest.mark.parametrize("reverse", [False, True])
def test_what_nested_scans_keep_lies_in_the_outer_array(
    sizes: tuple[int, ...], reverse: bool
) -> None:
    f = grad(nested(*sizes, reverse=reverse))
    assert_same(f, X)
    if min(sizes) > 1:
        found = copies_of(lambda: grad(nested(*sizes, reverse=reverse)), X)
        assert found == (0, 2 * (len(sizes) - 1))


def test_derivatives_of_nested_scans() -> None:
    check_grads(nested(2, 3, 2), (X,), order=2)


@pytest.mark.parametrize("axis", [0, 1])
def test_lanes_have_rows_of_their_own(axis: int) -> None:
    x = RNG.normal(size=(5, 5))
    assert_same(vmap(grad(nested(3, 4)), in_axes=axis), x)
    assert copies_of(lambda: vmap(grad(nested(3, 4)), in_axes=axis), x) == (0, 2)


def test_a_direction_through_a_gradient() -> None:
    f = grad(nested(3, 4))
    assert_same(lambda x: jvp(f, (x,), (x * 2,))[1], X)
    assert_same(grad(lambda x: f(x).sum()), X)


def test_stacked_outputs_are_filled_in_place() -> None:
    assert_same(stacked, X)
    assert copies_of(lambda: lambda x: stacked(x), X) == (0, 1)
    assert_same(grad(lambda x: (stacked(x) ** 2).sum()), X)
    check_law_planning(sample(stacked, X))


def test_a_row_that_is_only_read_is_read_where_it_lies() -> None:
    assert_same(read, X, ROWS)
    assert copies_of(lambda: lambda x, rows: read(x, rows), X, ROWS) == (0, 1)
    assert_same(grad(lambda x, rows: read(x, rows).sum(), 1), X, ROWS)


def half_filled(x: Any) -> Any:
    def step(c: Any, _: Any) -> Any:
        y = new_ref(np.ones((8, 5)))
        c = fori_loop(0, 4, lambda j, c: _put(y, 2 * j, c), c)
        return c, y[...]

    return scan(step, x, None, length=3)[1]


def _put(ref: Any, j: Any, c: Any) -> Any:
    ref[j] = c
    return sin(c)


def read_back(x: Any) -> Any:
    def step(c: Any, _: Any) -> Any:
        y = new_ref(np.ones((4, 5)))

        def inner(j: Any, c: Any) -> Any:
            old = y[(j + 1) % 4]
            y[j] = c
            return sin(c + old)

        return fori_loop(0, 4, inner, c), y[...]

    return scan(step, x, None, length=3)[1]


def used_twice(x: Any) -> Any:
    def step(c: Any, _: Any) -> Any:
        c, ys = scan(lambda c, _: (sin(c), c * 2), c, None, length=4)
        return c + ys.sum(0), ys

    return scan(step, x, None, length=3)[1]


def in_a_branch(x: Any) -> Any:
    def step(c: Any, _: Any) -> Any:
        y = new_ref(np.ones((4, 5)))

        def inner(j: Any, c: Any) -> Any:
            cond(c[0] > 0, lambda: _put(y, j, c).sum(), lambda: c.sum())
            return sin(c)

        return fori_loop(0, 4, inner, c), y[...]

    return scan(step, x, None, length=3)[1]


def written_as_it_is_read(x: Any) -> Any:
    ref = new_ref(ROWS)

    def step(i: Any, c: Any) -> Any:
        row = ref[i]

        def inner(j: Any, c: Any) -> Any:
            ref[i, (j + 1) % 4] = c
            return sin(c + row[j])

        return fori_loop(0, 4, inner, c)

    return fori_loop(0, 3, step, x) + ref[...].sum((0, 1))


def read_whole(x: Any) -> Any:
    ref = new_ref(ROWS)

    def step(i: Any, c: Any) -> Any:
        row = ref[i]
        return fori_loop(0, 4, lambda j, c: sin(c + row[j] * row.sum()), c)

    return fori_loop(0, 3, step, x)


@pytest.mark.parametrize(
    "f", [half_filled, read_back, used_twice, in_a_branch, written_as_it_is_read, read_whole]
)
def test_other_arrays_are_copied(f: Fun) -> None:
    assert_same(f, X)
    found, without = copies_of(lambda: lambda x: f(x), X)
    assert found == without > 0


@pytest.mark.parametrize("offset", [0, 1, -1, 5])
def test_a_row_out_of_range_is_left_out(offset: int) -> None:
    """It counts from the end if it is negative; what is read there is the nearest row."""

    def filled(x: Any) -> Any:
        out = new_ref(np.full((3, 4, 5), 7.0))

        def step(i: Any, c: Any) -> Any:
            c, ys = scan(lambda c, _: (sin(c), c * 2), c, None, length=4)
            out[i + offset] = ys
            return c

        fori_loop(0, 3, step, x)
        return out[...]

    def taken(x: Any) -> Any:
        rows = new_ref(ROWS)

        def step(i: Any, c: Any) -> Any:
            row = rows[i + offset]
            return fori_loop(0, 4, lambda j, c: sin(c + row[j]), c)

        return fori_loop(0, 3, step, x)

    assert_same(filled, X)
    assert_same(taken, X)


def test_a_row_at_a_number_that_is_computed_in_the_step() -> None:
    def run(x: Any, n: Any) -> Any:
        out = new_ref(np.zeros((3, 4, 5)))

        def step(i: Any, c: Any) -> Any:
            k = n[i]
            c, ys = scan(lambda c, _: (sin(c), c * 2), c, None, length=4)
            out[k] = ys
            return c

        fori_loop(0, 3, step, x)
        return out[...]

    for n in ([2, 0, 1], [1, 1, 1], [7, -1, -9]):
        assert_same(run, X, np.array(n, np.int32))


def test_rows_in_a_while_loop() -> None:
    def run(x: Any) -> Any:
        out = new_ref(np.zeros((3, 4, 5)))

        def step(s: Any) -> Any:
            i, c = s
            c, ys = scan(lambda c, _: (sin(c), c * 2), c, None, length=4)
            out[i] = ys
            return i + 1, c

        while_loop(lambda s: s[0] < 5, step, (0, x))
        return out[...]

    assert_same(run, X)


def test_a_ref_made_outside_of_the_program() -> None:
    def run(ref: Any, x: Any) -> None:
        def step(i: Any, c: Any) -> Any:
            c, ys = scan(lambda c, _: (sin(c), c * 2), c, None, length=4)
            ref[i] = ys
            return c

        fori_loop(0, 3, step, x)

    results = []
    for on in (True, False):
        ref = new_ref(np.zeros((3, 4, 5)))
        with planning(rows=on):
            jit(run)(ref, X)
        results.append(np.asarray(ref[...]))
    np.testing.assert_array_equal(results[0], results[1])


def test_single_numbers_stay_in_an_array_of_their_own() -> None:
    x = X[:1]
    assert_same(grad(nested(3, 4)), x)
    found, without = copies_of(lambda: grad(nested(3, 4)), x)
    assert found == without == 2


def test_explain_tells_of_rows_that_have_a_name() -> None:
    assert "+ rows: row: it is a row of an array of the loop around" in str(explain(read, X, ROWS))
    assert "+ rows: ys: it becomes a row" in str(explain(stacked, X))
    with planning(rows=False):
        assert "+ rows" not in str(explain(lambda x: stacked(x), X))
