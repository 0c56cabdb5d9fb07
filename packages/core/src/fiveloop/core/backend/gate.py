"""The gate: searches a compiled program for instructions that copy or select a whole carried array in a loop."""

from __future__ import annotations

import re
from math import prod

from ..dataclass import dataclass

_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\{\s*$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\((.*)$")
_CALLED = re.compile(
    r"(?:calls|to_apply|body|condition|branch_computations|true_computation|false_computation)=\{?%?([\w.\-, %]+)\}?"
)
_SHAPE = re.compile(r"(\w+)\[([\d,]*)\]")
_MINIMUM_ELEMENTS = 32


@dataclass(frozen=True, slots=True)
class WholeCopy:
    """An instruction in a loop that writes a whole array: its name, what it does and the array's shape."""

    name: str
    operation: str
    shape: str


@dataclass(slots=True)
class _Instruction:
    name: str
    shape: str
    operation: str
    rest: str


def array_copies(text: str) -> list[WholeCopy]:
    """The whole-array copies and selects within while bodies of an optimised program."""
    computations = _computations(text)
    found: list[WholeCopy] = []
    for body, updated in _loop_bodies(computations):
        for name in _reachable(computations, body):
            made = {i.name: i for i in computations[name]}
            found += [
                WholeCopy(i.name, i.operation, _plain(i.shape))
                for i in computations[name]
                if i.operation in ("copy", "select") and _plain(i.shape) in updated
                if not _is_new(i, made)
            ]
    return list(dict.fromkeys(found))


def _is_new(instruction: _Instruction, made: dict[str, _Instruction]) -> bool:
    """Whether what is copied has just been made from numbers alone: zeros, to be filled by two loops within."""
    source = made.get(_operands(instruction)[0])
    if source is None or source.operation not in ("broadcast", "fusion", "constant", "iota"):
        return False
    operands = [made[name] for name in _operands(source) if name in made]
    return all(_elements(i.shape) == 1 for i in operands)


def _operands(instruction: _Instruction) -> list[str]:
    """The names of an instruction's operands."""
    return re.findall(r"%([\w.\-]+)", instruction.rest.partition(")")[0]) or [""]


def _computations(text: str) -> dict[str, list[_Instruction]]:
    out: dict[str, list[_Instruction]] = {}
    current: list[_Instruction] | None = None
    for line in text.splitlines():
        head = _COMPUTATION.match(line)
        if head:
            current = out[head.group(1)] = []
        elif line.startswith("}"):
            current = None
        elif current is not None and (match := _INSTRUCTION.match(line)):
            current.append(_Instruction(*match.groups()))
    return out


def _loop_bodies(computations: dict[str, list[_Instruction]]) -> list[tuple[str, set[str]]]:
    """The bodies of loops, each with the shapes of the arrays that it updates at indices."""
    out = []
    for instructions in computations.values():
        for instruction in instructions:
            body = re.search(r"body=%?([\w.\-]+)", instruction.rest)
            if instruction.operation == "while" and body and body.group(1) in computations:
                updated = _updated_shapes(computations, body.group(1))
                carried = {f"{d}[{s}]" for d, s in _SHAPE.findall(instruction.shape)}
                large = {s for s in updated & carried if _elements(s) >= _MINIMUM_ELEMENTS}
                out.append((body.group(1), large))
    return out


def _updated_shapes(computations: dict[str, list[_Instruction]], body: str) -> set[str]:
    return {
        _plain(i.shape)
        for name in _reachable(computations, body)
        for i in computations[name]
        if i.operation in ("dynamic-update-slice", "scatter")
    }


def _reachable(computations: dict[str, list[_Instruction]], start: str) -> list[str]:
    seen, waiting = {start: None}, [start]
    while waiting:
        for instruction in computations[waiting.pop()]:
            for group in _CALLED.findall(instruction.rest):
                for name in re.split(r"[,\s%]+", group):
                    if name in computations and name not in seen:
                        seen[name] = None
                        waiting.append(name)
    return list(seen)


def _plain(shape: str) -> str:
    match = _SHAPE.match(shape)
    return f"{match.group(1)}[{match.group(2)}]" if match else shape


def _elements(shape: str) -> int:
    dims = _SHAPE.match(shape)
    return prod(map(int, dims.group(2).split(","))) if dims and dims.group(2) else 1
