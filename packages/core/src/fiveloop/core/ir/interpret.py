"""The one loop over equations: an environment, and a step that says what each equation gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from fiveloop.core.ir.jaxpr import Atom, Eqn, Var
from fiveloop.core.ir.source import Source

V = TypeVar("V")
Step = Callable[[Eqn, list[Any]], Sequence[Any]]


def _anywhere(source: Source | None) -> None:
    """Where an equation comes from does not matter."""


class Environment(dict[Var, V]):
    """What stands for each variable while equations are interpreted."""

    __slots__ = ()

    def read(self, atom: Atom) -> V:
        """What stands for an atom; a literal stands for its value."""
        return self[atom] if isinstance(atom, Var) else atom.value  # type: ignore[return-value]  # constants are values

    def run(
        self,
        eqns: Iterable[Eqn],
        step: Step,
        set_source: Callable[[Source | None], None] = _anywhere,
    ) -> None:
        """Let `step` say what each equation gives for its operands, in order; `set_source` is told the lines."""
        read = self.read
        for eqn in eqns:
            set_source(eqn.source)
            operands = [read(a) for a in eqn.invars]
            self.update(zip(eqn.outvars, step(eqn, operands), strict=True))
