"""Tools for tests: the oracle, the laws, checks of derivatives, random programs; no library module imports them."""

from fiveloop.core.testing import references
