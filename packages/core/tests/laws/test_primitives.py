"""Every core primitive obeys the laws on its samples."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fiveloop.testing.core.collective_samples import collective_cases
from fiveloop.testing.core.laws import check_law_lower, check_laws
from fiveloop.testing.core.oracle import reference_rules
from fiveloop.testing.core.primitive_samples import NOT_QUOTIENTS, Case, core_cases
from fiveloop.testing.core.samples import sample

CASES = core_cases()
IDS = [f"{name}-{k}" for k, (name, _, _) in enumerate(CASES)]
HIGHER_ORDER = {"closed_call", "custom_rule"}


@pytest.mark.oracle
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_transforms(case: Case) -> None:
    name, fun, args = case
    check_laws(sample(fun, *args), quotients=name not in NOT_QUOTIENTS)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_lowering(case: Case) -> None:
    _, fun, args = case
    check_law_lower(sample(fun, *args))


def core_primitives() -> set[str]:
    """The primitives of core alone: other tests of this process may have imported more."""
    table = "from fiveloop.core.rules import abstract_eval_rules as table"
    code = f"import fiveloop.core; {table}; print(*[p.name for p in table])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_every_primitive_has_a_reference() -> None:
    assert core_primitives() <= reference_rules.keys()


def test_every_core_primitive_has_samples() -> None:
    collectives = {case.name for case in collective_cases()}
    assert core_primitives() - HIGHER_ORDER <= {name for name, _, _ in CASES} | collectives
