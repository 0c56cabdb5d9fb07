"""Every collective obeys the laws on its samples, in all lanes at once."""

from __future__ import annotations

from itertools import product

import pytest

from fiveloop.testing.core.collective_samples import CollectiveCase, collective_cases
from fiveloop.testing.core.cube import TRANSFORMS, check_chain
from fiveloop.testing.core.lanes import lanes
from fiveloop.testing.core.laws import check_law_lanes, check_laws

CASES = collective_cases()
IDS = [f"{case.name}-{k}" for k, case in enumerate(CASES)]


@pytest.mark.oracle
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_lanes(case: CollectiveCase) -> None:
    check_law_lanes(case.sample(), case.named)


@pytest.mark.oracle
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_transforms(case: CollectiveCase) -> None:
    with lanes(*case.named):
        check_laws(case.sample())


@pytest.mark.oracle
@pytest.mark.parametrize("names", list(product(TRANSFORMS, repeat=2)), ids="-".join)
def test_chains_of_transforms(names: tuple[str, str]) -> None:
    seen: set[str] = set()
    for case in CASES:
        if case.name not in seen:
            seen.add(case.name)
            with lanes(*case.named):
                found = check_chain(case.sample(), names)
            check_law_lanes(found, case.named, most=1)
    assert len(seen) == 8
