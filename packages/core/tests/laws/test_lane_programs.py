"""Random programs that talk across a named axis obey every law."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from fiveloop.testing.core.lane_steps import AXIS, lane_sample, lane_twin, with_collectives
from fiveloop.testing.core.lanes import lanes
from fiveloop.testing.core.laws import check_law_eval, check_law_lanes, check_laws
from fiveloop.testing.core.program_steps import CORE_KINDS
from fiveloop.testing.core.programs import Program, programs


@pytest.mark.oracle
@settings(max_examples=10)
@given(programs(with_collectives(CORE_KINDS)))
def test_programs_of_lanes(program: Program) -> None:
    s = lane_sample(program)
    with lanes(AXIS):
        check_law_eval(s, lane_twin(program))
        check_laws(s)
    check_law_lanes(s, [AXIS])
