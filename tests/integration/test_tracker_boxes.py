"""Every box of the plan to build scan out of a loop over mutable references, ticked by a test of its name.

A test looks at the program that a rule makes, and at the numbers that it gives. Where no compiler is named, the
oracle runs the program: NumPy, with Refs that are mutable arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import Jaxpr, closed_call, grad, jit, jvp, make_jaxpr, vmap
from fiveloop.core.extend import (
    batch_jaxpr,
    jaxprs_in,
    jvp_jaxpr,
    linearize_jaxpr,
    transpose_jaxpr,
    typecheck,
)
from fiveloop.loops import for_loop, scan
from fiveloop.remat import checkpoint, policies
from fiveloop.state import (
    AbstractRef,
    AccumEffect,
    ReadEffect,
    WriteEffect,
    addupdate,
    discharge_state,
    get,
    new_ref,
    swap,
)
from fiveloop.testing.core.gradcheck import check_grads
from fiveloop.testing.core.oracle import Cell, run_jaxpr
from fiveloop.testing.loops import references as loop_references
from fiveloop.testing.remat import references as remat_references

assert loop_references.__name__ != remat_references.__name__

X = np.array([0.5, -1.0, 2.0, 0.25], np.float32)
ROWS = np.stack([X, 10 * X, X - 1])
DOT = np.array([1.0, -2.0, 0.5, 3.0], np.float32)
ONE = np.float32(7.0)


def assert_same(got: Any, want: Any) -> None:
    """Equal but for rounding."""
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-5, atol=1e-6)


def names(jaxpr: Jaxpr) -> list[str]:
    """The primitives of a jaxpr, those of jaxprs within after the equation that holds them."""
    found: list[str] = []
    for eqn in jaxpr.eqns:
        found += [eqn.primitive.name, *[n for inner in jaxprs_in(eqn.params) for n in names(inner)]]
    return found


def loops(jaxpr: Jaxpr) -> Iterator[Any]:
    """The loops of a jaxpr, at any depth."""
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "for":
            yield eqn
        for inner in jaxprs_in(eqn.params):
            yield from loops(inner)


def loop_of(jaxpr: Jaxpr) -> Any:
    """The only loop of a jaxpr."""
    (found,) = loops(jaxpr)
    return found


def run(jaxpr: Jaxpr, *args: Any) -> tuple[list[Any], list[Any]]:
    """What the oracle gives for a jaxpr, and what its Refs hold in the end; the jaxpr is checked."""
    typecheck(jaxpr)
    given = [
        Cell(np.array(x)) if isinstance(v.aval, AbstractRef) else np.asarray(x, v.aval.dtype)
        for v, x in zip(jaxpr.invars, args, strict=True)
    ]
    return run_jaxpr(jaxpr, given), [x.array for x in given if isinstance(x, Cell)]


def stateful(fun: Callable[..., Any], *args: Any) -> Jaxpr:
    """The jaxpr of a function whose first argument is a Ref of X."""
    return make_jaxpr(fun)(new_ref(X), *args)


GET = stateful(lambda r, i: get(r, i), np.int32(1))
SWAP = stateful(lambda r, i, x: swap(r, i, x), np.int32(1), ONE)
ADD = stateful(lambda r, i, x: addupdate(r, i, x), np.int32(1), ONE)


# get, swap, addupdate


def test_get_impl() -> None:
    ref = new_ref(X)
    assert_same(get(ref, 2), X[2])
    assert_same(get(ref, slice(1, 3)), X[1:3])
    assert_same(ref[...], X)


def test_swap_impl() -> None:
    ref = new_ref(X)
    assert_same(swap(ref, 2, ONE), X[2])
    assert_same(ref[...], [0.5, -1.0, 7.0, 0.25])


def test_addupdate_impl() -> None:
    ref = new_ref(X)
    addupdate(ref, np.array([1, 1, 3]), np.array([1, 2, 4], np.float32))
    assert_same(ref[...], [0.5, 2.0, 2.0, 4.25])


def test_get_abstract_eval() -> None:
    assert names(GET) == ["get"]
    assert [str(a) for a in GET.out_avals] == ["f32[]"]
    assert GET.effects == {ReadEffect(0)}
    assert_same(run(GET, X, 1)[0], [-1.0])


def test_swap_abstract_eval() -> None:
    assert names(SWAP) == ["get", "swap"]  # a read at run time is clamped, a write is left out
    assert [str(a) for a in SWAP.out_avals] == ["f32[]"]
    assert SWAP.effects == {ReadEffect(0), WriteEffect(0)}
    outs, (held,) = run(SWAP, X, 1, ONE)
    assert_same(outs, [-1.0])
    assert_same(held, [0.5, 7.0, 2.0, 0.25])


def test_addupdate_abstract_eval() -> None:
    assert names(ADD) == ["addupdate"]
    assert ADD.out_avals == []
    assert ADD.effects == {AccumEffect(0, "add")}
    assert_same(run(ADD, X, 1, ONE)[1], [[0.5, 6.0, 2.0, 0.25]])


def test_get_jvp() -> None:
    made, nonzero = jvp_jaxpr(GET, (True, False))
    assert (names(made), nonzero) == (["get", "get"], (True,))
    assert_same(run(made, X, 1, DOT)[0], [-1.0, -2.0])


def test_swap_jvp() -> None:
    made, nonzero = jvp_jaxpr(SWAP, (True, False, True))
    assert (names(made), nonzero) == (["get", "get", "swap", "swap"], (True,))
    outs, held = run(made, X, 1, ONE, DOT, np.float32(5))
    assert_same(outs, [-1.0, -2.0])
    assert_same(held, [[0.5, 7.0, 2.0, 0.25], [1.0, 5.0, 0.5, 3.0]])


def test_addupdate_jvp() -> None:
    made, _ = jvp_jaxpr(ADD, (True, False, True))
    assert names(made) == ["addupdate", "addupdate"]
    assert_same(run(made, X, 1, ONE, DOT, np.float32(5))[1], [[0.5, 6, 2, 0.25], [1, 3, 0.5, 3]])


def test_get_transpose() -> None:
    made, _ = transpose_jaxpr(GET, (True, False), (True,))
    assert names(made) == ["addupdate"]
    assert_same(run(made, DOT, 1, ONE)[1], [[1.0, 5.0, 0.5, 3.0]])


def test_swap_transpose() -> None:
    made, nonzero = transpose_jaxpr(SWAP, (True, False, True), (True,))
    assert (names(made), nonzero[2]) == (["swap", "addupdate"], True)
    # What was written takes the cotangent of what is held; what was held takes that of the result.
    outs, (held,) = run(made, DOT, 1, ONE)
    assert_same(outs, [-2.0])
    assert_same(held, [1.0, 7.0, 0.5, 3.0])


def test_addupdate_transpose() -> None:
    made, nonzero = transpose_jaxpr(ADD, (True, False, True), ())
    assert (names(made), nonzero[2]) == (["get"], True)
    outs, (held,) = run(made, DOT, 1)
    assert_same(outs, [-2.0])
    assert_same(held, DOT)


LANES = np.array([0, 3, 3], np.int32)


def test_get_vmap() -> None:
    made, batched = batch_jaxpr(GET, 3, (True, True))
    assert (names(made), batched) == (["get"], (True,))
    assert_same(run(made, ROWS, LANES)[0], [ROWS[np.arange(3), LANES]])


def test_swap_vmap() -> None:
    made, batched = batch_jaxpr(SWAP, 3, (True, True, True))
    assert (names(made), batched) == (["get", "swap"], (True,))
    new = np.array([7, 8, 9], np.float32)
    want = ROWS.copy()
    want[np.arange(3), LANES] = new
    outs, (held,) = run(made, ROWS, LANES, new)
    assert_same(outs, [ROWS[np.arange(3), LANES]])
    assert_same(held, want)


def test_addupdate_vmap() -> None:
    # Into a Ref that lanes share, each adds its own.
    made, _ = batch_jaxpr(ADD, 3, (False, True, True))
    assert names(made) == ["addupdate"]
    assert_same(run(made, X, LANES, np.array([7, 8, 9], np.float32))[1], [[7.5, -1.0, 2.0, 17.25]])


# discharge


def test_discharge_basic() -> None:
    def fun(ref: Any, x: Any) -> Any:
        old = swap(ref, 0, x)
        ref[1] += old
        return ref[1] * 2

    pure = discharge_state(stateful(fun, ONE))
    assert pure.effects == frozenset()
    assert {"get", "swap", "addupdate"}.isdisjoint(names(pure))
    assert [str(a) for a in pure.in_avals] == ["f32[4]", "f32[]"]
    out, held = run(pure, X, ONE)[0]
    assert_same(out, -1.0)
    assert_same(held, [7.0, -0.5, 2.0, 0.25])


def test_discharge_higher_order() -> None:
    def body(i: Any, r: Any) -> None:
        r[i + 1] += r[i]

    def fun(ref: Any) -> Any:
        def call() -> Any:
            ref[...] = for_loop(3, body, ref[...])
            return ref[3]

        return checkpoint(lambda: closed_call(call)())()

    pure = discharge_state(stateful(fun))
    assert pure.effects == frozenset()
    assert {"get", "swap", "addupdate"}.isdisjoint(names(pure))
    assert {"checkpoint", "closed_call", "for"} <= set(names(pure))
    out, held = run(pure, X)[0]
    assert_same(held, np.cumsum(X))
    assert_same(out, np.cumsum(X)[3])


# for


def recurrence(i: Any, r: Any) -> None:
    r[i + 1] = fnp.sin(r[i])


def by_hand(x: Any) -> Any:
    out = np.array(x)
    for k in range(3):
        out[k + 1] = np.sin(out[k])
    return out


def loop(x: Any) -> Any:
    return for_loop(3, recurrence, x)


def test_for_impl() -> None:
    assert_same(loop(X), by_hand(X))
    assert_same(for_loop(0, recurrence, X), X)


def test_for_abstract_eval() -> None:
    jaxpr = make_jaxpr(loop)(X)
    eqn = loop_of(jaxpr)
    assert (eqn.params.nsteps, jaxpr.effects) == (3, frozenset())
    assert [str(a) for a in jaxpr.out_avals] == ["f32[4]"]
    assert eqn.params.body.effects == {ReadEffect(1), WriteEffect(1)}
    assert_same(run(jaxpr, X)[0], [by_hand(X)])


def test_for_lowering() -> None:
    lowered = jit(loop).lower(X)
    assert lowered.as_text().count("stablehlo.while") == 1
    assert lowered.compile().copies == 0
    assert_same(jit(loop)(X), by_hand(X))


def test_for_jvp() -> None:
    made, nonzero = jvp_jaxpr(make_jaxpr(loop)(X), (True,))
    assert nonzero == (True,)
    assert loop_of(made).params.body.effects == {
        f(k) for f in (ReadEffect, WriteEffect) for k in (1, 2)
    }
    out, dot = run(made, X, DOT)[0]
    want = np.array(DOT)
    for k in range(3):
        want[k + 1] = np.cos(by_hand(X)[k]) * want[k]
    assert_same(out, by_hand(X))
    assert_same(dot, want)


def halves(fun: Callable[..., Any], *args: Any, unknown: Sequence[bool] = (True,)) -> Any:
    """The known and the linear half of a derivative, and what is passed between them."""
    jaxpr = make_jaxpr(fun)(*args)
    known, linear, _, count = linearize_jaxpr(jaxpr, tuple(unknown))
    return known, linear, known.outvars[len(known.outvars) - count :]


def stacked(known: Jaxpr, residuals: Sequence[Any], steps: int) -> list[str]:
    """The types of residuals that a loop gives, with a slot for each step."""
    made = {v for eqn in loops(known) for v in eqn.outvars}
    return sorted(str(v.aval) for v in residuals if v in made and v.aval.shape[:1] == (steps,))


def agree(fun: Callable[..., Any], *args: Any, unknown: Sequence[bool] = (True,)) -> None:
    """The halves together are the jvp."""
    known, linear, residuals = halves(fun, *args, unknown=unknown)
    jaxpr = make_jaxpr(fun)(*args)
    dots = [np.full_like(x, 0.5) for x, u in zip(args, unknown, strict=True) if u]
    outs = run(jvp_jaxpr(jaxpr, tuple(unknown))[0], *args, *dots)[0]
    found = run(known, *args)[0]
    count = len(found) - len(residuals)
    got = [*found[:count], *run(linear, *found[count:], *dots)[0]]
    for x, want in zip(got, outs, strict=True):
        assert_same(x, want)


def whole(i: Any, r: Any) -> None:
    r[...] = fnp.sin(r[...]) * 2.0


def test_for_partial_eval_basic() -> None:
    fun = lambda x: for_loop(5, whole, x)
    known, linear, residuals = halves(fun, X)
    assert {"sin", "cos"} <= set(names(known))
    assert {"sin", "cos"}.isdisjoint(names(linear))
    # Of each step one array is kept.
    assert stacked(known, residuals, 5) == ["f32[5,4]"]
    agree(fun, X)


def test_for_partial_eval_loop_invariant_residuals() -> None:
    def fun(x: Any, w: Any) -> Any:
        def body(i: Any, r: Any) -> None:
            r[...] = r[...] * fnp.exp(w)

        return for_loop(5, body, x)

    known, linear, residuals = halves(fun, X, DOT, unknown=(True, False))
    assert stacked(known, residuals, 5) == []
    assert [str(v.aval) for v in residuals] == ["f32[4]"]
    assert "exp" not in names(linear)
    agree(fun, X, DOT, unknown=(True, False))


def test_for_partial_eval_by_reads_and_writes() -> None:
    # The third array is unknown only because the second is written to it, and that only in the second step.
    def body(i: Any, refs: Any) -> None:
        a, b, c, d = refs
        c[...] = fnp.sin(b[...])
        b[...] = b[...] + a[...]
        d[...] = d[...] * 1.5

    def fun(a: Any, d: Any) -> Any:
        return for_loop(4, body, (a, 0 * d, 0 * d, d))

    known, linear, _ = halves(fun, X, DOT, unknown=(True, False))
    (made,) = loops(linear)
    # What is known is neither carried nor computed in the linear loop.
    assert sum(str(v.aval) == "f32[4]" for v in made.outvars) == 3
    assert sum(str(v.aval) == "f32[4]" for v in loop_of(known).outvars) == 4
    agree(fun, X, DOT, unknown=(True, False))


def test_for_partial_eval_residual_passthrough() -> None:
    # What a step reads is what the final state holds there: the residual is the result itself.
    # Rows of few elements are kept once more, which is faster.
    rows = np.outer(X, np.arange(1.0, 17.0)).astype(np.float32)
    known, linear, residuals = halves(loop, rows)
    assert list(residuals) == [known.outvars[0]]
    assert len(loop_of(known).outvars) == 1
    agree(loop, rows)

    # An element of what a loop only reads is read again; the carries before each step are a result as it is.
    def fun(c: Any, xs: Any) -> Any:
        return scan(lambda c, x: (c * x, c), c, xs)

    known, linear, residuals = halves(fun, ONE, X, unknown=(True, True))
    assert set(residuals) == {known.invars[1], known.outvars[1]}
    assert {"sin", "cos"}.isdisjoint(names(linear))
    agree(fun, ONE, X, unknown=(True, True))


def test_for_rematerialised_loop_dependent_values() -> None:
    # What comes from the counter and from constants alone is computed again: nothing is kept of a step.
    def fun(x: Any) -> Any:
        def body(i: Any, r: Any) -> None:
            weight = (2 * i + 1).astype("float32") * fnp.arange(4.0)
            r[...] = r[...] * weight + weight

        return for_loop(5, body, x)

    known, linear, residuals = halves(fun, X)
    assert stacked(known, residuals, 5) == []
    assert {"convert", "mul"} <= set(names(linear))
    agree(fun, X)


def test_for_transpose() -> None:
    _, linear, residuals = halves(loop, X)
    made, nonzero = transpose_jaxpr(linear, (False,) * len(residuals) + (True,), (True,))
    assert nonzero[-1]
    assert loop_of(made).params.reverse
    want = np.array(DOT)
    for k in reversed(range(3)):
        want[k], want[k + 1] = want[k] + np.cos(by_hand(X)[k]) * want[k + 1], 0
    assert_same(grad(lambda x: (loop(x) * DOT).sum())(X), want)
    assert jit(grad(lambda x: (loop(x) * DOT).sum())).lower(X).compile().copies == 0


def test_for_vmap() -> None:
    made, batched = batch_jaxpr(make_jaxpr(loop)(X), 3, (True,))
    assert batched == (True,)
    assert str(loop_of(made).params.body.in_avals[1]) == "Ref{f32[3,4]}"
    assert_same(run(made, ROWS)[0], [[by_hand(x) for x in ROWS]])
    assert_same(vmap(loop)(ROWS), [by_hand(x) for x in ROWS])


def test_for_vmap_of_what_one_state_makes_batched() -> None:
    def body(i: Any, refs: Any) -> None:
        a, b, c = refs
        b[...] += a[...]
        c[...] *= 2.0

    jaxpr = make_jaxpr(lambda a, b, c: for_loop(3, body, (a, b, c)))(X, X, X)
    made, batched = batch_jaxpr(jaxpr, 3, (True, False, False))
    assert batched == (True, True, False)
    assert_same(run(made, ROWS, X, X)[0][1], X + 3 * ROWS)


@pytest.mark.parametrize(
    ("policy", "cosines"),
    [
        (policies.nothing_saveable, 1),
        (policies.everything_saveable, 0),
        (policies.dots_saveable, 1),
    ],
)
def test_for_partial_eval_under_a_policy(policy: Any, cosines: int) -> None:
    def fun(x: Any) -> Any:
        return checkpoint(lambda x: for_loop(5, whole, x).sum(), policy=policy)(x)

    _, linear, _ = halves(fun, X)
    # Slopes are computed again from what a step read, unless the policy has kept them.
    assert names(linear).count("cos") == cosines
    assert_same(grad(fun)(X), grad(lambda x: for_loop(5, whole, x).sum())(X))


def test_for_closed_over_refs() -> None:
    def fun(ref: Any, x: Any) -> Any:
        def body(i: Any, r: Any) -> None:
            ref[i] += r[i]
            r[i] = ref[3 - i] * x

        return for_loop(4, body, X)

    jaxpr = stateful(fun, ONE)
    # The effects on what is closed over are the loop's own; those on its state are not.
    assert jaxpr.effects == {ReadEffect(0), AccumEffect(0, "add")}
    held, state, seen = np.array(X), np.array(X), np.array(X)
    for k in range(4):
        held[k] += state[k]
        seen[k] = held[3 - k]
        state[k] = seen[k] * ONE
    outs, refs = run(jaxpr, X, ONE)
    assert_same(outs, [state])
    assert_same(refs, [held])

    slope = grad(lambda x: (fun(new_ref(X), x) * DOT).sum())(ONE)
    assert_same(slope, (seen * DOT).sum())


def test_for_nested() -> None:
    def triangle(x: Any) -> Any:
        def row(i: Any, r: Any) -> None:
            def column(j: Any, inner: Any) -> None:
                inner[j] = fnp.sin(inner[j]) + r[i]

            r[...] = for_loop(4, column, r[...])

        return for_loop(3, row, x)

    want = np.array(X)
    for i in range(3):
        first = want[i]
        want = np.sin(want) + first
    assert_same(triangle(X), want)
    assert len(list(loops(make_jaxpr(triangle)(X)))) == 2
    check_grads(triangle, (X.astype(np.float64),), order=2)
    assert jit(grad(lambda x: triangle(x).sum())).lower(X).compile().copies == 0


@pytest.mark.parametrize(("unroll", "sines"), [(1, 1), (2, 3), (3, 3), (True, 3)])
def test_for_unrolling(unroll: int, sines: int) -> None:
    def fun(x: Any) -> Any:
        return for_loop(3, recurrence, x, unroll=unroll)

    text = jit(fun).lower(X).as_text()
    # With the steps that are left over, those of a turn stand in the program.
    assert text.count("stablehlo.sine") == sines
    assert_same(jit(fun)(X), by_hand(X))
    assert_same(jit(grad(lambda x: fun(x).sum()))(X), grad(lambda x: loop(x).sum())(X))


def test_scan_on_for() -> None:
    def fun(c: Any, xs: Any) -> Any:
        return scan(lambda c, x: (fnp.sin(c) * x, c + x), c, xs)

    jaxpr = make_jaxpr(fun)(ONE, X)
    assert "for" in names(jaxpr)
    assert {"scan", "while"}.isdisjoint(names(jaxpr))
    carry, ys = ONE, []
    for x in X:
        carry, y = np.sin(carry) * x, carry + x
        ys.append(y)
    final, stack = run(jaxpr, ONE, X)[0]
    assert_same(final, carry)
    assert_same(stack, ys)
    assert_same(jit(fun)(ONE, X)[1], ys)
    check_grads(lambda c, xs: fun(c, xs), (np.float64(0.5), X.astype(np.float64)), order=1)
    assert_same(vmap(fun, in_axes=(None, 0))(ONE, ROWS)[0][0], carry)
    assert np.asarray(jvp(lambda c: fun(c, X)[0], (ONE,), (ONE,))[1]).shape == ()
