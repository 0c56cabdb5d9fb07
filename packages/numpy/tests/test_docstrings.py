"""Every public function has a docstring whose example runs and prints what it shows."""

from __future__ import annotations

import doctest
import inspect
import re
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from fiveloop import nn, random
from fiveloop import numpy as fnp

NUMBER = re.compile(r"-?(?:\d+\.\d*|\d+|\.\d+)(?:e[-+]?\d+)?|nan|inf")


class Near(doctest.OutputChecker):
    """Compares the text between numbers exactly, blanks aside, and numbers to seven digits or so."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        texts = ["".join(NUMBER.sub("#", text).split()) for text in (want, got)]
        wanted, given = ([float(x) for x in NUMBER.findall(text)] for text in (want, got))
        if texts[0] != texts[1] or len(wanted) != len(given):
            return False
        return bool(np.allclose(given, wanted, rtol=2e-6, atol=1e-12))


NAMES = {"fnp": fnp, "nn": nn, "np": np, "random": random}


PLACES: list[ModuleType] = [fnp, fnp.linalg, random, nn, nn.initializers]


def functions() -> dict[str, Any]:
    """Every public function, under its own name."""
    found = {}
    for place in PLACES:
        for _, function in inspect.getmembers(place, inspect.isfunction):
            ours = function.__module__.startswith(
                ("fiveloop.numpy", "fiveloop.random", "fiveloop.nn")
            )
            if ours and not function.__name__.startswith("_"):
                found[f"{function.__module__}.{function.__name__}"] = function
    return found


@pytest.mark.parametrize("name", functions())
def test_the_example_shows_what_is_printed(name: str) -> None:
    function = functions()[name]
    tests = doctest.DocTestFinder(recurse=False).find(function, name, globs=dict(NAMES))
    examples = [example for test in tests for example in test.examples]
    assert examples, f"{name} has no example"
    report: list[str] = []
    runner = doctest.DocTestRunner(Near(), verbose=False)
    for test in tests:
        runner.run(test, out=report.append)
    assert runner.failures == 0, "".join(report)
