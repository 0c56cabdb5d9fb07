"""Random programs on Refs obey every law."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from fiveloop.testing.core.compare import assert_all_close
from fiveloop.testing.core.laws import check_law_eval, check_laws
from fiveloop.testing.core.programs import Program, programs
from fiveloop.testing.state.laws import (
    check_law_discharge,
    check_law_lower_discharged,
    check_law_partial_discharge,
)
from fiveloop.testing.state.program_steps import STATE_KINDS, read_all, with_followed, with_refs


@pytest.mark.oracle
@settings(max_examples=20)
@given(programs(STATE_KINDS).map(read_all))
def test_refs_made_inside(program: Program) -> None:
    s = program.sample()
    check_law_eval(s, program.twin(*program.arrays()))
    check_laws(s)
    check_law_discharge(s)


@pytest.mark.oracle
@settings(max_examples=20)
@given(programs(STATE_KINDS, refs=True))
def test_refs_from_outside(program: Program) -> None:
    s = with_refs(program)
    assert_all_close(s.run(), program.twin(*program.arrays()), "eval: result")
    check_laws(s)
    check_law_discharge(s)
    check_law_partial_discharge(s)


@pytest.mark.oracle
@settings(max_examples=10)
@given(programs(with_followed(STATE_KINDS), refs=True))
def test_lanes_that_follow_each_other(program: Program) -> None:
    s = with_refs(program)
    assert_all_close(s.run(), program.twin(*program.arrays()), "eval: result")
    check_laws(s)
    check_law_discharge(s)


@settings(max_examples=4)
@given(programs(STATE_KINDS, refs=True))
def test_compiled_programs(program: Program) -> None:
    s = with_refs(program, "float32")
    check_law_lower_discharged(s)
    assert s.jaxpr.eqns is not None
