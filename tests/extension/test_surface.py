"""The packages of somebody else's need only names that are made for them, and the guide lists those."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest

from fiveloop.core import extend as core_extend
from fiveloop.state import extend as state_extend

HERE = Path(__file__).parent
GUIDE = HERE.parent.parent / "docs" / "adding_a_primitive.md"
PUBLIC = {"fiveloop.core", "fiveloop.core.extend", "fiveloop.state", "fiveloop.state.extend"}


@pytest.mark.parametrize("name", ["journal", "outsider", "smooth", "tally"])
def test_a_package_of_somebody_else_imports_public_names_alone(name: str) -> None:
    tree = ast.parse((HERE / f"{name}.py").read_text(encoding="utf-8"))
    found = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
    ours = [n for n in found if (n.module or "").startswith("fiveloop")]
    assert ours
    assert {n.module for n in ours} <= PUBLIC
    for node in ours:
        public = import_module(node.module or "").__all__
        assert [a.name for a in node.names if a.name not in public] == []


def test_the_guide_lists_the_names_that_rules_are_written_with() -> None:
    table = GUIDE.read_text(encoding="utf-8").partition("## The names, by purpose")[2]
    names = [*vars(core_extend)["__all__"], *vars(state_extend)["__all__"]]
    assert [name for name in names if f"`{name}`" not in table] == []
