"""Random programs of everything: loops, branches, checkpoints, Refs, and transforms of transforms."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiveloop.core.passes import run_passes
from fiveloop.loops.primitives import slots
from fiveloop.testing.core.compare import assert_all_close
from fiveloop.testing.core.cube import TRANSFORMS, check_chain, jvp_of, vjp_of
from fiveloop.testing.core.laws import (
    check_law_eval,
    check_law_vjp_batch,
    check_laws,
)
from fiveloop.testing.core.oracle import Cell
from fiveloop.testing.core.program_steps import with_transforms
from fiveloop.testing.core.programs import Program, programs
from fiveloop.testing.core.samples import Sample
from fiveloop.testing.loops.program_steps import (
    BOUNDED_KINDS,
    ENDING_KINDS,
    WHILE_KINDS,
    of_nests,
)
from fiveloop.testing.remat.laws import check_law_budget
from fiveloop.testing.remat.program_steps import with_budgets, with_checkpoints
from fiveloop.testing.state.check_steps import with_checks
from fiveloop.testing.state.laws import (
    check_law_discharge,
    check_law_lower_discharged,
    check_law_partial_discharge,
    discharged,
)
from fiveloop.testing.state.noise_steps import with_noise
from fiveloop.testing.state.program_steps import read_all, with_refs

EVERYTHING = with_checkpoints(BOUNDED_KINDS)
NESTS = of_nests(with_checkpoints(WHILE_KINDS))
DIFFERENCES = 1e5
"""How much looser a derivative by differences, the twin's, is compared."""


def check_law_passes(s: Sample) -> None:
    """The passes that run before lowering change no result."""
    for form in [discharged(s), *([] if any(isinstance(x, Cell) for x in s.args) else [s])]:
        results = Sample(run_passes(form.jaxpr), form.args).run()
        assert_all_close(results[: len(form.jaxpr.outvars)], s.run(), "passes: result")


@pytest.mark.oracle
@settings(max_examples=8)
@given(programs(EVERYTHING).map(read_all))
def test_all_laws(program: Program) -> None:
    s = program.sample()
    check_law_eval(s, program.twin(*program.arrays()))
    check_laws(s)
    check_law_discharge(s)
    check_law_passes(s)


@settings(max_examples=5)
@given(programs(with_noise(EVERYTHING)))
def test_programs_with_noise(program: Program) -> None:
    s = program.sample()
    check_law_eval(s, program.twin(*program.arrays()))
    check_laws(s)
    check_law_discharge(s)
    check_law_passes(s)


@settings(max_examples=5)
@given(programs(with_checks(EVERYTHING)).map(read_all))
def test_programs_with_checks(program: Program) -> None:
    s = program.sample()
    check_law_eval(s, program.twin(*program.arrays()))
    check_laws(s)
    handled = run_passes(s.jaxpr)
    assert not handled.effects
    results = Sample(handled, s.args).run()
    assert_all_close(results[: len(s.jaxpr.outvars)], s.run(), "passes: result")
    assert not any(np.any(record) for record in results[len(s.jaxpr.outvars) :])


@pytest.mark.oracle
@settings(max_examples=8)
@given(programs(EVERYTHING, refs=True))
def test_all_laws_on_refs(program: Program) -> None:
    s = with_refs(program)
    check_law_eval(s, program.twin(*program.arrays()))
    check_laws(s)
    check_law_discharge(s)
    check_law_partial_discharge(s)
    check_law_passes(s)


@pytest.mark.oracle
@settings(max_examples=5)
@given(programs(with_budgets(EVERYTHING), refs=True))
def test_budgets_around_and_inside(program: Program) -> None:
    s = with_refs(program)
    check_law_eval(s, program.twin(*program.arrays()))
    check_law_budget(s, program.seed)


@pytest.mark.oracle
@settings(max_examples=6)
@given(programs(with_transforms(EVERYTHING)).map(read_all))
def test_programs_that_transform_blocks(program: Program) -> None:
    s = program.sample()
    assert_all_close(s.run(), program.twin(*program.arrays()), "eval", scale=DIFFERENCES)
    check_laws(s)
    check_law_discharge(s)


@pytest.mark.oracle
@settings(max_examples=6)
@given(
    programs(EVERYTHING).map(read_all),
    st.lists(st.sampled_from(sorted(TRANSFORMS)), min_size=2, max_size=2),
)
def test_chains_of_transforms(program: Program, names: list[str]) -> None:
    check_law_discharge(check_chain(program.sample(), names))


@pytest.mark.oracle
@settings(max_examples=9)
@given(programs(WHILE_KINDS, refs=True))
def test_while_loops(program: Program) -> None:
    s = with_refs(program)
    check_law_eval(s, program.twin(*program.arrays()))
    check_laws(s)
    check_law_discharge(s)
    check_law_passes(s)


@pytest.mark.oracle
@settings(max_examples=9)
@given(programs(ENDING_KINDS).map(read_all))
def test_gradients_of_lanes_that_end_at_poles(program: Program) -> None:
    check_law_vjp_batch(program.sample(), seed=program.seed)


def at_any_size(program: Program) -> AbstractContextManager[object]:
    """Nests of loops become one loop in the derivative, however small their Refs are; in every other program."""
    if program.seed % 2:
        return nullcontext()
    return mock.patch.multiple(slots, SMALL=0, LEAST_SHARE=0)


@pytest.mark.oracle
@settings(max_examples=10)
@given(programs(NESTS, refs=True))
def test_nests_on_refs(program: Program) -> None:
    with at_any_size(program):
        s = with_refs(program)
        check_law_eval(s, program.twin(*program.arrays()))
        check_laws(s, most=2)
        check_law_discharge(s)


@settings(max_examples=3)
@given(programs(NESTS, refs=True))
def test_compiled_derivatives_of_nests(program: Program) -> None:
    with at_any_size(program):
        check_law_lower_discharged(vjp_of(with_refs(program), np.random.default_rng(program.seed)))


@settings(max_examples=4)
@given(st.one_of(programs(EVERYTHING, refs=True), programs(WHILE_KINDS, refs=True)))
def test_compiled_derivatives(program: Program) -> None:
    rng = np.random.default_rng(program.seed)
    pulled = vjp_of(with_refs(program), rng)
    check_law_lower_discharged(pulled)
    check_law_lower_discharged(jvp_of(pulled, rng))
