"""Reading an optimised HLO module: which instructions inside while bodies make a whole watched array."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

HEAD = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) (?:\(.*\) -> .*)?\{$")
INSTRUCTION = re.compile(
    r"^\s+(?:ROOT )?%?([\w.\-]+) = (\(.*?\)|[a-z]\w*\[[\d,]*\](?:\{[^}]*\})?) ([\w\-]+)\("
)
CALLED = re.compile(
    r"(?:calls|to_apply|body|condition|true_computation|false_computation)=%?([\w.\-]+)"
)
BRANCHES = re.compile(r"(?:branch_computations|called_computations)=\{([^}]*)\}")
BODY = re.compile(r"\bbody=%?([\w.\-]+)")
SHAPE = re.compile(r"^[a-z]\w*\[([\d,]*)\]")

# These name, pass on or update an array in place; everything else that yields a whole array walks over it.
PLUMBING = frozenset(
    "parameter get-tuple-element tuple bitcast while conditional call fusion dynamic-update-slice scatter "
    "opt-barrier optimization-barrier constant".split()
)


@dataclass(frozen=True)
class Instruction:
    """One line of a computation."""

    name: str
    opcode: str
    shape: tuple[int, ...] | None
    line: str


def parse_shape(text: str) -> tuple[int, ...] | None:
    """The dimensions of an array type; None for a tuple type."""
    match = SHAPE.match(text)
    if match is None:
        return None
    return tuple(int(d) for d in match.group(1).split(",") if d)


def computations(text: str) -> dict[str, list[Instruction]]:
    """Every computation of a module by name."""
    found: dict[str, list[Instruction]] = {}
    current: list[Instruction] = []
    for line in text.splitlines():
        if head := HEAD.match(line.rstrip()):
            current = found.setdefault(head.group(1), [])
        elif match := INSTRUCTION.match(line):
            name, type_text, opcode = match.groups()
            current.append(Instruction(name, opcode, parse_shape(type_text), line))
    return found


def called(instructions: Iterable[Instruction]) -> set[str]:
    """The computations that some instructions refer to."""
    names: set[str] = set()
    for instruction in instructions:
        names.update(CALLED.findall(instruction.line))
        for group in BRANCHES.findall(instruction.line):
            names.update(part.strip().lstrip("%") for part in group.split(","))
    return names


def reachable(modules: dict[str, list[Instruction]], roots: Iterable[str]) -> set[str]:
    """Some computations and all that they call, however deep."""
    seen: set[str] = set()
    todo = list(roots)
    while todo:
        name = todo.pop()
        if name in seen or name not in modules:
            continue
        seen.add(name)
        todo.extend(called(modules[name]))
    return seen


def whole_array_work(text: str, watched: Sequence[tuple[int, ...]]) -> list[str]:
    """`opcode name` of each instruction within a while body that walks over as many elements as a watched array has."""
    modules = computations(text)
    bodies = {
        name
        for instructions in modules.values()
        for i in instructions
        for name in BODY.findall(i.line)
    }
    inside = reachable(modules, bodies)
    sizes = {math.prod(shape) for shape in watched}
    return [
        f"{i.opcode} {i.name}"
        for name in sorted(inside)
        for i in modules[name]
        if i.shape is not None and math.prod(i.shape) in sizes and i.opcode not in PLUMBING
    ]
