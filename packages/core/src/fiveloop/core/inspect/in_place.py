"""How the loops of a program stay in place: what orders reads before writes, and the copies that are left."""

from __future__ import annotations

from dataclasses import dataclass

from fiveloop.core.backend.gate import WholeCopy, array_copies
from fiveloop.core.ir.jaxpr import Jaxpr
from fiveloop.core.lower.dispatch import compiled, prepared


@dataclass(frozen=True, slots=True)
class InPlace:
    """How `order` was written, None if the program has none; the copies of whole arrays in the bodies of loops."""

    emission: str | None
    copies: tuple[WholeCopy, ...]


def in_place(jaxpr: Jaxpr) -> InPlace:
    """How a program's loops stay in place. It is compiled only if there is something to order.

    >>> from fiveloop.core import make_jaxpr
    >>> in_place(make_jaxpr(lambda x: x + 1.0)(2.0))
    InPlace(emission=None, copies=())
    """
    if not prepared(jaxpr).lowered().uses_order:
        return InPlace(None, ())
    program = compiled(jaxpr)
    return InPlace(program.emission.value, tuple(array_copies(program.executable.optimized_text())))


def ready_jaxpr(jaxpr: Jaxpr) -> Jaxpr:
    """The jaxpr after all passes, as it is lowered; remembered on it."""
    return prepared(jaxpr).ready()
