"""The discharge column: the types of its rules, and the table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias

from fiveloop.core import Value, ad, ir, rules
from fiveloop.core.dataclass import dataclass, field
from fiveloop.core.ir.indexer import Indexer


@dataclass(frozen=True, eq=False)
class Place:
    """An index into a Ref of a shape: as it was given, and as it is read and written, `starts`."""

    indexer: Indexer
    index: tuple[Value, ...]
    shape: ir.Shape
    starts: tuple[Value, ...]


@dataclass(eq=False)
class Write:
    """A write that has not been carried out yet; `kind` is "set" or, where an index may repeat, a monoid."""

    place: Place
    value: Value
    kind: str = "set"


@dataclass(eq=False)
class Cell:
    """The value of a Ref under discharge: its contents at the start of the phase, and the writes since.

    `changes` says whether anything in the jaxpr writes to it.
    """

    contents: Value
    changes: bool = True
    writes: list[Write] = field(default_factory=list)


Operands: TypeAlias = Sequence[Value | Cell]


class DischargeContext(Protocol):
    """What a discharge rule may do with the Refs among its operands, each given as a `Cell`.

    `once` says that the program is no part of a loop and is about to be compiled; `index` is the loop's counter, None
    where there is none.
    """

    once: bool
    index: Value | None

    def read(self, cell: Cell, indexer: Indexer, index: ad.Values) -> Value:
        """The elements of the Ref at an index."""

    def write(self, cell: Cell, indexer: Indexer, index: ad.Values, x: Value) -> None:
        """Replace the elements of the Ref at an index."""

    def accumulate(
        self, cell: Cell, indexer: Indexer, index: ad.Values, x: Value, monoid: str = "add"
    ) -> None:
        """Combine with the elements of the Ref at an index, by the monoid of that name."""

    def contents(self, cell: Cell) -> Value:
        """The contents of the Ref."""

    def values(self, operands: Operands) -> list[Value]:
        """The operands with all that each Ref holds in its place."""

    def peek(self, cell: Cell) -> Value:
        """The contents of the Ref, for reading at indices."""

    def latest(self, x: Value) -> Value:
        """An operand as it is after `contents` or `peek`, which may have ended a phase."""

    def holding(self, values: ad.Values) -> AbstractContextManager[None]:
        """Within the block these values, which a rule has computed, are used after phases that end in it."""

    def assign(self, cell: Cell, contents: Value) -> None:
        """Replace all that the Ref holds."""

    def new_cell(self, contents: Value) -> Cell:
        """A new Ref."""


DischargeRule: TypeAlias = Callable[[Any, Sequence[Any], Any], Sequence[Any]]


discharge_rules: rules.RuleTable[DischargeRule] = rules.RuleTable(
    "discharge",
    default="bind unchanged if no operand is a Ref and no nested jaxpr holds one",
    by="define_discharge(prim, rule)",
)


def define_discharge(prim: ir.Primitive[Any], rule: DischargeRule) -> None:
    """Register the discharge rule of a primitive; RuleError if it has one already.

    `rule(ctx, operands, p)` finds a `Cell` in the place of each Ref, reads and changes it by the methods of `ctx` (see
    `DischargeContext`), and gives the results. A primitive without Refs needs no rule.

    >>> clear_p, no = Primitive("clear"), Refusal("discharge it first")
    >>> types = lambda avals, p: ([], frozenset([WriteEffect(0)]))
    >>> define(clear_p, abstract_eval=types, lower=no, jvp=no, batch=no)
    >>> def discharge(ctx, operands, p):
    ...     (cell,) = operands
    ...     ctx.assign(cell, zeros_of(ctx.contents(cell).aval))
    ...     return []
    >>> define_discharge(clear_p, discharge)
    >>> print(discharge_state(make_jaxpr(lambda r: bind(clear_p, r))(new_ref(np.ones(3)))))
    { lambda _:f64[3] ; let
        a:f64[3] = broadcast_in_dim[shape=(3,) dims=()] 0.0:f64
      in (a,) }
    """
    discharge_rules.define(prim, rule)
