"""Residuals of branches, joined: those of one type share slots, since only one branch is taken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from fiveloop.core import Jaxpr, Value
from fiveloop.core.extend import Aval, Var, eval_jaxpr, stage_closed, zeros_of


@dataclass(frozen=True, slots=True)
class Slots:
    """What the branches pass on: the type of each slot, and for each branch the slots of its residuals."""

    avals: list[Aval]
    places: list[list[int]]


def join(residuals: Sequence[Sequence[Var]]) -> Slots:
    """Slots for the residuals of all branches: of each type as many as the branch with most of it needs."""
    avals: list[Aval] = []
    free: dict[Aval, list[int]] = {}
    places = []
    for branch in residuals:
        seen: Counter[Aval] = Counter()
        mine = []
        for v in branch:
            aval = v.aval.strong()
            slots = free.setdefault(aval, [])
            if seen[aval] == len(slots):
                slots.append(len(avals))
                avals.append(aval)
            mine.append(slots[seen[aval]])
            seen[aval] += 1
        places.append(mine)
    return Slots(avals, places)


def fill_slots(known: Jaxpr, num_outs: int, slots: Slots, branch: int) -> Jaxpr:
    """The known half of a branch, with zeros in the slots that it does not use.

    known  : [*known ins] -> [*known outs, *residuals of the branch]
    filled : [*known ins] -> [*known outs, *slots]
    """

    def run(*args: Value) -> list[Value]:
        outs = eval_jaxpr(known, args)
        mine = dict(zip(slots.places[branch], outs[num_outs:], strict=True))
        filled = [mine[k] if k in mine else zeros_of(a) for k, a in enumerate(slots.avals)]
        return [*outs[:num_outs], *filled]

    return stage_closed(run, known.in_avals, known.name)


def read_slots(
    staged: Jaxpr, slots: Slots, branch: int, at_hand: Sequence[Aval], ins: Sequence[int | None]
) -> Jaxpr:
    """The staged half of a branch, over the slots and everything that any branch takes besides.

    staged : [*ins of the branch]      -> [*outs]
    read   : [*slots, *at_hand]        -> [*outs]

    `ins` has a position among `at_hand` for each input of the branch, or None for the next of its residuals.
    """
    num_slots = len(slots.avals)

    def run(*args: Value) -> list[Value]:
        mine = iter(slots.places[branch])
        given = [args[next(mine)] if k is None else args[num_slots + k] for k in ins]
        return eval_jaxpr(staged, given)

    return stage_closed(run, [*slots.avals, *at_hand], staged.name)
