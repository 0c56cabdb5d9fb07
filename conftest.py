"""Settings of Hypothesis for every suite; the suites themselves run its profile `ci`."""

from hypothesis import HealthCheck, settings

# `nox -s fuzz` draws new examples on every run; compiling makes any deadline meaningless.
settings.register_profile(
    "fuzz",
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
