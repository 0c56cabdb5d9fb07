"""Random programs of everything that call Python make each call once, whatever is done with them."""

from __future__ import annotations

from hypothesis import given, settings

from fiveloop.testing.core.laws import check_laws
from fiveloop.testing.core.programs import Program, programs
from fiveloop.testing.loops.program_steps import LOOP_KINDS, WHILE_KINDS
from fiveloop.testing.remat.program_steps import with_checkpoints
from fiveloop.testing.state.io import check_law_once, check_law_once_compiled, with_calls
from fiveloop.testing.state.laws import check_law_discharge
from fiveloop.testing.state.program_steps import read_all, with_refs

EVERYTHING = with_checkpoints(with_calls(LOOP_KINDS))


@settings(max_examples=8)
@given(programs(EVERYTHING).map(read_all))
def test_calls_in_loops_branches_and_checkpoints(program: Program) -> None:
    s = program.sample()
    check_law_once(s)
    check_law_discharge(s)
    assert s.jaxpr.invars


@settings(max_examples=8)
@given(programs(EVERYTHING, refs=True))
def test_calls_beside_refs_from_outside(program: Program) -> None:
    s = with_refs(program)
    check_laws(s)
    check_law_once(s)


@settings(max_examples=8)
@given(programs(with_calls(WHILE_KINDS, results=False)).map(read_all))
def test_calls_in_while_loops(program: Program) -> None:
    check_law_once(program.sample(), reverse=False)


@settings(max_examples=2)
@given(programs(EVERYTHING))
def test_compiled_programs_that_call(program: Program) -> None:
    s = program.sample("float32")
    check_law_once_compiled(s.jaxpr, s)
