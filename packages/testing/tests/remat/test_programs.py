"""Random programs with checkpoints obey every law."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from fiveloop.testing.core.compare import assert_all_close
from fiveloop.testing.core.laws import check_law_eval, check_laws
from fiveloop.testing.core.programs import Program, programs
from fiveloop.testing.remat.program_steps import with_checkpoints
from fiveloop.testing.state.laws import (
    check_law_discharge,
    check_law_lower_discharged,
    check_law_partial_discharge,
)
from fiveloop.testing.state.program_steps import STATE_KINDS, read_all, with_refs

KINDS = with_checkpoints(STATE_KINDS)


@pytest.mark.oracle
@settings(max_examples=30)
@given(programs(KINDS).map(read_all))
def test_refs_made_inside(program: Program) -> None:
    s = program.sample()
    check_law_eval(s, program.twin(*program.arrays()))
    check_laws(s)
    check_law_discharge(s)


@pytest.mark.oracle
@settings(max_examples=20)
@given(programs(KINDS, refs=True))
def test_refs_from_outside(program: Program) -> None:
    s = with_refs(program)
    assert_all_close(s.run(), program.twin(*program.arrays()), "eval: result")
    check_laws(s)
    check_law_discharge(s)
    check_law_partial_discharge(s)


@settings(max_examples=4)
@given(programs(KINDS, refs=True))
def test_compiled_programs(program: Program) -> None:
    s = with_refs(program, "float32")
    check_law_lower_discharged(s)
    assert s.jaxpr.eqns is not None
