"""The result of `explain`: the planning of each loop of a program, as data and as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fiveloop.core import ir
from fiveloop.core.dataclass import asdict, dataclass, replace
from fiveloop.loops.record import ALL_OFF, OFF, PLAIN, Operand


@dataclass(frozen=True)
class StepReport:
    """What a planning step did with something in a loop (`done`), or why it did nothing; the line that decides."""

    step: str
    subject: str
    done: bool
    reason: str
    line: str | None = None

    def __str__(self) -> str:
        mark = "+" if self.done else "-"
        what = f"{mark} {self.step}: " + (f"{self.subject}: " if self.subject else "")
        return f"{what}{self.reason}" + (f", {self.line}" if self.line else "")


@dataclass(frozen=True)
class SavedReport:
    """What a loop keeps for its derivative, of each step or once, and the line that computes it."""

    type: str
    bytes: ir.Dim
    each_step: bool
    line: str | None

    def __str__(self) -> str:
        often = "of each step" if self.each_step else "once"
        line = f", {self.line}" if self.line else ""
        return f"keeps {self.type} {often}: {_number(self.bytes)} bytes{line}"


@dataclass(frozen=True)
class LoopReport:
    """One loop: its place in the program, its operands, and the planning steps that were applied.

    `number` counts loops; the number of an inner loop follows a dot. `within` names the calls and branches around the
    loop. `call` is the function that was called, and `role` the purpose of the loop: "loop", a part of a derivative,
    or lanes. `steps` is None if it is known only at run time; with `may_end` there may be fewer. `in_place` says how
    arrays that are updated at indices stay in place, and `copies` is the number of instructions that copy such an
    array in every step nevertheless.
    """

    number: str
    call: str
    name: str
    line: str | None
    within: tuple[str, ...]
    role: str
    steps: ir.Dim | None
    may_end: bool
    reverse: bool
    unroll: int
    operands: tuple[Operand, ...]
    decisions: tuple[StepReport, ...]
    saved: tuple[SavedReport, ...]
    in_place: str
    copies: int

    @property
    def residual_bytes(self) -> ir.Dim:
        """The bytes that are saved for the derivative."""
        total: ir.Dim = 0
        for saved in self.saved:
            total = total + saved.bytes
        return total

    def decision(self, step: str, subject: str = "") -> StepReport:
        """The decision of a planning step about a subject, such as an operand by its name, or the first that it made.

        Raises KeyError if there is no such decision.
        """
        for found in self.decisions:
            if found.step == step and (not subject or found.subject == subject):
                return found
        known = ", ".join(f"{d.step} {d.subject}".rstrip() for d in self.decisions)
        there = f"one of {known}" if known else "which has none"
        asked = f"{step} {subject}".rstrip()
        raise KeyError(f"expected a decision of loop {self.number}, {there}; got {asked!r}")

    def __str__(self) -> str:
        return "\n".join([self._title(), *[f"  {line}" for line in self._lines()]])

    def _title(self) -> str:
        steps = "a number of steps known only at run time"
        if self.steps is not None:
            steps = f"{_number(self.steps)} steps" if self.steps != 1 else "1 step"
            steps = f"at most {steps}" if self.may_end else steps
        names = " or ".join(f"`{name}`" for name in self.name.split(" or "))
        what = f"{self.call} of {names}"
        role = self.role if self.role != PLAIN else None
        down = "counting down" if self.reverse else None
        title = ", ".join(filter(None, [what, role, self.line, steps, down]))
        return f"loop {self.number}: {title}"

    def _lines(self) -> list[str]:
        lines = [f"within {' / '.join(self.within)}"] if self.within else []
        names = max([len(o.name) for o in self.operands], default=0)
        types = max([len(o.type) for o in self.operands], default=0)
        lines += [f"{o.name:<{names}}  {o.type:<{types}}  {o.use}" for o in self.operands]
        lines += _told(self.decisions)
        lines += map(str, self.saved)
        if self.unroll > 1:
            lines.append(f"unroll: {self.unroll} steps are compiled into one iteration")
        lines.append(f"in place: {self.in_place}")
        return lines


def _told(decisions: Sequence[StepReport]) -> list[str]:
    """A line for each decision; decisions that differ only in their subjects share one, as do steps that are off."""
    same: dict[tuple[object, ...], list[StepReport]] = {}
    for d in decisions:
        key = (d.done, d.reason, d.line) if d.reason == OFF else (d.step, d.done, d.reason, d.line)
        same.setdefault(key, []).append(d)
    return [
        str(
            replace(
                group[0],
                step=", ".join(dict.fromkeys(d.step for d in group)),
                subject=", ".join(dict.fromkeys(d.subject for d in group)),
                reason=ALL_OFF if len(group) > 1 and group[0].reason == OFF else group[0].reason,
            )
        )
        for group in same.values()
    ]


@dataclass(frozen=True)
class Explanation:
    """The loops of a program; prints as text, and `to_dict` returns plain data that `json` can write.

    `emission` is the form in which reads are ordered before writes, None if no loop needs an order; `copies` is the
    number of copies of whole arrays in the loops of the compiled program. A program with symbolic sizes is not
    compiled: both are None.
    """

    loops: tuple[LoopReport, ...]
    emission: str | None
    copies: int | None

    def __len__(self) -> int:
        return len(self.loops)

    def to_dict(self) -> dict[str, Any]:
        """The explanation as dictionaries, lists, strings and numbers."""
        return {
            "loops": [
                _plain({**asdict(loop), "residual_bytes": loop.residual_bytes})
                for loop in self.loops
            ],
            "emission": self.emission,
            "copies": self.copies,
        }

    def __str__(self) -> str:
        if not self.loops:
            return "there are no loops"
        return "\n".join([*map(str, self.loops), self._summary()])

    __repr__ = __str__

    def _summary(self) -> str:
        if self.copies is None:
            return "sizes are not known, so the program is not compiled"
        copies = f"{self.copies} copies of whole arrays are left" if self.copies else "no copies"
        if self.emission is None:
            left = f"; {copies}" if self.copies else ""
            return f"nothing in these loops needs an order{left}"
        return f"reads are ordered before writes by `{self.emission}`: {copies}"


def _number(n: ir.Dim) -> str:
    """A number as people read it; a size that is not known is shown as it is."""
    return f"{n:,}" if ir.is_constant(n) else str(n)


def _plain(x: Any) -> Any:
    """The same for `json`, where sizes that are not known are text."""
    if isinstance(x, dict):
        return {name: _plain(part) for name, part in x.items()}
    if isinstance(x, list | tuple):
        return [_plain(part) for part in x]
    return x if x is None or isinstance(x, str | int) else str(x)


def same_shape(hlo_shape: str, types: Sequence[str]) -> bool:
    """Whether an array of the compiled program may be one of some types: it has the same sizes."""
    sizes = hlo_shape.partition("[")[2]
    return any(sizes == t.partition("[")[2] for t in types)
