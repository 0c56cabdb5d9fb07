"""Tools for tests of state: references for the oracle, the law of discharge, random stateful programs."""

from fiveloop.testing.state import references
