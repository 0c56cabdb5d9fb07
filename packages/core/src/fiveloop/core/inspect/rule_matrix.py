"""`matrix` and `row`: the cells of primitives and transforms, with the file and line of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import CodeType
from typing import Any, Literal

from fiveloop.core import ir, rules
from fiveloop.core.backend import lazy
from fiveloop.core.dataclass import dataclass

Status = Literal["rule", "fact", "default", "refused", "blank"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a function is written."""

    name: str
    file: str
    line: int

    def __str__(self) -> str:
        path, here = Path(self.file), Path.cwd()
        shown = path.relative_to(here) if path.is_relative_to(here) else path
        return f"{self.name} at {shown}:{self.line}"


@dataclass(frozen=True, slots=True)
class Cell:
    """The entry of a transform for a primitive: a rule, a fact, the column's default, a refusal, or nothing."""

    column: str
    status: Status
    places: tuple[Place, ...] = ()
    reason: str = ""

    def __str__(self) -> str:
        return " <- ".join(map(str, self.places)) or self.reason


@dataclass(frozen=True, slots=True)
class Row:
    """All cells of one primitive."""

    name: str
    cells: tuple[Cell, ...]

    def __getitem__(self, column: str) -> Cell:
        for cell in self.cells:
            if cell.column == column:
                return cell
        names = ", ".join(cell.column for cell in self.cells)
        raise KeyError(f"expected the name of a column, one of {names}; got {column!r}")

    def __iter__(self) -> Iterator[Cell]:
        return iter(self.cells)

    def __repr__(self) -> str:
        width = max(len(cell.column) for cell in self.cells)
        lines = [
            f"  {cell.column:<{width}}  {cell.status:<7}  {cell}".rstrip() for cell in self.cells
        ]
        return "\n".join([self.name, *lines])


@dataclass(frozen=True, slots=True)
class Matrix:
    """All rows, in the order in which their primitives were defined."""

    rows: tuple[Row, ...]

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        lines = [["", *[column.column for column in rules.COLUMNS]]]
        lines += [[row.name, *[cell.status for cell in row]] for row in self.rows]
        widths = [max(map(len, entries)) for entries in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join(f"{word:<{width}}" for word, width in zip(line, widths, strict=True)).rstrip()
            for line in lines
        )


def matrix() -> Matrix:
    """The entries of all transforms for all defined primitives; new columns and rows appear by themselves."""
    return Matrix(tuple(_row(prim) for prim in rules.abstract_eval_rules))


def row(name: str) -> Row:
    """The entries of a primitive in all columns, with the file and line of each.

    Raises ValueError, with similar names, if no primitive has this name.
    """
    known = {prim.name: prim for prim in rules.abstract_eval_rules}
    if name not in known:
        close = ", ".join(lazy.difflib().get_close_matches(name, known))
        advice = f"those most like it: {close}" if close else "`matrix()` shows them all"
        raise ValueError(
            f"row: expected the name of a primitive that has been defined, got {name!r}; {advice}"
        )
    return _row(known[name])


def _row(prim: ir.Primitive[Any]) -> Row:
    return Row(prim.name, tuple(_cell(column, prim) for column in rules.COLUMNS))


def _cell(column: rules.RuleTable[Any], prim: ir.Primitive[Any]) -> Cell:
    cell = column.cell(prim)
    if isinstance(cell, rules.Refusal):
        return Cell(column.column, "refused", reason=cell.why)
    if callable(cell):
        return Cell(column.column, "rule", tuple(places(cell)))
    if cell is not None:
        return Cell(column.column, "fact", reason="yes" if cell is True else str(cell))
    return Cell(column.column, "default" if column.default else "blank", reason=column.default)


def places(rule: Callable[..., Any]) -> list[Place]:
    """Where a rule is written: itself, and what it was made from if that stands in another file."""
    if isinstance(rule, rules.PureAbstractEval):
        rule = rule.types
    code = _code(rule)
    if code is None:
        return [Place(type(rule).__name__, "<built in>", 0)]
    place = Place(code.co_qualname.removesuffix(".<locals>"), code.co_filename, code.co_firstlineno)
    for inner in _made_from(rule):
        found = _code(inner)
        if found is not None and found.co_filename != code.co_filename:
            return [place, *places(inner)]
    return [place]


def _code(rule: Any) -> CodeType | None:
    while isinstance(rule, partial):
        rule = rule.func
    code = getattr(rule, "__code__", None)
    return code if isinstance(code, CodeType) else None


def _made_from(rule: Any) -> Iterator[Any]:
    """The functions that a function closes over, or that fill its first parameters, at any depth."""
    cells = [cell.cell_contents for cell in getattr(rule, "__closure__", None) or ()]
    for held in [*cells, *(rule.args if isinstance(rule, partial) else ())]:
        for x in held if isinstance(held, (tuple, list)) else (held,):
            if _code(x) is not None:
                yield x
                yield from _made_from(x)
