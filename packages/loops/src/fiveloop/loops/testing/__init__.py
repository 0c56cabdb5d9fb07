"""Tools for tests of loops: references for the oracle, and random programs with loops."""

from fiveloop.loops.testing import references
from fiveloop.state import testing as state_testing
