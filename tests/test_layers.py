"""The import graph, as data, and the checks that hold every file to it."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from tests.sources import statements_in, statements_of

pytestmark = pytest.mark.usefixtures("_syntax_trees")
ROOT = Path(__file__).parent.parent

# Which portions of the namespace each portion may import, itself aside.
PORTIONS: dict[str, tuple[str, ...]] = {
    "core": (),
    "state": ("core",),
    "loops": ("core", "state"),
    "remat": ("core", "state"),
    "numpy": ("core", "state", "loops"),
    "random": ("core", "state", "loops", "numpy"),
    "nn": ("core", "state", "loops", "numpy", "random"),
    "api": ("core", "state", "loops", "remat", "numpy", "random", "nn"),
    "testing": ("core", "state", "loops", "remat", "numpy", "random", "nn"),
}

# The layers of core, lowest first: a module imports its own layer and those before it.
CORE_LAYERS: tuple[tuple[str, ...], ...] = (
    ("util", "errors", "version", "dataclass", "pytree", "structure", "backend"),
    ("ir",),
    ("arrays", "ad", "rules", "passes"),
    ("lower",),
    ("trace",),
    ("primitives", "prims"),
    ("index",),
    ("operators", "keys"),
    ("transforms",),
    ("closed_call", "custom_rule"),
    ("api", "tree"),
    ("extend",),
    ("inspect",),
)

# The floors of loops, lowest first: a module imports its own floor and those before it.
LOOPS_FLOORS: tuple[tuple[str, ...], ...] = (
    ("carry", "common", "names", "options", "progress", "record", "schedules"),
    ("primitives",),
    ("analysis",),
    ("tracing",),
    ("for_loop", "while_loop", "cond", "replay", "flat", "scan", "accumulate", "associative"),
    ("machine", "plan", "reversal", "store"),
    ("explain",),
)

# What a portion may import from outside; NumPy and the standard library everywhere.
THIRD_PARTY: dict[str, tuple[str, ...]] = {
    "core": ("jaxlib", "ml_dtypes", "scipy"),
    "loops": ("tqdm",),
}
TEST_TOOLS = ("hypothesis", "pytest")
BACKEND = "fiveloop.core.backend"
DATACLASSES = "fiveloop.core.dataclass"  # declares them in a fiftieth of the time
LATE_IMPORTS = "fiveloop.core.backend.lazy"  # the one place that imports inside functions


@dataclass(frozen=True)
class Import:
    """One import: the importing module, its line, the imported module, and the name taken from it."""

    importer: str
    line: int
    module: str
    name: str | None
    nested: bool

    @property
    def target(self) -> str:
        """The module that is imported, where the name is itself a module."""
        full = f"{self.module}.{self.name}"
        return full if self.name and full in library() else self.module

    def __str__(self) -> str:
        taken = f" import {self.name}" if self.name else ""
        return f"{self.importer}:{self.line}: {self.module}{taken}"


@cache
def library() -> dict[str, Path]:
    """Every module of the packages, by its dotted name."""
    modules = {}
    for path in ROOT.glob("packages/*/src/fiveloop/**/*.py"):
        parts = path.relative_to(path.parents[_depth(path)]).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        modules[name] = path
    return modules


def _depth(path: Path) -> int:
    """How many parents of the path lie below `src`."""
    return [parent.name for parent in path.parents].index("src")


def absolute(node: ast.ImportFrom, importer: str, path: Path) -> str:
    """The module that a `from` statement names, with leading dots resolved."""
    if not node.level:
        return node.module or ""
    package = importer.split(".") if path.name == "__init__.py" else importer.split(".")[:-1]
    base = package[: len(package) - node.level + 1]
    return ".".join([*base, node.module] if node.module else base)


def imports_of(importer: str, path: Path) -> Iterator[Import]:
    """Every import in a file, wherever it stands."""
    nodes = statements_of(path)
    functions = [n for n in nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    nested = {id(statement) for f in functions for statement in statements_in(f)}
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(importer, node.lineno, alias.name, None, id(node) in nested)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                module = absolute(node, importer, path)
                yield Import(importer, node.lineno, module, alias.name, id(node) in nested)


@cache
def library_imports() -> list[Import]:
    """Every import in the packages' sources."""
    return [found for name, path in library().items() for found in imports_of(name, path)]


def within_fiveloop() -> list[Import]:
    """The imports of one module of fiveloop by another."""
    return [i for i in library_imports() if i.module.split(".")[0] == "fiveloop"]


def portion(module: str) -> str:
    """The portion of the namespace that a module of fiveloop belongs to."""
    return module.split(".")[1]


def core_layer(module: str) -> int | None:
    """The height of a module within core; None for core itself, which holds the public names."""
    parts = module.split(".")
    if len(parts) == 2:
        return None
    heights = [height for height, names in enumerate(CORE_LAYERS) if parts[2] in names]
    assert heights, f"{module} is in no layer of core: give it one in CORE_LAYERS"
    return heights[0]


def loops_floor(module: str) -> int | None:
    """The floor of a module within loops; None for loops itself, which holds the public names."""
    parts = module.split(".")
    if len(parts) == 2:
        return None
    found = [floor for floor, names in enumerate(LOOPS_FLOORS) if parts[2] in names]
    assert found, f"{module} is on no floor of loops: give it one in LOOPS_FLOORS"
    return found[0]


def is_testing(module: str) -> bool:
    """Whether the module is shipped for tests only."""
    return "testing" in module.split(".")


def test_library_is_found() -> None:
    assert {portion(name) for name in library()} == set(PORTIONS)


def test_a_portion_imports_only_portions_to_its_left() -> None:
    wrong = [
        str(i)
        for i in within_fiveloop()
        if portion(i.target) not in (portion(i.importer), *PORTIONS[portion(i.importer)])
    ]
    assert wrong == []


def test_the_tools_for_a_package_import_what_it_imports() -> None:
    wrong = []
    for found in within_fiveloop():
        if portion(found.importer) == "testing" and found.importer.count(".") > 1:
            package = found.importer.split(".")[2]
            there = found.target.split(".")
            target = there[2] if there[1] == "testing" else there[1]
            if target not in (package, *PORTIONS[package]):
                wrong.append(str(found))
    assert wrong == []


def test_core_imports_go_left() -> None:
    inside = [i for i in within_fiveloop() if portion(i.importer) == "core"]
    wrong = []
    for found in inside:
        importer, target = core_layer(found.importer), core_layer(found.target)
        if importer is not None and (target is None or target > importer):
            wrong.append(str(found))
    assert wrong == []


def test_a_floor_of_loops_imports_no_higher_one() -> None:
    wrong = []
    for found in within_fiveloop():
        is_inside = portion(found.importer) == "loops" == portion(found.target)
        if is_inside and not is_testing(found.importer):
            importer, target = loops_floor(found.importer), loops_floor(found.target)
            if importer is not None and (target is None or target > importer):
                wrong.append(str(found))
    assert wrong == []


@pytest.mark.parametrize("name", ["core", "state", "loops", "numpy"])
def test_no_two_folders_of_a_package_import_each_other(name: str) -> None:
    files = library()
    arrows = {
        (files[found.importer].parent, files[found.target].parent)
        for found in within_fiveloop()
        if portion(found.importer) == name == portion(found.target)
    }
    top = files[f"fiveloop.{name}"].parent
    both = [
        (a.name, b.name) for a, b in arrows if a != b and top not in (a, b) and (b, a) in arrows
    ]
    assert both == []


def test_third_party_imports_are_declared() -> None:
    wrong = []
    for found in library_imports():
        top = found.module.split(".")[0]
        if top in sys.stdlib_module_names or top in ("fiveloop", "numpy"):
            continue
        tools = TEST_TOOLS if is_testing(found.importer) else ()
        if top not in (*THIRD_PARTY.get(portion(found.importer), ()), *tools):
            wrong.append(str(found))
    assert wrong == []


def test_only_the_backend_imports_jaxlib() -> None:
    wrong = [
        str(i)
        for i in library_imports()
        if i.module.split(".")[0] == "jaxlib"
        and not (i.importer == BACKEND or i.importer.startswith(BACKEND + "."))
    ]
    assert wrong == []


def test_nothing_but_the_benchmarks_imports_jax() -> None:
    files = [*library().values(), *ROOT.glob("packages/*/tests/**/*.py")]
    for folder in ("tests", "examples", "docs"):
        files += ROOT.glob(f"{folder}/**/*.py")
    found = [i for path in files for i in imports_of(path.relative_to(ROOT).as_posix(), path)]
    wrong = [str(i) for i in found if i.module.split(".")[0] == "jax"]
    assert len(found) > len(files)
    assert wrong == []


def test_imports_stand_at_the_top_of_a_file() -> None:
    wrong = [str(i) for i in library_imports() if i.nested and i.importer != LATE_IMPORTS]
    assert wrong == []


def test_dataclasses_are_declared_by_the_decorator_that_is_quick() -> None:
    wrong = [
        str(i)
        for i in library_imports()
        if (i.module, i.name) == ("dataclasses", "dataclass")
        and not is_testing(i.importer)
        and i.importer != DATACLASSES
    ]
    assert wrong == []


def test_no_private_name_crosses_a_file() -> None:
    wrong = []
    for found in within_fiveloop():
        names = [*found.module.split("."), found.name or ""]
        if any(name.startswith("_") and not name.startswith("__") for name in names):
            wrong.append(str(found))
    assert wrong == []


def test_no_library_module_imports_what_is_for_tests() -> None:
    wrong = [
        str(i)
        for i in library_imports()
        if not is_testing(i.importer)
        and (is_testing(i.target) or i.module.split(".")[0] in TEST_TOOLS)
    ]
    assert wrong == []
