"""Settings of every suite: Hypothesis, whose profile `ci` the suites run, and errors with all their frames."""

import os

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
