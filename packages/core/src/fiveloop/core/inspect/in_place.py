"""How the loops of a program stay in place: the form of the order, and the remaining copies."""

from __future__ import annotations

from fiveloop.core import ir
from fiveloop.core.backend import client
from fiveloop.core.backend.gate import WholeCopy, array_copies
from fiveloop.core.dataclass import dataclass
from fiveloop.core.lower.dispatch import compiled, prepared
from fiveloop.core.lower.emission import ladder


@dataclass(frozen=True, slots=True)
class InPlace:
    """How `order` was written, None if the program has none; the copies of whole arrays in the bodies of loops."""

    emission: str | None
    copies: tuple[WholeCopy, ...]


def in_place(jaxpr: ir.Jaxpr) -> InPlace:
    """How a program's loops stay in place. It is compiled only if a loop may update an array.

    >>> from fiveloop.core import make_jaxpr
    >>> in_place(make_jaxpr(lambda x: x + 1.0)(2.0))
    InPlace(emission=None, copies=())
    """
    lowered = prepared(jaxpr).lowered()
    if not lowered.updates_in_loops:
        return InPlace(None, ())
    program = compiled(jaxpr)
    used = lowered.uses_order or program.emission.guards
    copies = array_copies(program.executable.optimized_text())
    return InPlace(program.emission.value if used else None, tuple(copies))


def ready_jaxpr(jaxpr: ir.Jaxpr) -> ir.Jaxpr:
    """The jaxpr after all passes, as it is lowered; remembered on it."""
    return prepared(jaxpr).ready()


def recomputes_in_branches() -> bool:
    """Whether a recomputation is lowered as a branch that is always taken, because the compiler drops barriers."""
    return ladder(client.platform())[0].branches
