"""Every public function has a docstring whose example runs and prints what it shows."""

from __future__ import annotations

import numpy as np
import pytest

from fiveloop import core, remat
from fiveloop.core.testing.docstrings import public_functions, run_example

NAMES = {**vars(core), **vars(remat), "np": np}
FUNCTIONS = public_functions(remat)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_example_shows_what_is_printed(name: str) -> None:
    run_example(name, FUNCTIONS[name], NAMES)
