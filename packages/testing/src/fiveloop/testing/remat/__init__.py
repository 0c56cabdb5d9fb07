"""Tools for tests of checkpoints: references for the oracle, and random programs with checkpoints."""

from fiveloop.testing.remat import references
from fiveloop.testing import state as state_testing
