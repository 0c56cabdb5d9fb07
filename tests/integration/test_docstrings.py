"""Every public function of loops and remat has an example that prints what it shows; they use fiveloop.numpy."""

from __future__ import annotations

import numpy as np
import pytest

from fiveloop import core, loops, remat
from fiveloop.testing.core.docstrings import assert_example_runs, public_functions

NAMES = {**vars(core), "np": np}
FUNCTIONS = {
    name: (function, {**NAMES, **vars(place)})
    for place in (loops, remat)
    for name, function in public_functions(place).items()
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_example_shows_what_is_printed(name: str) -> None:
    function, names = FUNCTIONS[name]
    assert_example_runs(name, function, names)
