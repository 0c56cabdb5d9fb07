"""The shape of the tree: sizes of files and functions, the namespace, licences and versions."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import fiveloop.core

ROOT = Path(__file__).parent.parent
PORTIONS = ("core", "state", "loops", "remat", "numpy", "random", "nn", "api", "testing")
DISTRIBUTIONS = ("core", "state", "loops", "remat", "numpy", "fiveloop", "testing")

FILE_LIMIT = 600
FUNCTION_LIMIT = 60

# Spelled in parts, so that this file does not contain them.
UNFINISHED = re.compile(
    "|".join(
        ("TO" + "DO", "FIX" + "ME", r"\bX" + r"XX\b", r"\bHA" + r"CK\b", "NotImplemented" + "Error")
    )
)
SKIPPING = re.compile(r"pytest\.(?:mark\.)?(?:skip|skipif|xfail|importorskip)\b")

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def python_files() -> tuple[Path, ...]:
    """Every Python file of the project, in a checkout or in a plain copy of it."""
    roots = ("packages", "tests", "docs", "examples", "benchmarks")
    found = [path for root in roots for path in (ROOT / root).rglob("*.py")]
    files = [ROOT / "noxfile.py", ROOT / "conftest.py", *found]
    return tuple(path for path in files if not {".nox", ".venv"} & set(path.parts))


def shown(path: Path) -> str:
    """The path as a reader of the project knows it."""
    return path.relative_to(ROOT).as_posix()


def functions_of(path: Path) -> Iterator[Function]:
    """Every function of a file, nested ones included."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, Function):
            yield node


def length(function: Function) -> int:
    """How many lines a function takes from its `def` to its end, without its docstring."""
    first = function.body[0]
    is_doc = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    doc = (first.end_lineno or 0) - first.lineno + 1 if is_doc and len(function.body) > 1 else 0
    return (function.end_lineno or 0) - function.lineno + 1 - doc


def test_files_are_short() -> None:
    sizes = {shown(p): len(p.read_text(encoding="utf-8").splitlines()) for p in python_files()}
    assert {name: size for name, size in sizes.items() if size > FILE_LIMIT} == {}


def test_functions_are_short() -> None:
    long = {
        f"{shown(path)}:{function.lineno} {function.name}": length(function)
        for path in python_files()
        for function in functions_of(path)
        if length(function) > FUNCTION_LIMIT
    }
    assert long == {}


def test_the_namespace_has_no_init() -> None:
    roots = list(ROOT.glob("packages/*/src/fiveloop"))
    assert len(roots) == len(DISTRIBUTIONS)
    assert [shown(root) for root in roots if (root / "__init__.py").exists()] == []
    assert [shown(root) for root in roots if (root / "py.typed").exists()] == []


@pytest.mark.parametrize("portion", PORTIONS)
def test_a_portion_is_a_typed_package(portion: str) -> None:
    (folder,) = ROOT.glob(f"packages/*/src/fiveloop/{portion}")
    assert (folder / "__init__.py").is_file()
    assert (folder / "py.typed").is_file()


def test_every_folder_of_sources_is_a_package() -> None:
    folders = {p.parent for p in ROOT.glob("packages/*/src/fiveloop/*/**/*.py")}
    assert [shown(f) for f in sorted(folders) if not (f / "__init__.py").is_file()] == []


def test_nothing_is_left_unfinished_or_skipped() -> None:
    wrong = []
    for path in python_files():
        text = path.read_text(encoding="utf-8")
        found = [*UNFINISHED.findall(text), *SKIPPING.findall(text)]
        if path.name != Path(__file__).name and found:
            wrong.append(f"{shown(path)}: {found}")
    assert wrong == []


def project(name: str) -> dict[str, Any]:
    """The `project` table of one distribution."""
    text = (ROOT / "packages" / name / "pyproject.toml").read_text(encoding="utf-8")
    table: dict[str, Any] = tomllib.loads(text)["project"]
    return table


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_a_distribution_pins_its_siblings_to_its_own_version(name: str) -> None:
    table = project(name)
    extras = [d for group in table["optional-dependencies"].values() for d in group]
    siblings = [d for d in (*table["dependencies"], *extras) if d.startswith("fiveloop")]
    version = project("core")["version"]
    assert table["version"] == version
    assert [d for d in siblings if not d.endswith(f"=={version}")] == []
    assert fiveloop.core.__version__ == version


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_a_distribution_carries_the_licence(name: str) -> None:
    licence = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert (ROOT / "packages" / name / "LICENSE").read_text(encoding="utf-8") == licence
    assert project(name)["license"] == "Apache-2.0"


def test_the_changelog_tells_of_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## {project('core')['version']}" in text


def test_ci_runs_the_test_command_of_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    (command,) = re.findall(r"^(python3 -m venv .*/nox)$", readme, re.MULTILINE)
    assert command in script


def test_ci_script_is_well_formed() -> None:
    done = subprocess.run(["bash", "-n", ROOT / ".ci" / "run"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
