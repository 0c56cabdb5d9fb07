"""Random programs without state obey every law."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from fiveloop.testing.core.laws import check_law_eval, check_law_lower, check_laws
from fiveloop.testing.core.program_steps import CORE_KINDS
from fiveloop.testing.core.programs import Program, programs


@pytest.mark.oracle
@settings(max_examples=30)
@given(programs(CORE_KINDS))
def test_transformed_programs(program: Program) -> None:
    s = program.sample()
    check_law_eval(s, program.twin(*program.arrays()))
    check_laws(s)


@settings(max_examples=5)
@given(programs(CORE_KINDS))
def test_compiled_programs(program: Program) -> None:
    check_law_lower(program.sample("float32"))
