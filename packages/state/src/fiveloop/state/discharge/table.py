"""The discharge column: the types of its rules, and the table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from fiveloop.core import Value, ir, rules
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
