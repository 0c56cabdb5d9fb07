"""Effects: what an equation does besides computing its outputs, as part of its type."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Self, TypeAlias

from fiveloop.core.dataclass import dataclass, replace
from fiveloop.core.ir.avals import Aval

Effects = frozenset["Effect"]
Typing: TypeAlias = tuple[list[Aval], Effects]
"""What `abstract_eval` gives of an equation: the types of its results, and its effects."""
NO_EFFECTS: Effects = frozenset()


@dataclass(frozen=True)
class Effect:
    """The base of all effect types; what core must know of one is a class attribute.

    `droppable`: an equation whose results are unused and whose effects are all droppable may go.
    `ordered`: equations with this effect keep their order. `in_loops`: allowed in the body of a loop.
    `recomputable`: an equation with this effect may run again in a recomputation. `may_fail`: a program with this
    effect may stop half-way, and then leaves its arguments as they were. `mutates`: it changes the operand that it is
    on. `returns`: a pass gives a program with this effect one more result, which `at_return` takes when the program has
    run.
    `each_lane`: on what all lanes of a batch share, it happens once for each of them, even if they all do the same.
    `lanes_differ`: what it gives then is not the same in all lanes.

    A subclass is a frozen dataclass, so that effects can be compared.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Logged(Effect):
    ...     level: int
    >>> Logged(1) == Logged(1), Logged.droppable, Logged.in_loops
    (True, False, True)
    """

    droppable: ClassVar[bool] = False
    ordered: ClassVar[bool] = False
    in_loops: ClassVar[bool] = True
    recomputable: ClassVar[bool] = False
    may_fail: ClassVar[bool] = False
    mutates: ClassVar[bool] = False
    each_lane: ClassVar[bool] = False
    lanes_differ: ClassVar[bool] = False
    returns: ClassVar[bool] = False

    @classmethod
    def at_return(cls, contents: Any) -> None:
        """Take the result that a program has for effects of this type."""


@dataclass(frozen=True)
class PositionalEffect(Effect):
    """An effect on one operand: a position in `Eqn.invars`, or in `Jaxpr.invars`.

    >>> class Fill(PositionalEffect):
    ...     mutates = True
    >>> Fill(0).at(2).position
    2
    """

    position: int

    def at(self, position: int) -> Self:
        """The same effect on another position."""
        return replace(self, position=position)


def map_positions(effects: Iterable[Effect], place: Callable[[int], int | None]) -> Effects:
    """Move positional effects by `place`; those for which it answers None are dropped, all others kept.

    >>> class Fill(PositionalEffect):
    ...     mutates = True
    >>> moved = map_positions([Fill(0), Fill(1)], lambda k: None if k == 0 else k + 3)
    >>> [e.position for e in moved]
    [4]
    """
    out: set[Effect] = set()
    for effect in effects:
        if isinstance(effect, PositionalEffect):
            position = place(effect.position)
            if position is not None:
                out.add(effect.at(position))
        else:
            out.add(effect)
    return frozenset(out)


def effects_text(effects: Iterable[Effect]) -> str:
    """Effects for a message, in an order that is the same in every process.

    >>> class Fill(PositionalEffect):
    ...     mutates = True
    >>> effects_text(frozenset([Fill(2), Fill(0)]))
    '{Fill(position=0), Fill(position=2)}'
    """
    return f"{{{', '.join(sorted(map(repr, effects)))}}}"


def effects_at(effects: Iterable[Effect], position: int) -> Effects:
    """The effects on one position.

    >>> class Fill(PositionalEffect):
    ...     mutates = True
    >>> effects = frozenset([Fill(0), Fill(2)])
    >>> effects_at(effects, 2), effects_at(effects, 1)
    (frozenset({Fill(position=2)}), frozenset())
    """
    return frozenset(
        e for e in effects if isinstance(e, PositionalEffect) and e.position == position
    )


def mutated_positions(effects: Iterable[Effect]) -> frozenset[int]:
    """The positions that some effect changes.

    >>> class Fill(PositionalEffect):
    ...     mutates = True
    >>> class Look(PositionalEffect):
    ...     pass
    >>> mutated_positions([Fill(0), Look(1), Fill(2)])
    frozenset({0, 2})
    """
    return frozenset(e.position for e in effects if isinstance(e, PositionalEffect) and e.mutates)


def returning(effects: Iterable[Effect]) -> list[type[Effect]]:
    """The types of effects for which a program has a result besides its own, in the order of those results."""
    found = {type(e) for e in effects if e.returns}
    return sorted(found, key=lambda kind: (kind.__name__, kind.__module__))
