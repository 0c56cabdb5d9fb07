"""Discharge at any stage, of all Refs or some, through every primitive that holds a jaxpr."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import fiveloop.numpy as fnp
import fiveloop.testing.remat.references  # noqa: F401  # the oracle learns what a checkpoint is
from fiveloop.core import Value, closed_call, custom_jvp
from fiveloop.core.extend import ShapedArray, jaxprs_in, stage_closed
from fiveloop.loops import cond, for_loop, scan, while_loop
from fiveloop.remat import checkpoint
from fiveloop.state import AbstractRef, accumulate, discharge_state, freeze, new_ref, swap
from fiveloop.testing.core.compare import assert_all_close
from fiveloop.testing.core.oracle import Cell
from fiveloop.testing.core.programs import Program, programs
from fiveloop.testing.core.samples import Sample
from fiveloop.testing.loops import references
from fiveloop.testing.loops.program_steps import LOOP_KINDS
from fiveloop.testing.remat.program_steps import with_checkpoints
from fiveloop.testing.state.laws import (
    check_law_discharge,
    check_law_discharge_commutes,
    check_law_partial_discharge,
    discharged,
)
from fiveloop.testing.state.program_steps import with_refs

assert references.__name__
Run = Callable[[Any], Any]


@pytest.mark.oracle
@settings(max_examples=8)
@given(programs(with_checkpoints(LOOP_KINDS), refs=True))
def test_random_programs(program: Program) -> None:
    s = with_refs(program)
    check_law_discharge_commutes(s, program.seed)
    assert not discharge_state(s.jaxpr).effects


def with_rule(run: Run, x: Any) -> Any:
    """Run within a function that has a rule for its derivative."""

    @custom_jvp
    def fun(x: Any) -> Any:
        return run(x)

    fun.defjvp(lambda primals, dots: (fun(*primals), dots[0] * 2.0))
    return fun(x)


def in_for(run: Run, x: Any) -> Any:
    def body(i: Any, total: Any) -> None:
        total[...] += run(x * (i + 1.0))

    return for_loop(2, body, 0.0 * x)


def in_while(run: Run, x: Any) -> Any:
    def body(state: Any) -> Any:
        return state[0] + 1, state[1] * 0.5 + run(state[1])

    return while_loop(lambda state: state[0] < 2, body, (0, x))[1]


WITHIN: dict[str, Callable[[Run, Any], Any]] = {
    "for": in_for,
    "scan": lambda run, x: scan(lambda c, v: (c + run(v), None), 0.0 * x, fnp.stack([x, 2 * x]))[0],
    "while": in_while,
    "cond": lambda run, x: cond(x > 0, run, lambda x: x * 3.0, x),
    "closed_call": lambda run, x: closed_call(run)(x),
    "checkpoint": lambda run, x: checkpoint(run)(x),
    "custom rule": with_rule,
}


def use_all(one: Any, other: Any, x: Any) -> Any:
    """Every access, of two Refs from outside and one made here."""
    own = new_ref(one[...] * x)
    old = swap(own, 0, x)
    own[1] += old
    accumulate(other, np.array([0, 0, 1]), fnp.sin(own[...]), "max")
    accumulate(other, 1, x, "mul")
    one[2] = own[1] * other[0]
    return freeze(own).sum() + one[0]


def nested(*names: str) -> Sample:
    """Every access at some depth, as a sample."""

    def fun(one: Value, other: Value, x: Value) -> list[Any]:
        run: Run = lambda x: use_all(one, other, x)
        for name in reversed(names):
            run = lambda x, name=name, inner=run: WITHIN[name](inner, x)  # type: ignore[misc]
        return [run(x)]

    vector = ShapedArray((3,), "float64")
    avals = [AbstractRef(vector), AbstractRef(vector), ShapedArray((), "float64")]
    held = [np.array([0.3, -0.8, 1.7]), np.array([0.9, -0.2, 0.4])]
    return Sample(stage_closed(fun, avals), (Cell(held[0]), Cell(held[1]), np.asarray(0.7)))


@pytest.mark.oracle
@pytest.mark.parametrize("inner", WITHIN)
@pytest.mark.parametrize("outer", WITHIN)
def test_two_deep(outer: str, inner: str) -> None:
    s = nested(outer, inner)
    assert any(jaxprs_in(eqn.params) for eqn in s.jaxpr.eqns)
    check_law_partial_discharge(s)
    if "custom rule" in (
        outer,
        inner,
    ):  # whose rule cannot tell a part of what its function closes over
        pure = discharged(s)
        assert not pure.jaxpr.effects
        assert_all_close(pure.run(), s.run(), "discharge: result")
    else:
        check_law_discharge(s)


@pytest.mark.parametrize("name", [n for n in WITHIN if n not in ("while", "custom rule")])
def test_every_stage(name: str) -> None:
    s = nested(name)
    check_law_discharge_commutes(s)
    assert not discharge_state(s.jaxpr).effects
    left = discharge_state(s.jaxpr, [True, False, False]).effects
    assert {e.position for e in left} == {1}  # type: ignore[attr-defined]  # they are on Refs
