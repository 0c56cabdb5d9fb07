"""Every collective obeys the laws on its samples, in all lanes at once."""

from __future__ import annotations

import pytest

from fiveloop.core.testing.collective_samples import CollectiveCase, collective_cases
from fiveloop.core.testing.lanes import lanes
from fiveloop.core.testing.laws import check_laws, law_lanes

CASES = collective_cases()
IDS = [f"{case.name}-{k}" for k, case in enumerate(CASES)]


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_lanes(case: CollectiveCase) -> None:
    law_lanes(case.sample(), case.named)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_transforms(case: CollectiveCase) -> None:
    with lanes(*case.named):
        check_laws(case.sample())
