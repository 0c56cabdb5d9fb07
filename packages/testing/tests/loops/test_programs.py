"""Random programs with loops obey every law."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiveloop.core.passes import run_passes
from fiveloop.loops import Progress, planning
from fiveloop.loops.options import DEFAULT, Planning
from fiveloop.loops.progress import bars
from fiveloop.testing.core.compare import assert_all_close
from fiveloop.testing.core.cube import check_chain
from fiveloop.testing.core.laws import check_law_eval, check_laws
from fiveloop.testing.core.programs import Program, programs
from fiveloop.testing.loops.laws import check_law_planning, with_planning
from fiveloop.testing.loops.placed_steps import PLACED_KINDS
from fiveloop.testing.loops.program_steps import (
    CARRIED_KINDS,
    LOOP_KINDS,
    WHILE_KINDS,
    with_planned,
    with_progress,
)
from fiveloop.testing.state.laws import (
    check_law_discharge,
    check_law_lower_discharged,
    check_law_partial_discharge,
)
from fiveloop.testing.state.program_steps import read_all, with_refs


@pytest.mark.oracle
@settings(max_examples=8)
@given(programs(LOOP_KINDS).map(read_all))
def test_refs_made_inside(program: Program) -> None:
    s = program.sample()
    check_law_eval(s, program.twin(*program.arrays()))
    check_laws(s)
    check_law_discharge(s)


@pytest.mark.oracle
@settings(max_examples=7)
@given(programs(LOOP_KINDS, refs=True))
def test_refs_from_outside(program: Program) -> None:
    s = with_refs(program)
    assert_all_close(s.run(), program.twin(*program.arrays()), "eval: result")
    check_laws(s)
    check_law_discharge(s)
    check_law_partial_discharge(s)


@pytest.mark.oracle
@settings(max_examples=6)
@given(programs(with_progress(LOOP_KINDS), refs=True))
def test_loops_that_show_their_progress(program: Program) -> None:
    s = with_refs(program)
    assert_all_close(s.run(), program.twin(*program.arrays()), "eval: result")
    check_laws(s)
    check_law_discharge(s)
    check_law_partial_discharge(s)
    check_law_planning(s, program.seed)


class Unseen:
    """A bar that is not drawn."""

    def __init__(self, progress: Progress, total: int | None) -> None:
        """Of whatever length."""

    def show(self, count: int) -> None:
        """Nothing."""

    def close(self, count: int) -> None:
        """Nothing."""


@settings(max_examples=4)
@given(programs(with_progress(WHILE_KINDS), refs=True))
def test_compiled_programs_that_show_their_progress(program: Program) -> None:
    s = with_refs(program, "float32")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bars, "new_bar", Unseen)
        check_law_lower_discharged(s)
    assert s.jaxpr.eqns is not None


@pytest.mark.oracle
@settings(max_examples=8)
@given(programs(CARRIED_KINDS).map(read_all), st.integers(0, 100))
def test_carried_arrays(program: Program, seed: int) -> None:
    s = program.sample()
    check_law_eval(s, program.twin(*program.arrays()))
    check_law_planning(s, seed)
    with planning(promote=False):
        assert_all_close(program.sample().run(), s.run(), "unplanned: result")


@pytest.mark.oracle
@settings(max_examples=5)
@given(programs(with_planned(LOOP_KINDS), refs=True))
def test_loops_planned_otherwise_than_those_around_them(program: Program) -> None:
    s = with_refs(program)
    assert_all_close(s.run(), program.twin(*program.arrays()), "eval: result")
    check_laws(s)
    check_law_discharge(s)
    check_law_planning(s, program.seed)


@pytest.mark.oracle
@settings(max_examples=5)
@given(programs(CARRIED_KINDS).map(read_all))
def test_laws_of_carried_arrays(program: Program) -> None:
    s = program.sample()
    check_laws(s)
    check_law_discharge(s)


@pytest.mark.oracle
@settings(max_examples=6)
@given(programs(PLACED_KINDS, refs=True), st.integers(0, 100))
def test_sums_and_rows(program: Program, seed: int) -> None:
    s = with_refs(program)
    assert_all_close(s.run(), program.twin(*program.arrays()), "eval: result")
    check_law_planning(s, seed)
    check_laws(s)
    check_law_discharge(s)


@pytest.mark.oracle
@settings(max_examples=4)
@given(programs(PLACED_KINDS).map(read_all), st.integers(0, 100))
def test_derivatives_of_sums_and_rows(program: Program, seed: int) -> None:
    check_law_planning(check_chain(program.sample(), ["vjp"], seed), seed)


def test_programs_have_sums_and_rows_in_place() -> None:
    changed = Counter[str]()

    @settings(max_examples=20)
    @given(programs(PLACED_KINDS, refs=True))
    def count(program: Program) -> None:
        jaxpr = with_refs(program).jaxpr

        def planned(planning: Planning) -> str:
            ready = run_passes(with_planning(jaxpr, planning))
            # The options are part of a loop; only what was done with it is compared.
            return str(with_planning(ready, DEFAULT))

        for step in ("scalars", "rows"):
            without = planned(replace(DEFAULT, **{step: False}))
            changed[step] += planned(DEFAULT) != without

    count()
    assert min(changed["scalars"], changed["rows"]) > 4, changed


@settings(max_examples=4)
@given(programs(LOOP_KINDS, refs=True))
def test_compiled_programs(program: Program) -> None:
    s = with_refs(program, "float32")
    check_law_lower_discharged(s)
    assert s.jaxpr.eqns is not None
