"""The effects of a program are just those of its equations: joined, moved to their operands, dropped, and checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import Jaxpr, TypecheckError, closed_call, custom_jvp, custom_vjp, make_jaxpr
from fiveloop.core.extend import Effects, dce, jaxprs_in, typecheck, with_jaxprs
from fiveloop.loops import cond, for_loop, scan, while_loop
from fiveloop.remat import checkpoint
from fiveloop.state import (
    AbstractRef,
    AccumEffect,
    ReadEffect,
    WriteEffect,
    accumulate,
    freeze,
    new_ref,
    swap,
)

Fun = Callable[[Any, Any], Any]
A, B = new_ref(np.ones(3, np.float32)), new_ref(np.ones(3, np.float32))


def effects(fun: Fun) -> Effects:
    """Those of a function of two Refs."""
    return make_jaxpr(fun)(A, B).effects


def read(r: Any) -> Any:
    return r[0]


def write(r: Any) -> Any:
    r[0] = 1.0


def add(r: Any) -> Any:
    r[0] += 1.0


def keep_greatest(r: Any) -> Any:
    accumulate(r, 0, 1.0, "max")


def exchange(r: Any) -> Any:
    return swap(r, 0, 1.0)


READ, WRITE, ADD = ReadEffect(0), WriteEffect(0), AccumEffect(0)
GREATEST = AccumEffect(0, "max")
ACCESSES: dict[str, tuple[Callable[[Any], Any], set[Any]]] = {
    "write": (write, {WRITE}),
    "add": (add, {ADD}),
    "max": (keep_greatest, {GREATEST}),
    "swap": (exchange, {READ, WRITE}),
    "swap for nothing": (lambda r: (swap(r, 0, 1.0), None)[1], {READ, WRITE}),
    "add by hand": (lambda r: r.__setitem__(0, r[0] + 1.0), {READ, WRITE}),
    "nothing": (lambda r: None, set()),
}


def with_rule(run: Callable[[], Any]) -> Any:
    """Run within a function that has a rule for its derivative."""

    @custom_jvp
    def fun(x: Any) -> Any:
        run()
        return x * 1.0

    fun.defjvp(lambda primals, dots: (fun(*primals), dots[0]))
    return fun(fnp.zeros(()))


def with_pair_of_rules(run: Callable[[], Any]) -> Any:
    """Run within a function that has a rule for its pullback."""

    @custom_vjp
    def fun(x: Any) -> Any:
        run()
        return x * 1.0

    fun.defvjp(lambda x: (fun(x), None), lambda res, ct: (ct,))
    return fun(fnp.zeros(()))


def nothing(run: Callable[[], Any]) -> Callable[[], None]:
    def without_result() -> None:
        run()

    return without_result


def in_while(run: Callable[[], Any]) -> Any:
    def body(i: Any) -> Any:
        run()
        return i + 1

    return while_loop(lambda i: i < 2, body, 0)


def in_scan(run: Callable[[], Any]) -> Any:
    def body(c: Any, x: Any) -> Any:
        run()
        return c, x

    return scan(body, 0.0, fnp.zeros(2))


WITHIN: dict[str, Callable[[Callable[[], Any]], Any]] = {
    "for": lambda run: for_loop(2, lambda i, r: nothing(run)(), fnp.zeros(2)),
    "scan": in_scan,
    "while": in_while,
    "cond": lambda run: cond(fnp.asarray(True), nothing(run), lambda: None),
    "closed_call": lambda run: closed_call(nothing(run))(),
    "checkpoint": lambda run: checkpoint(nothing(run))(),
    "custom_jvp": with_rule,
    "custom_vjp": with_pair_of_rules,
}
every_place = pytest.mark.parametrize("within", list(WITHIN.values()), ids=list(WITHIN))


def deep(use: Callable[[Any], Any], *places: Any) -> Fun:
    """A function of two Refs that uses the second in a place within a place."""

    def fun(a: Any, b: Any) -> None:
        run: Callable[[], Any] = lambda: use(b)
        for place in reversed(places):
            run = partial(place, run)
        run()

    return fun


@pytest.mark.parametrize("access", list(ACCESSES.values()), ids=list(ACCESSES))
def test_an_access_has_its_effects_at_every_depth(access: tuple[Any, set[Any]]) -> None:
    use, found = access
    want = {e.at(1) for e in found}
    assert effects(deep(use)) == want
    for one in WITHIN.values():
        assert effects(deep(use, one)) == want
        for other in WITHIN.values():
            assert effects(deep(use, one, other)) == want


@every_place
def test_effects_on_two_refs_are_joined(within: Any) -> None:
    def fun(a: Any, b: Any) -> None:
        within(lambda: keep_greatest(b))
        within(lambda: b.__setitem__(0, read(a)))
        within(lambda: add(a))

    assert effects(fun) == {READ, ADD, GREATEST.at(1), WRITE.at(1)}


@every_place
def test_a_read_for_nothing_has_no_effect(within: Any) -> None:
    assert effects(lambda a, b: (within(lambda: read(a)), None)[1]) == set()


def test_branches_have_the_effects_of_all() -> None:
    def fun(a: Any, b: Any) -> None:
        cond(read(a) > 0, lambda: add(a), lambda: write(b))

    assert effects(fun) == {READ, ADD, WRITE.at(1)}


def test_a_condition_has_its_effects() -> None:
    def fun(a: Any, b: Any) -> Any:
        return while_loop(lambda i: read(a) > i, lambda i: (add(b), i + 1)[1], 0)

    assert effects(fun) == {READ, ADD.at(1)}


@every_place
def test_a_ref_made_and_frozen_inside_leaves_none(within: Any) -> None:
    def fun(a: Any, b: Any) -> Any:
        def inside() -> None:
            ref = new_ref(fnp.zeros(3))
            within(lambda: (add(ref), write(ref), keep_greatest(ref), read(ref)))
            freeze(ref)

        within(inside)

    assert effects(fun) == set()


@pytest.mark.parametrize("used", [True, False])
def test_writes_to_a_made_ref_are_dropped_after_its_last_use(used: bool) -> None:
    def fun(x: Any) -> Any:
        ref = new_ref(x)
        closed_call(write)(ref)
        y = ref[1]
        for_loop(3, lambda i, r: add(r), ref)
        return (y, read(ref)) if used else y

    made = make_jaxpr(fun)(np.ones(3))
    left = [eqn.primitive.name for eqn in dce(made, [True] * len(made.outvars))[0].eqns]
    assert left == ["new_ref", "closed_call", "get"] + ["for", "get"] * used


@every_place
def test_a_ref_that_is_passed_on_has_them_at_its_place(within: Any) -> None:
    passed = closed_call(lambda x, r, s: (add(s), exchange(r))[1])
    assert effects(lambda a, b: (within(lambda: passed(1.0, b, a)), None)[1]) == {
        ADD,
        READ.at(1),
        WRITE.at(1),
    }


# a jaxpr that declares another effect


def changes(declared: Effects, avals: Any) -> Iterator[Effects]:
    """One effect less, or one more."""
    yield from (declared - {e} for e in declared)
    for k, aval in enumerate(avals):
        if isinstance(aval, AbstractRef):
            more = (ReadEffect(k), WriteEffect(k), AccumEffect(k), AccumEffect(k, "min"))
            yield from (declared | {e} for e in more if e not in declared)


def altered(jaxpr: Jaxpr) -> Iterator[Jaxpr]:
    """The jaxpr with one effect changed, in its own declaration, in an equation's, or at any depth."""
    parts = jaxpr.invars, jaxpr.eqns, jaxpr.outvars, jaxpr.name
    for found in changes(jaxpr.effects, jaxpr.in_avals):
        yield Jaxpr(*parts, effects=found)
    for k, eqn in enumerate(jaxpr.eqns):
        others = [
            eqn.replace(effects=found)
            for found in changes(eqn.effects, [a.aval for a in eqn.invars])
        ]
        for inner in jaxprs_in(eqn.params):
            for new in altered(inner):
                params = with_jaxprs(eqn.params, lambda j, o=inner, n=new: n if j is o else j)  # type: ignore[misc]
                others.append(eqn.replace(params=params))
        for other in others:
            eqns = (*jaxpr.eqns[:k], other, *jaxpr.eqns[k + 1 :])
            yield Jaxpr(jaxpr.invars, eqns, jaxpr.outvars, jaxpr.name, effects=jaxpr.effects)


@every_place
@pytest.mark.parametrize("other", ["closed_call", "for", "custom_jvp"])
def test_the_checker_rejects_any_other_declaration(other: str, within: Any) -> None:
    def fun(a: Any, b: Any) -> None:
        within(lambda: (WITHIN[other](lambda: add(a)), exchange(b)))

    jaxpr = make_jaxpr(fun)(A, B)
    typecheck(jaxpr)
    rejected = 0
    for wrong in altered(jaxpr):
        with pytest.raises((TypecheckError, TypeError), match=r"effects|must only read Refs"):
            typecheck(wrong)
        rejected += 1
    assert rejected >= 20
