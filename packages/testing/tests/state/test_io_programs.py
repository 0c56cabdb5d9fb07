"""Random programs that call Python obey every law, and make each call once."""

from __future__ import annotations

from hypothesis import given, settings

from fiveloop.testing.core.laws import check_laws
from fiveloop.testing.core.programs import Program, programs
from fiveloop.testing.state.io import check_law_once, check_law_once_compiled, with_calls
from fiveloop.testing.state.laws import check_law_discharge, discharged
from fiveloop.testing.state.program_steps import STATE_KINDS, read_all, with_refs

CALLS = with_calls(STATE_KINDS)


@settings(max_examples=8)
@given(programs(CALLS).map(read_all))
def test_calls_beside_refs_made_inside(program: Program) -> None:
    s = program.sample()
    check_laws(s)
    check_law_discharge(s)
    check_law_once(s)


@settings(max_examples=8)
@given(programs(CALLS, refs=True))
def test_calls_beside_refs_from_outside(program: Program) -> None:
    check_law_once(with_refs(program))


@settings(max_examples=2)
@given(programs(CALLS))
def test_compiled_programs_that_call(program: Program) -> None:
    s = program.sample("float32")
    check_law_once_compiled(s.jaxpr, s)
    assert discharged(s).jaxpr.eqns is not None
