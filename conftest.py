"""Settings of every suite: Hypothesis, whose profile `ci` suites run, errors with all their frames, and an order."""

import os

import pytest
from hypothesis import HealthCheck, settings

# `nox -s fuzz` draws new examples on every run; compiling makes any deadline meaningless.
settings.register_profile(
    "fuzz",
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)

# A test that fails must show where in the library it did.
os.environ.setdefault("FIVELOOP_TRACEBACK", "full")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run tests that go over all objects first: later there are many times more."""
    items.sort(key=lambda item: item.path.name != "test_leaks.py")
