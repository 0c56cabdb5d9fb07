"""The record of a loop: the decision of each planning step, and the reason. Stored only where `explain` asks."""

from __future__ import annotations

from collections.abc import Sequence

from fiveloop.core import ir, util
from fiveloop.core.dataclass import dataclass, field, replace

PLAIN = "loop"
"""The role of a loop that is no part of a derivative."""
BRANCH = "branch"
"""The role of a loop of one turn or none that stands for a branch; `called` is that."""
PUSHES = "values and tangents"
KNOWN = "forward half of a derivative"
LINEAR = "linear half of a derivative"
BACKWARD = "backward half of a derivative"


@dataclass(frozen=True, slots=True)
class Called:
    """The function that the user called for a loop; `name` is given if it differs from the name of the loop's body.

    `kind` names the steps where they are not steps of this function.
    """

    call: str = "for_loop"
    name: str = ""
    kind: str = ""


FOR_LOOP = Called()
"""What is said of a loop unless its caller says more."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What a step did with something in a loop (`done`), or why it did nothing, with the line that decides."""

    step: str
    subject: str
    done: bool
    reason: str
    source: ir.Source | None = None


@dataclass(frozen=True, slots=True)
class Operand:
    """What a loop takes, as it is before discharge: `use` is how each step uses it."""

    name: str
    type: str
    use: str


@dataclass(frozen=True, slots=True)
class Saved:
    """What a loop keeps for its derivative."""

    type: str
    bytes: ir.Dim
    each_step: bool
    source: ir.Source | None


@dataclass(frozen=True, slots=True)
class Record:
    """Facts about a loop that do not change its results.

    `called` is the user's call, `role` the part of a derivative that the loop computes, `steps` the number of steps, if
    a `while` stands for a loop with such a number. The planning steps add to the record only if it `tells`.
    """

    called: Called = FOR_LOOP
    role: str = PLAIN
    tells: bool = False
    decisions: tuple[Decision, ...] = ()
    operands: tuple[Operand, ...] = ()
    saved: tuple[Saved, ...] = ()
    steps: int | None = None

    @property
    def is_branch(self) -> bool:
        """Whether the loop makes one turn, for a branch that is taken."""
        return self.role == BRANCH

    @property
    def part(self) -> str:
        """What the loop is: a part of a derivative, of lanes that run one after the other."""
        parts = [self.called.kind, self.role if self.role != PLAIN else ""]
        return ", ".join(filter(None, parts)) or PLAIN

    def with_decisions(self, decisions: Sequence[Decision]) -> Record:
        """The record with further decisions; a decision that is there already is not repeated."""
        return replace(self, decisions=tuple(dict.fromkeys([*self.decisions, *decisions])))

    def moved(self, role: str, saved: Sequence[Saved] = ()) -> Record:
        """The record of a loop made from this one, with operands of its own."""
        if not self.tells:
            return self
        return replace(self, role=role, operands=(), saved=tuple(saved))

    def keeping(self, kept: Sequence[bool]) -> Record:
        """The record of the loop with some of its operands."""
        if len(self.operands) != len(kept):
            return replace(self, operands=()) if self.operands else self
        return replace(self, operands=tuple(util.select_by(kept, self.operands)))

    def in_order(self, order: Sequence[int]) -> Record:
        """The record of the loop with its operands in another order."""
        return replace(self, operands=tuple(self.operands[k] for k in order if self.operands))

    def pushed(self) -> Record:
        """The record of the loop whose values go through it together with tangents."""
        role = self.role if self.role.endswith(PUSHES) else f"{self.role}, {PUSHES}"
        return self.moved(PUSHES if self.role == PLAIN else role)


@dataclass(frozen=True, slots=True)
class Planned:
    """A loop after a planning step: equations before it, the loop, equations after it, and the decisions."""

    loop: ir.Eqn
    before: ir.Eqns = ()
    after: ir.Eqns = ()
    told: list[Decision] = field(default_factory=list)

    @property
    def eqns(self) -> list[ir.Eqn]:
        """All equations."""
        return [*self.before, self.loop, *self.after]


def names_of(binders: ir.Vars) -> list[str]:
    """The names of a loop's operands, which its binders have; one without a name is known by its number."""
    return [v.hint or f"operand {k}" for k, v in enumerate(binders)]


EMPTY = Record()
MACHINERY = Record(Called("while_loop"), "machinery")
"""The record of a loop that is a part of how another one runs."""
OFF = "it is turned off"
ALL_OFF = "they are turned off"


def shown_aval(aval: ir.Aval) -> ir.Aval:
    """A type; for a Ref, the type of its contents."""
    inner: ir.Aval = getattr(aval, "inner", aval)
    return inner


def shown_type(aval: ir.Aval) -> str:
    """A type as people read it: what a Ref holds, for a Ref."""
    return str(shown_aval(aval))
