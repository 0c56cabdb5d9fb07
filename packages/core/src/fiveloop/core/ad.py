"""Types that derivative rules take and return: symbolic zeros, linear operands, and names for signatures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from fiveloop.core.arrays.array import Value
from fiveloop.core.dataclass import dataclass
from fiveloop.core.ir.avals import Aval


@dataclass(frozen=True, slots=True)
class Zero:
    """A tangent or cotangent that is zero, of the given type, without an array."""

    aval: Aval


@dataclass(slots=True)
class UndefinedPrimal:
    """A linear operand of an equation under transposition: only its type is known. Not frozen, which takes half the
    time: there is one for each operand.

    A rule may return its cotangent or, if there is a mutable value `into`, add it to the part of that value that it
    touches. If a cotangent is `held`, it may give the `Total` of that and its own.
    """

    aval: Aval
    into: Value | None = None
    held: Value | None = None


@dataclass(frozen=True, slots=True)
class Accumulator:
    """A linear operand of an accumulating type under transposition, by the value that collects its cotangents."""

    value: Value

    @property
    def aval(self) -> Aval:
        return self.value.aval


@dataclass(frozen=True, slots=True)
class Total:
    """A cotangent that already includes the one held for the same value before: it replaces that one."""

    value: Value


Tangent: TypeAlias = Value | Zero
Operand: TypeAlias = Value | UndefinedPrimal | Accumulator
Function: TypeAlias = Callable[..., Sequence[Any]]
"""A function of values: it gives a sequence of values or, before they are checked, of what can be made one."""

# What rules take ...
Values: TypeAlias = Sequence[Value]
Tangents: TypeAlias = Sequence[Tangent]
Operands: TypeAlias = Sequence[Operand]
BatchAxes: TypeAlias = Sequence[int | None]

# ... and give: results and tangents; results and their batch axes; a cotangent or None for each operand.
Duals: TypeAlias = tuple[list[Value], list[Tangent]]
Batched: TypeAlias = tuple[list[Value], list[int | None]]
Cotangents: TypeAlias = list[Tangent | Total | None]
