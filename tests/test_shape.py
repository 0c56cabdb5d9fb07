"""The shape of the tree: sizes of files and functions, the namespace, licences and versions."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from tests.sources import statements_of

import fiveloop.core

pytestmark = pytest.mark.usefixtures("_syntax_trees")
ROOT = Path(__file__).parent.parent
PORTIONS = ("core", "state", "loops", "remat", "numpy", "random", "nn", "api", "testing")
DISTRIBUTIONS = ("core", "state", "loops", "remat", "numpy", "fiveloop", "testing")

FILE_LIMIT = 600
FUNCTION_LIMIT = 60
# Files in a folder of sources: a family of primitives each, a tool for tests each, and in any other folder.
FOLDER_LIMITS = {"core/primitives": 20, "testing/core": 23}
FOLDER_LIMIT = 15

# The shares of the lines of core, state, loops and remat, in percent: at least half is logic.
LEAST_LOGIC = 50.0
MOST_IMPORTS = 5.5
LEAST_DOCS = 12.0
BODY_OF_90_PERCENT = 15

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
    return (node for node in statements_of(path) if isinstance(node, Function))


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


def test_folders_are_small() -> None:
    counts = Counter(path.parent for path in ROOT.glob("packages/*/src/fiveloop/**/*.py"))
    names = {folder.as_posix().split("/src/fiveloop/")[1]: n for folder, n in counts.items()}
    assert {f: n for f, n in names.items() if n > FOLDER_LIMITS.get(f, FOLDER_LIMIT)} == {}


def lines_of(node: ast.AST) -> set[int]:
    """The numbers of the lines that a statement takes."""
    first, last = getattr(node, "lineno", 1), getattr(node, "end_lineno", 0)
    return set(range(first, last + 1))


def docstring_of(node: ast.AST) -> set[int]:
    """The lines of the docstring of a module, a class or a function."""
    first = getattr(node, "body", [None])[0]
    is_doc = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return lines_of(first) if is_doc and isinstance(first.value.value, str) else set()


def form_of(node: ast.AST) -> set[int]:
    """The lines that only say types: signatures, overloads, protocols and declarations of types."""
    if isinstance(node, Function):
        header = set(range(node.lineno, max(node.body[0].lineno, node.lineno + 1)))
        is_overload = any("overload" in ast.unparse(d) for d in node.decorator_list)
        return header | lines_of(node) | lines_of(node.decorator_list[0]) if is_overload else header
    if isinstance(node, ast.ClassDef) and any("Protocol" in ast.unparse(b) for b in node.bases):
        return lines_of(node)
    if isinstance(node, (ast.If, ast.Assign, ast.AnnAssign)):
        words = ast.unparse(node).split("\n")[0]
        marks = ("TypeVar", "TypeAlias", "ParamSpec")
        if words.startswith(("if TYPE_CHECKING", "__all__")) or any(m in words for m in marks):
            return lines_of(node)
    return set()


def kinds_of_lines(path: Path) -> Counter[str]:
    """How many lines of a file there are, of docstrings, imports and logic among them."""
    text = path.read_text(encoding="utf-8")
    docs, form, imports = set[int](), set[int](), set[int]()
    for node in statements_of(path):
        docs |= (
            docstring_of(node) if isinstance(node, (ast.Module, ast.ClassDef, Function)) else set()
        )
        form |= form_of(node)
        imports |= lines_of(node) if isinstance(node, (ast.Import, ast.ImportFrom)) else set()
    lines = text.splitlines()
    code = {n for n, line in enumerate(lines, 1) if line.strip() and line.strip()[0] != "#"} - docs
    logic = code - imports - form
    return Counter(lines=len(lines), docs=len(docs), imports=len(imports & code), logic=len(logic))


def library_files() -> list[Path]:
    """The sources of core, state, loops and remat."""
    packages = ("core", "state", "loops", "remat")
    return [path for p in packages for path in ROOT.glob(f"packages/{p}/src/**/*.py")]


def test_lines_are_spent_on_logic() -> None:
    counts = sum(map(kinds_of_lines, library_files()), Counter[str]())
    shares = {kind: 100 * n / counts["lines"] for kind, n in counts.items()}
    assert shares["logic"] >= LEAST_LOGIC
    assert shares["imports"] <= MOST_IMPORTS
    assert shares["docs"] >= LEAST_DOCS


def test_most_functions_are_very_short() -> None:
    def body(function: Function) -> int:
        return length(function) - (function.body[0].lineno - function.lineno)

    bodies = sorted(body(f) for path in library_files() for f in functions_of(path))
    assert bodies[len(bodies) * 9 // 10] <= BODY_OF_90_PERCENT


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


def test_a_page_has_no_conflict_left_in_it() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *ROOT.glob("packages/*/*.md")]
    lines = {p: p.read_text(encoding="utf-8").split("\n") for p in pages}
    assert [
        shown(p) for p in pages if any(x[:8] in ("<<<<<<< ", ">>>>>>> ") for x in lines[p])
    ] == []


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
