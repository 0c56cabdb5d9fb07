"""The records of the loops that a loop's transforms are made of; nothing where no record is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from fiveloop.core import Jaxpr
from fiveloop.core.engine import Mask, bytes_of, select_by
from fiveloop.core.extend import Var
from fiveloop.loops.planning.record import PLAIN, Record, Saved, shown_type

if TYPE_CHECKING:
    from fiveloop.loops.for_loop.primitive import ForParams

PUSHES = "values and tangents"
KNOWN = "forward half of a derivative"
LINEAR = "linear half of a derivative"
TAKEN = "branch taken"
BACKWARD = "backward half of a derivative"


def pushed(role: str) -> str:
    """The part of a derivative that a loop is whose values go through it together with tangents."""
    if role == PLAIN:
        return PUSHES
    return role if role.endswith(PUSHES) else f"{role}, {PUSHES}"


def of_jvp(p: ForParams, nonzero: Sequence[bool]) -> Record:
    """The record of a loop over values and tangents."""
    names, num = p.record.names, p.num_consts
    if len(names) != len(nonzero):
        return p.record
    dots = [f"tangent of {name}" for name in select_by(nonzero, names)]
    first = sum(nonzero[:num])
    return p.record.moved(
        pushed(p.record.role), [*names[:num], *dots[:first], *names[num:], *dots[first:]]
    )


def of_known(p: ForParams, known: Sequence[bool], core: Jaxpr, stacked: Sequence[Var]) -> Record:
    """The record of the half that keeps residuals, with what it keeps of each step."""
    if not p.planning.tell:
        return p.record
    made = {v: eqn.source for eqn in core.eqns for v in eqn.outvars}
    saved = [
        Saved(shown_type(v.aval), p.nsteps * bytes_of([v.aval]), True, made.get(v)) for v in stacked
    ]
    names = select_by(known, p.record.names_of(len(known)))
    return p.record.moved(KNOWN, [*names, *["residual"] * len(stacked)], saved)


def of_staged(
    p: ForParams,
    taken: Mask,
    invariant: Sequence[Var],
    num_stacks: int,
    passed: tuple[Sequence[int], Sequence[int]],
) -> Record:
    """The record of the half that comes later, with what it is given once.

    `passed` are the operands that are passed on to it once more: as constants, and as states.
    """
    if not p.planning.tell:
        return p.record
    names = p.record.names_of(len(taken))
    first = select_by(taken[: p.num_consts], names[: p.num_consts])
    last = select_by(taken[p.num_consts :], names[p.num_consts :])
    residuals = ["residual of all steps"] * len(invariant)
    first = [*[names[k] for k in passed[0]], *first]
    stacks = [*["residual"] * num_stacks, *[names[k] for k in passed[1]]]
    saved = [Saved(shown_type(v.aval), bytes_of([v.aval]), False, None) for v in invariant]
    moved = p.record.moved(LINEAR, [*residuals, *first, *stacks, *last], saved)
    return moved.without_decisions()


def of_transpose(p: ForParams, linear: Sequence[bool]) -> Record:
    """The record of a loop over cotangents."""
    names = p.record.names
    if len(names) != len(linear):
        return p.record
    known = [name for name, lin in zip(names, linear, strict=True) if not lin]
    gathered = [f"cotangent of {name}" for name in select_by(linear, names)]
    gathered = [name.replace("cotangent of tangent of", "cotangent of") for name in gathered]
    return p.record.moved(BACKWARD, [*known, *gathered], p.record.saved)


def of_dce(record: Record, kept: Sequence[bool]) -> Record:
    """The record of a loop with fewer operands."""
    if len(record.names) != len(kept):
        return record
    found = record.moved(record.role, select_by(kept, record.names), record.saved)
    operands = record.operands
    left = select_by(kept, operands) if len(operands) == len(kept) else []
    return replace(found, operands=tuple(left))


def with_operand(record: Record, at: int, name: str) -> Record:
    """The record of a loop with one more operand at a position, which the library makes."""
    if not record.names:
        return record
    names = record.names
    return replace(record, names=(*names[:at], name, *names[at:]))


def of_discharge(record: Record, layout: Sequence[int]) -> Record:
    """The record of a loop whose operands have another order; what is told of them is told of what they were."""
    if len(record.names) != len(layout):
        return record
    return replace(record, names=tuple(record.names[k] for k in layout))


def without_operand(record: Record, keep: Sequence[bool], new: Sequence[str]) -> Record:
    """The record of a loop with some operands, and new ones, of these names, behind them."""
    if len(record.names) != len(keep):
        return record
    names = [*select_by(keep, record.names), *new]
    return record.moved(record.role, names, record.saved)


def with_carried(record: Record, count: int) -> Record:
    """The record of a loop with more states: what one step hands on to the next."""
    if not record.names:
        return record
    return record.moved(record.role, [*record.names, *["carried on"] * count], record.saved)


def with_computed(record: Record, first: int, count: int) -> Record:
    """The record of a loop with more constants, behind the first ones: what is computed before it."""
    if not record.names:
        return record
    names = [*record.names[:first], *["computed before"] * count, *record.names[first:]]
    return record.moved(record.role, names, record.saved)


def of_ending(p: ForParams) -> Record:
    """The record of a batch that ends with its last lane, which it has one more state for."""
    names = p.record.names
    if not names:
        return p.record
    return p.record.moved(p.record.role, [*names, "all ended"], p.record.saved)
