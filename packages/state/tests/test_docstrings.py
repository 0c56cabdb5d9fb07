"""Every public function has a docstring whose example runs and prints what it shows."""

from __future__ import annotations

import numpy as np
import pytest

from fiveloop import core, state
from fiveloop.core import extend as core_extend
from fiveloop.state import extend
from fiveloop.testing.core.docstrings import assert_example_runs, public_functions

NAMES = {**vars(core), **vars(core_extend), **vars(state), **vars(extend), "np": np}
FUNCTIONS = public_functions(state, extend)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_example_shows_what_is_printed(name: str) -> None:
    assert_example_runs(name, FUNCTIONS[name], NAMES)
