"""Arrays carried through branches, calls, inner loops and early ends: Refs there, that cost what the elements cost."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from fiveloop.core import disable_jit, grad, jit, jvp, make_jaxpr, vmap
from fiveloop.core.extend import jaxprs_in
from fiveloop.core.passes import run_passes
from fiveloop.loops import cond, explain, for_loop, fori_loop, planning, scan, switch
from fiveloop.testing.core.gradcheck import check_grads
from fiveloop.testing.core.samples import sample
from fiveloop.testing.loops.laws import check_function, check_law_planning

N = 40
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, N)
Step = Callable[[Any, Any], Any]

moved = jit(lambda a, i: a.at[i].set(a[i - 1] * 0.9 + a[i]))
swapped = jit(lambda a, i: a.at[i].set(a[(7 * i) % N]).at[(7 * i) % N].set(a[i] * 0.9))


def kept(a: Any) -> Any:
    return a


def chosen_twice(i: Any, a: Any) -> Any:
    return cond(
        i % 3 == 0,
        lambda a: cond(a[i] > 0, lambda a: a.at[i].set(a[i - 1] * a[i]), kept, a),
        lambda a: a.at[i].multiply(0.5),
        a,
    )


def with_result(i: Any, a: Any) -> Any:
    a, y = cond(a[i] > 0, lambda a: (a.at[i].multiply(0.5), a[i - 1]), lambda a: (a, a[i - 2]), a)
    return a.at[i - 1].add(y * 0.3)


def loop_in_branch(i: Any, a: Any) -> Any:
    return cond(i % 3 == 0, lambda a: spread(i, a), kept, a)


def spread(i: Any, a: Any) -> Any:
    return fori_loop(0, 3, lambda k, a: a.at[(i + k) % N].add(a[i] * 0.1), a)


def branch_in_loop(i: Any, a: Any) -> Any:
    step = lambda k, a: cond(a[i] > 0, lambda a: a.at[(i + k) % N].add(a[i] * 0.1), kept, a)
    return fori_loop(0, 3, step, a)


def rows_of(i: Any, a: Any) -> Any:
    change = [kept, lambda a: a.at[i].set(a[i - 1]), lambda a: a.at[i].add(a[0] * 0.5)]
    return switch(i % 3, change, a)


STEPS: dict[str, Step] = {
    "a branch": lambda i, a: cond(i % 3 == 0, lambda a: moved(a, i), kept, a),
    "closed over": lambda i, a: cond(a[i] > 0, lambda: a.at[i].set(a[i - 1] * 0.9), lambda: a),
    "closed over and given": lambda i, a: cond(
        a[i] > 0, lambda b: b.at[i].set(a[i - 1] * 0.9), lambda b: a, a
    ),
    "read in a branch": lambda i, a: a.at[i].set(
        cond(i % 3 == 0, lambda: a[i - 1] * 0.5, lambda: a[i] * 0.9)
    ),
    "both branches": lambda i, a: cond(
        a[i] > 0, lambda a: swapped(a, i), lambda a: a.at[i - 1].add(a[i] * 0.5), a
    ),
    "many branches": rows_of,
    "branches in branches": chosen_twice,
    "another result": with_result,
    "before and after": lambda i, a: moved(cond(a[i] > 0, lambda a: swapped(a, i), kept, a), i - 1),
    "a call": swapped,
    "calls": lambda i, a: swapped(moved(a, i), i - 1),
    "a loop in a branch": loop_in_branch,
    "a branch in a loop": branch_in_loop,
}
STEPS["a call"] = lambda i, a: swapped(a, i)
INNER_LOOPS = ("a loop in a branch", "a branch in a loop")


def looped(step: Step) -> Callable[[Any], Any]:
    return lambda x: fori_loop(0, N, step, x)


def ending(step: Step) -> Callable[[Any], Any]:
    """The same as a scan that ends five steps before the last."""

    def run(x: Any) -> Any:
        counted = lambda c, _: ((c[0] + 1, step(c[0], c[1])), c[1][c[0]])
        start = (np.int32(0), x)
        (_, a), ys, _ = scan(counted, start, length=N, until=lambda c: c[0] > N - 6)
        return a + ys * 0.1

    return run


LOOPS = {"fori_loop": looped, "scan until": ending}


def by_hand(step: Step) -> Any:
    compiled, x = jit(step), X
    for i in range(N):
        x = np.asarray(compiled(i, x))
    return x


def of(form: str, run: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The sum of squares of what a loop gives, or a derivative of it."""

    def total(x: Any) -> Any:
        y = run(x)
        return (y * y).sum()

    forms: dict[str, Callable[[Any], Any]] = {
        "value": total,
        "tangent": lambda x: jvp(total, (x,), (x,))[1],
        "gradient": grad(total),
        "jvp of gradient": lambda x: jvp(grad(total), (x,), (x,))[1],
    }
    return forms[form]


FORMS = ["value", "tangent", "gradient", "jvp of gradient"]


def in_loops(jaxpr: Any, inside: bool = False) -> Iterator[Any]:
    """The equations in the bodies of loops, those of branches and calls in them included."""
    for eqn in jaxpr.eqns:
        if inside and eqn.primitive.name != "for":
            yield eqn
        for inner in jaxprs_in(eqn.params):
            yield from in_loops(inner, inside or eqn.primitive.name == "for")


IN_PLACE = {"put", "order"}


@pytest.mark.parametrize("name", STEPS)
def test_values_are_those_of_a_python_loop(name: str) -> None:
    got = jit(looped(STEPS[name]))(X)
    np.testing.assert_allclose(np.asarray(got), by_hand(STEPS[name]), rtol=1e-12)


def programs(loop: str, form: str) -> dict[str, Callable[[Any], Any]]:
    """A program for each step; a loop within a scan that ends early gives back what it carries whole."""
    return {
        name: of(form, LOOPS[loop](step))
        for name, step in STEPS.items()
        if loop == "fori_loop" or name not in INNER_LOOPS
    }


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("loop", LOOPS)
def test_no_step_makes_an_array(loop: str, form: str) -> None:
    for name, program in programs(loop, form).items():
        ready = run_passes(make_jaxpr(program)(X))
        made = {
            eqn.primitive.name
            for eqn in in_loops(ready)
            for v in eqn.outvars
            if v.aval.shape[-1:] == (N,) and eqn.primitive.name not in IN_PLACE
        }
        # A branch that loops is a loop of one turn, which carries what its loop does.
        assert made <= ({"while"} if name == "a loop in a branch" else set()), name


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("loop", LOOPS)
def test_no_step_copies_an_array_and_results_are_those_without_the_step(
    loop: str, form: str
) -> None:
    found = programs(loop, form)
    together = jit(lambda x: [program(x) for program in found.values()]).lower(X).compile()
    assert together.copies == 0
    planned = together(X)
    with planning(promote=False):
        plain = sample(lambda x: [program(x) for program in found.values()], X).run()
    for name, got, want in zip(found, planned, plain, strict=True):
        np.testing.assert_allclose(
            np.asarray(got), np.asarray(want), rtol=1e-10, atol=1e-13, err_msg=name
        )


@pytest.mark.parametrize("name", ["both branches", "another result", "branches in branches"])
def test_lanes_have_arrays_of_their_own(name: str) -> None:
    xs = np.stack([X, X[::-1], 0.5 * X])
    each = [np.asarray(looped(STEPS[name])(x)) for x in xs]
    np.testing.assert_allclose(np.asarray(vmap(looped(STEPS[name]))(xs)), each, rtol=1e-12)


@pytest.mark.parametrize("name", ["both branches", "another result", "a branch in a loop"])
def test_derivatives_are_right(name: str) -> None:
    check_grads(looped(STEPS[name]), (X,), order=1, rtol=1e-5)


def test_all_laws_hold() -> None:
    def run(x: Any) -> Any:
        step: Step = lambda i, a: cond(
            i > 1, lambda a: a.at[i].set(a[i - 1] * x[i]), lambda a: a.at[i].add(x[0]), a
        )
        return scan(lambda a, i: (step(i, a), a[i]), x * 2.0, np.asarray([2, 0, 1, 2]))

    s = check_function(run, np.asarray([0.3, -0.7, 1.1]))
    check_law_planning(s)
    assert ".at[" not in str(s.jaxpr)


# what stays a value, and what is said of it


def updated(i: Any, a: Any) -> Any:
    return a.at[i].set(1.0)


TWICE = "this updates the same version of it as another update, on line #: update the result of that one"
LEFT_ALONE: dict[str, tuple[Step, str]] = {
    "used whole in one branch": (
        lambda i, a: cond(i > 3, lambda a: a.at[i].set(a.sum()), lambda a: updated(i, a), a),
        "`reduce_sum` uses it whole",
    ),
    "another array in one branch": (
        lambda i, a: cond(i > 3, lambda a: updated(i, a), lambda a: np.ones(N), a),
        "a branch of `cond` returns another array in its place",
    ),
    "an old version": (
        lambda i, a: cond(i > 3, lambda a: (updated(i, a), a), lambda a: (a, updated(i - 1, a)), a)[
            0
        ],
        "a branch of `cond` updates it, and returns a version from before that",
    ),
    "a copy": (
        lambda i, a: updated(i, a) * cond(i > 3, lambda a: updated(i, a)[i - 1], lambda a: 1.0, a),
        "a branch of `cond` updates it, and does not return it",
    ),
    "two updates of one version": (
        lambda i, a: cond(i > 3, lambda a: updated(i, a), kept, a) + updated(i - 1, a),
        TWICE,
    ),
    "two updates in a branch": (
        lambda i, a: cond(i > 3, lambda a: updated(i, a) + updated(i - 1, a), kept, a),
        TWICE,
    ),
    "used whole in a call": (
        lambda i, a: jit(lambda a: a.at[i].set(a.sum()))(a),
        "`reduce_sum` uses it whole",
    ),
    "a later read that the update needs": (
        lambda i, a: cond(
            i > 3,
            lambda a: (lambda b: b.at[0].set(a[(b[i] > 0).astype(np.int32)]))(updated(i, a)),
            kept,
            a,
        ),
        "this reads the version before an update that it depends on: read the updated one",
    ),
    "one of two versions": (
        lambda i, a: cond(i > 3, lambda a, b: b, lambda a, b: a, a, updated(i, a)),
        "a branch of `cond` returns another array in its place",
    ),
    "lanes in groups": (
        lambda i, a: cond(i > 3, lambda a: updated(i, a), kept, a, vmap="group"),
        '`cond(vmap="group")` takes no Refs',
    ),
    "fixed places": (
        lambda i, a: jit(lambda a: a.at[0].set(a[1] * 0.5))(a),
        "it is indexed at fixed places alone",
    ),
}


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_arrays_used_in_other_ways_stay_values(name: str) -> None:
    step, why = LEFT_ALONE[name]
    decision = explain(looped(step), X).loops[0].decision("promote")
    reason = re.sub(r"line \d+", "line #", decision.reason)
    assert (decision.done, reason) == (False, f"it stays a value: {why}")
    assert decision.line is not None
    np.testing.assert_allclose(np.asarray(looped(step)(X)), by_hand(step), rtol=1e-12)


def test_a_result_that_is_the_array_once_more() -> None:
    def step(a: Any, i: Any) -> Any:
        a, b = cond(i % 2 == 0, lambda a: (lambda b: (b, b))(updated(i, a)), lambda a: (a, a), a)
        return a.at[i].add(b[i - 1]), b[i]

    run: Any = lambda x: scan(step, x, np.arange(N))
    assert ".at[" not in str(make_jaxpr(run)(X))
    got = run(X)
    with disable_jit():
        want = run(X)
    for x, y in zip(got, want, strict=True):
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=1e-12)


def test_a_constant_is_read_in_branches_and_calls() -> None:
    square = jit(lambda t, i: t[i] ** 2)

    def total(t: Any) -> Any:
        part: Any = lambda i: cond(i % 3 == 0, lambda: t[i] * t[i - 1], lambda: square(t, i))
        return fori_loop(0, N, lambda i, s: s + part(i) + square(t, i), 0.0)

    assert not re.search(r" = [a-z]{1,2}\[", str(make_jaxpr(total)(X)))  # no `b = t[i]`
    check_law_planning(sample(grad(total), X))
    check_grads(jit(total), (X,), order=1, rtol=1e-6)
    assert jit(grad(total)).lower(X).compile().copies == 0
    compiled = jit(grad(total))
    got = np.asarray(compiled(X))
    with planning(constants=False):
        np.testing.assert_allclose(got, np.asarray(compiled(X)), rtol=1e-12)


def test_a_ref_that_branches_read_and_write_whole() -> None:
    def body(i: Any, r: Any) -> None:
        def update() -> None:
            r[...] = r[...].at[i].set(r[i - 1] * 0.5)

        cond(r[i] > 0, update, lambda: None)

    def whole(i: Any, r: Any) -> None:
        def update() -> None:
            a = r[...]
            r[...] = a.at[i].set(a[i - 1] * 0.5)

        cond(i % 3 > 0, update, lambda: None)

    assert ".at[" not in str(make_jaxpr(lambda x: for_loop(N, whole, x))(X))
    for step in (body, whole):
        got = np.asarray(for_loop(N, step, X))
        with planning(False):
            np.testing.assert_array_equal(got, np.asarray(for_loop(N, step, X)))


def test_a_choice_that_no_step_changes_is_no_array() -> None:
    """What chooses is computed once, before the loop, and so it is a constant of the body."""
    w = RNG.uniform(-1, 1, (8, 8))

    def run(x: Any, w: Any) -> Any:
        def step(i: Any, a: Any) -> Any:
            return cond((w @ w).sum() > 0, lambda a: a.at[i].multiply(2.0), kept, a)

        return fori_loop(0, N, step, x)

    for given, factor in ((w * w, 2.0), (0.0 * w, 1.0)):
        np.testing.assert_array_equal(np.asarray(jit(run)(X, given)), factor * X)
    check_grads(jit(run), (X, w * w), order=1, rtol=1e-6)
