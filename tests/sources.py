"""The sources as syntax trees, each parsed once for all tests of a file that read them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

BLOCKS = ("body", "handlers", "orelse", "finalbody", "cases")


@cache
def tree_of(path: Path) -> ast.Module:
    """A file's syntax tree."""
    return ast.parse(path.read_text(encoding="utf-8"))


def statements_in(node: ast.AST) -> Iterator[ast.AST]:
    """A module, class, function or block, and the statements in it at any depth; not what these are made of."""
    waiting = [node]
    while waiting:
        found = waiting.pop()
        yield found
        waiting += [inner for block in BLOCKS for inner in getattr(found, block, ())]


@cache
def statements_of(path: Path) -> list[ast.AST]:
    """All statements of a file, after its module."""
    return list(statements_in(tree_of(path)))
