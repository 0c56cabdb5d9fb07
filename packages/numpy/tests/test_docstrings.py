"""Every public function has a docstring whose example runs and prints what it shows."""

from __future__ import annotations

import numpy as np
import pytest

from fiveloop import nn, random
from fiveloop import numpy as fnp
from fiveloop.testing.core.docstrings import assert_example_runs, public_functions

NAMES = {"fnp": fnp, "nn": nn, "np": np, "random": random}
OURS = ("fiveloop.numpy", "fiveloop.random", "fiveloop.nn")
FUNCTIONS = {
    name: function
    for name, function in public_functions(fnp, fnp.linalg, random, nn, nn.initializers).items()
    if name.startswith(OURS)
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_example_shows_what_is_printed(name: str) -> None:
    assert_example_runs(name, FUNCTIONS[name], NAMES)
