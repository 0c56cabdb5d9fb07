"""What tests of the whole tree share."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from tests import sources


@pytest.fixture(scope="module")
def _syntax_trees() -> Iterator[None]:
    """For tests that read the sources: millions of nodes without cycles, gone when the file of tests is done.

    To look for cycles among them takes longer than the tests do.
    """
    gc.disable()
    yield
    sources.statements_of.cache_clear()
    sources.tree_of.cache_clear()
    gc.enable()
