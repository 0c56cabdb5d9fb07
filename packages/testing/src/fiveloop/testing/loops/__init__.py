"""Tools for tests of loops: references for the oracle, and random programs with loops."""

from fiveloop.testing.loops import references
from fiveloop.testing import state as state_testing
