"""Functions that run once for each jaxpr, and for each key of what else they are given."""

from __future__ import annotations

import pytest

from fiveloop.core import Jaxpr, ir, make_jaxpr, util

pytestmark = pytest.mark.oracle


def double() -> Jaxpr:
    return make_jaxpr(lambda x: x * 2.0)(1.0)


def test_a_function_runs_once_for_each_jaxpr_and_argument() -> None:
    runs: list[object] = []

    @ir.once_per_jaxpr
    def named(jaxpr: Jaxpr, name: str, *, times: int = 1) -> Jaxpr:
        runs.append((jaxpr, name, times))
        return Jaxpr(jaxpr.invars, jaxpr.eqns * times, jaxpr.outvars, name)

    one, two = double(), double()
    first = named(one, "a")
    assert named(one, "a") is first and first.name == "a"
    assert named(one, "a", times=2) is named(one, "a", times=2)
    assert {named(one, "b").name, named(two, "a").name} == {"a", "b"}
    assert runs == [(one, "a", 1), (one, "a", 2), (one, "b", 1), (two, "a", 1)]


def test_two_functions_of_one_jaxpr_are_told_apart() -> None:
    inputs = ir.once_per_jaxpr(lambda jaxpr: len(jaxpr.invars))
    eqns = ir.once_per_jaxpr(lambda jaxpr: [eqn.primitive.name for eqn in jaxpr.eqns])
    jaxpr = double()
    assert [inputs(jaxpr), eqns(jaxpr), inputs(jaxpr), eqns(jaxpr)] == [1, ["mul"], 1, ["mul"]]


def test_a_key_says_which_arguments_are_alike() -> None:
    runs: list[object] = []

    @ir.once_per(lambda jaxpr, mask: (jaxpr, util.full(mask, 2)))
    def count(jaxpr: Jaxpr, mask: bool | list[bool]) -> int:
        runs.append(mask)
        return sum(util.full(mask, 2))

    jaxpr = double()
    assert [count(jaxpr, m) for m in (True, [True, True], [True, False])] == [2, 2, 1]
    assert runs == [True, [True, False]]


def test_what_fails_runs_again() -> None:
    runs: list[object] = []

    @ir.once_per_jaxpr
    def fail(jaxpr: Jaxpr) -> None:
        """Never gives anything."""
        runs.append(jaxpr)
        raise ValueError("no result")

    jaxpr = double()
    for _ in range(2):
        with pytest.raises(ValueError, match="no result"):
            fail(jaxpr)
    assert runs == [jaxpr, jaxpr]
    assert (fail.__name__, fail.__doc__) == ("fail", "Never gives anything.")
