"""Random programs that call Python obey every law, and make each call once."""

from __future__ import annotations

from hypothesis import given, settings

from fiveloop.core.testing.laws import check_laws
from fiveloop.core.testing.programs import Program, programs
from fiveloop.state.testing.io import law_once, law_once_compiled, with_calls
from fiveloop.state.testing.laws import discharged, law_discharge
from fiveloop.state.testing.program_steps import STATE_KINDS, read_all, with_refs

CALLS = with_calls(STATE_KINDS)


@settings(max_examples=8)
@given(programs(CALLS).map(read_all))
def test_calls_beside_refs_made_inside(program: Program) -> None:
    s = program.sample()
    check_laws(s)
    law_discharge(s)
    law_once(s)


@settings(max_examples=8)
@given(programs(CALLS, refs=True))
def test_calls_beside_refs_from_outside(program: Program) -> None:
    law_once(with_refs(program))


@settings(max_examples=2)
@given(programs(CALLS))
def test_compiled_programs_that_call(program: Program) -> None:
    s = program.sample("float32")
    law_once_compiled(s.jaxpr, s)
    assert discharged(s).jaxpr.eqns is not None
