"""Every public function has a docstring whose example runs and prints what it shows."""

from __future__ import annotations

import numpy as np
import pytest

from fiveloop import core
from fiveloop.core import extend
from fiveloop.testing.core.docstrings import assert_example_runs, public_functions

NAMES = {**vars(core), **vars(extend), "np": np}
FUNCTIONS = public_functions(core, extend)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_example_shows_what_is_printed(name: str) -> None:
    assert_example_runs(name, FUNCTIONS[name], NAMES)
