"""Branches of tests are too cheap to be run in groups of lanes: where a test asks for groups, it gets them."""

import pytest

from fiveloop.loops.cond import lanes


@pytest.fixture(autouse=True)
def _lanes_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "PLACED", 0.0)
    monkeypatch.setattr(lanes, "MOVED", 0.0)
