"""Examples in docstrings: which public names have one, and whether it prints what it shows."""

from __future__ import annotations

import doctest
import inspect
import re
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np

NUMBER = re.compile(r"-?(?:\d+\.\d*|\d+|\.\d+)(?:e[-+]?\d+)?|nan|inf")
OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


class Near(doctest.OutputChecker):
    """Compares the text between numbers exactly, blanks aside, and numbers to seven digits or so."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        if super().check_output(want, got, optionflags):
            return True
        texts = ["".join(NUMBER.sub("#", text).split()) for text in (want, got)]
        wanted, given = ([float(x) for x in NUMBER.findall(text)] for text in (want, got))
        if texts[0] != texts[1] or len(wanted) != len(given):
            return False
        return bool(np.allclose(given, wanted, rtol=2e-6, atol=1e-12))


def public_functions(*places: ModuleType) -> dict[str, Any]:
    """Functions that the modules show, by the module that defines them and their name; others aside."""
    found = {}
    for place in places:
        for name, value in inspect.getmembers(place, is_function):
            home = value.__module__ or ""
            if home.startswith("fiveloop.") and not name.startswith("_"):
                found[f"{home}.{name}"] = value
    return found


def is_function(value: object) -> bool:
    """Whether it is a function, or a decorator written as a class, such as `custom_jvp`."""
    return inspect.isfunction(value) or (inspect.isclass(value) and value.__name__.islower())


def assert_example_runs(name: str, function: Any, names: Mapping[str, object]) -> None:
    """Run the example of a docstring with these names at hand; fail if it has none, or if it prints something else."""
    tests = doctest.DocTestFinder(recurse=False).find(function, name, globs=dict(names))
    assert any(test.examples for test in tests), f"{name} has no example"
    report: list[str] = []
    runner = doctest.DocTestRunner(Near(), verbose=False, optionflags=OPTIONS)
    for test in tests:
        runner.run(test, out=report.append)
    assert runner.failures == 0, "".join(report)
