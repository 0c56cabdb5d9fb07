"""Every test asserts something: itself, in a helper of its file, or by a law of a `testing` module."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.sources import statements_in, statements_of

pytestmark = pytest.mark.usefixtures("_syntax_trees")
ROOT = Path(__file__).parent.parent
FOLDERS = ("packages/*/tests", "tests", "examples")
CONTEXTS = ("raises", "warns")


def files_with_tests() -> list[Path]:
    """Every file with tests."""
    found = {path for folder in FOLDERS for path in ROOT.glob(f"{folder}/**/test_*.py")}
    assert len(found) > len(FOLDERS)
    return sorted(found)


def functions_of(path: Path) -> dict[str, ast.FunctionDef]:
    """The functions of a file, those of its classes too, by name."""
    return {n.name: n for n in statements_of(path) if isinstance(n, ast.FunctionDef)}


def called_names(function: ast.FunctionDef) -> Iterator[str]:
    """The last part of the name of everything that is called, or handed on, within a function."""
    for node in ast.walk(function):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
            if isinstance(node.value, ast.Name):
                yield node.value.id


def names_for_tests(path: Path) -> set[str]:
    """Names imported from modules that are shipped for tests, whose functions assert."""
    imports = [n for n in statements_of(path) if isinstance(n, ast.ImportFrom) and n.module]
    return {
        alias.asname or alias.name
        for node in imports
        for alias in node.names
        if "testing" in f"{node.module}.{alias.name}".split(".")
    }


def asserting(path: Path) -> set[str]:
    """The functions of a file that assert, by themselves or through what they call."""
    functions = functions_of(path)
    known = names_for_tests(path) | {*CONTEXTS}
    known |= {name for name, f in functions.items() if holds_assert(f)}
    while grown := {n for n, f in functions.items() if {*called_names(f)} & known} - known:
        known |= grown
    return known


def holds_assert(function: ast.FunctionDef) -> bool:
    """Whether an `assert`, or a call named like one, stands in the function."""
    if any(isinstance(node, ast.Assert) for node in statements_in(function)):
        return True
    return any(name.startswith("assert_") for name in called_names(function))


def test_every_test_asserts_something() -> None:
    idle = []
    for path in files_with_tests():
        names = functions_of(path).keys() - asserting(path)
        idle += [f"{path.name}: {name}" for name in names if name.startswith("test_")]
    assert idle == []
