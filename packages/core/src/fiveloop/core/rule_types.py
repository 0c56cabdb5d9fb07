"""What rules take and give: symbolic zeros, undefined primals, verdicts and split equations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fiveloop.core.ir.avals import Aval

if TYPE_CHECKING:
    from fiveloop.core.array import Value
    from fiveloop.core.ir.jaxpr import Eqn, Jaxpr
    from fiveloop.core.util import Mask


@dataclass(frozen=True, slots=True)
class Zero:
    """A tangent or cotangent that is zero, of the given type, without an array."""

    aval: Aval


@dataclass(frozen=True, slots=True)
class UndefinedPrimal:
    """A linear operand of an equation under transposition: only its type is known.

    A rule may give its cotangent or, if there is a mutable value `into`, add to that as much as it touches.
    """

    aval: Aval
    into: Value | None = None


@dataclass(frozen=True, slots=True)
class Accumulator:
    """A linear operand of an accumulating type under transposition: what collects its cotangents."""

    value: Value

    @property
    def aval(self) -> Aval:
        return self.value.aval


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of a value at the boundary between the known and the staged half."""

    kind: str
    reason: str = ""

    @property
    def saves(self) -> bool:
        return self.kind != "recompute"


SAVE = Verdict("save")
RECOMPUTE = Verdict("recompute")


@dataclass(frozen=True, slots=True)
class Weigh(Verdict):
    """Save or recompute, whichever costs less; where no cut is made it saves.

    `memory_cost` is that of a byte kept, `compute_cost` that of an operation done again, and a chain of equations
    that is done again may cost at most `share` of all that the body does.
    """

    kind: str = "weigh"
    memory_cost: float = 1.0
    compute_cost: float = 1.0
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Offload(Verdict):
    """Save in another memory: from `src` to `dst`."""

    kind: str = "offload"
    src: str = "device"
    dst: str = "pinned_host"


@dataclass(slots=True)
class EqnSplit:
    """An equation cut in two.

    `known` equations run first; what they define is a residual where a `staged` equation uses it. Each output
    of the original equation is defined by one of them: by a staged one where `out_unknown` says so. `again` make the
    other outputs, but for those that are kept, once more, from operands and residuals; None if `known` would have to.
    """

    known: list[Eqn]
    staged: list[Eqn]
    out_unknown: Mask
    again: list[Eqn] | None = None


@dataclass(frozen=True, slots=True)
class Cost:
    """An estimate of an equation: operations, in units of an addition, and bytes moved.

    `again` says that it is light enough to be done again rather than have its results kept: it works element by
    element, or only rearranges. What contracts, reduces, sorts, gathers or loops is not.
    """

    flops: int
    bytes: int
    again: bool = False


@dataclass(slots=True)
class Body:
    """A jaxpr among an equation's params: its role and how often it runs.

    `plain` says that the equation does nothing but run its bodies, on a batch too. Then a body's last binders stand for
    the last operands; a binder before these, such as a counter, is the same in all lanes, and an operand before these
    chooses what runs. The results of a "loop" are its binders from `carry` on in the next step; a "condition" says
    whether there is one. Final contents of operands that are Refs to the bodies alone are results after the others.
    """

    jaxpr: Jaxpr
    role: str
    trips: int = 1
    plain: bool = False
    carry: int = 0
