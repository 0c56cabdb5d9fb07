"""Tools for tests: the oracle, the laws, checks of derivatives, random programs; no library module imports them."""

from fiveloop.testing.core import references
