"""Tools for tests of checkpoints: references for the oracle, and random programs with checkpoints."""

from fiveloop.remat.testing import references
from fiveloop.state import testing as state_testing
