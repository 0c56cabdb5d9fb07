"""Writes of one step that come to one: which become one, which do not, and that nothing else changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiveloop.core import grad, jit, make_jaxpr, vmap
from fiveloop.core.primitives.special import sin
from fiveloop.loops import cond, explain, for_loop, planning
from fiveloop.loops.options import DEFAULT
from fiveloop.loops.plan.passes import plan
from fiveloop.state import swap
from fiveloop.testing.core.gradcheck import check_grads
from fiveloop.testing.loops.laws import check_function, check_law_planning, with_planning

N = 6
X = np.linspace(0.2, 0.9, N)
TWICE = np.asarray([1, 1, 3])
Body = Callable[[Any, Any], None]


def overwritten(i: Any, r: Any) -> None:
    old = r[i - 1]
    r[i] = sin(old)
    r[i] = old * 2.0


def read_again(i: Any, r: Any) -> None:
    r[i] = r[i - 1] * 0.5
    r[0] += sin(r[i])


def added_twice(i: Any, r: Any) -> None:
    r[i] += sin(r[i - 1])
    r[i] += 0.5


def set_and_added(i: Any, r: Any) -> None:
    r[i] = r[i - 1]
    r[i] += 0.5


def whole(i: Any, r: Any) -> None:
    r[...] = r[...] * 0.5
    r[...] = r[...] + r[...] * r[...]


def computed_twice(i: Any, r: Any) -> None:
    r[(i + 2) % N] = r[i] * 0.5
    r[i] += r[(i + 2) % N]


def swapped(i: Any, r: Any) -> None:
    old = swap(r, i, 2.0)
    older = swap(r, i, old * 0.5)
    r[i] = older + r[i]


def repeated(i: Any, r: Any) -> None:
    old, places = r[i], TWICE + i % 2
    r[places] = old * np.ones(3)
    r[places] = X[:3] * old


def read_twice(i: Any, r: Any) -> None:
    r[i] = sin(r[i]) * r[i - 1] + r[i] * r[i - 1]


def read_around_a_write(i: Any, r: Any) -> None:
    first = r[i] * r[1]
    r[i * i % N] = 2.5
    r[2] += first * r[i] * r[1]


def read_between_others(i: Any, r: Any) -> None:
    r[i] = r[i - 1] * 0.5
    r[0] = r[i * i % N] * r[i] * r[i * i % N]


FOLDED: dict[str, tuple[Body, int]] = {
    "overwritten": (overwritten, 1),
    "read again": (read_again, 2),
    "added twice": (added_twice, 1),
    "set and added": (set_and_added, 1),
    "whole": (whole, 1),
    "an index computed twice": (computed_twice, 2),
    "swapped": (swapped, 1),
    "an element named twice": (repeated, 1),
}


def apart_in_between(i: Any, r: Any) -> None:
    r[0] = r[i]
    r[1] = r[i] * 2.0
    r[0] = r[i] * 3.0


def read_in_between(i: Any, r: Any) -> None:
    r[i] = r[i - 1] * 0.5
    r[0] = r[i - 2]
    r[i] = 2.0 * r[i]


def gathered_after_writing_twice(i: Any, r: Any) -> None:
    r[TWICE] = X[:3] * r[i]
    r[2] = r[TWICE].sum()


def perhaps_the_same(i: Any, r: Any) -> None:
    r[i] = 1.5 * r[i]
    r[i * i % N] = 2.5
    r[2] = r[i]


def in_a_branch(i: Any, r: Any) -> None:
    r[i] = 0.5
    cond(i > 2, lambda: r.__setitem__(0, r[i] * 2.0), lambda: None)
    r[i] = r[i] + 1.0


OTHERS: dict[str, Body] = {
    "apart in between": apart_in_between,
    "read in between": read_in_between,
    "gathered after writing twice": gathered_after_writing_twice,
    "perhaps the same": perhaps_the_same,
    "in a branch": in_a_branch,
    "read twice": read_twice,
    "read around a write": read_around_a_write,
    "read between others": read_between_others,
}
BODIES: dict[str, Body] = {**{k: body for k, (body, _) in FOLDED.items()}, **OTHERS}


def looped(body: Body) -> Callable[[Any], Any]:
    return lambda x: for_loop(N, body, x)


def writes(fun: Any) -> int:
    return writes_in(make_jaxpr(fun)(X))


def writes_in(jaxpr: Any) -> int:
    """How many equations of the loop's body write or add."""
    (loop,) = [eqn for eqn in jaxpr.eqns if eqn.primitive.name == "for"]
    names = [eqn.primitive.name for eqn in loop.params.body.eqns]
    return names.count("swap") + names.count("addupdate")


def by_hand(body: Body) -> Any:
    with planning(False):
        s = check_function(looped(body), X)
    return s.run()[0]


@pytest.mark.parametrize("name", FOLDED)
def test_what_comes_to_one_write_is_one(name: str) -> None:
    body, count = FOLDED[name]
    assert writes(looped(body)) == count
    with planning(fold=False):
        assert writes(looped(body)) > count or name in ("read again", "an index computed twice")


@pytest.mark.parametrize("name", BODIES)
def test_values_and_all_laws(name: str) -> None:
    want = by_hand(BODIES[name])
    s = check_function(looped(BODIES[name]), X)
    np.testing.assert_allclose(s.run()[0], want, rtol=1e-12)
    np.testing.assert_allclose(np.asarray(jit(looped(BODIES[name]))(X)), want, rtol=1e-12)
    check_law_planning(s)


@pytest.mark.parametrize("name", BODIES)
def test_derivatives(name: str) -> None:
    check_grads(looped(BODIES[name]), (X,), order=1, rtol=1e-5)
    total = lambda x: (looped(BODIES[name])(x) ** 2).sum()
    lanes = np.asarray(vmap(grad(total))(np.stack([X, X[::-1]])))
    np.testing.assert_allclose(lanes[0], np.asarray(jit(grad(total))(X)), rtol=1e-10)


def test_the_pass_folds_what_was_not_folded_when_it_was_traced() -> None:
    with planning(fold=False):
        jaxpr = make_jaxpr(looped(overwritten))(X)
    assert writes_in(jaxpr) == 2
    assert writes_in(plan(with_planning(jaxpr, DEFAULT))) == 1


@pytest.mark.parametrize(
    ("body", "count"), [(read_twice, 2), (read_around_a_write, 4), (read_between_others, 2)]
)
def test_a_place_is_read_once_unless_it_may_have_changed(body: Body, count: int) -> None:
    (loop,) = [e for e in make_jaxpr(looped(body))(X).eqns if e.primitive.name == "for"]
    assert [e.primitive.name for e in loop.params.body.eqns].count("get") == count


def test_reads_that_are_forwarded_keep_their_types() -> None:
    def body(i: Any, r: Any) -> None:
        r[i] = 1
        r[0] = r[i] + 0.5

    s = check_function(looped(body), X)
    np.testing.assert_array_equal(s.run()[0], [1.5, 1, 1, 1, 1, 1])


def test_what_is_told() -> None:
    (loop,) = explain(looped(read_again), X).loops
    (told,) = [d for d in loop.decisions if d.step == "fold"]
    assert (told.subject, told.done) == ("state", True)
    assert told.reason == "a read takes the value that was written there before"
    with planning(fold=False):
        assert explain(looped(read_again), X).loops[0].decision("fold").reason == "it is turned off"
