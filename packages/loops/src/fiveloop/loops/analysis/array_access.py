"""The access to a Ref that corresponds to an equation on an array."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from fiveloop.core import ir, prims, rules
from fiveloop.core.dataclass import dataclass
from fiveloop.loops.primitives.for_loop import for_p, is_state
from fiveloop.state import primitives

Made = Mapping[ir.Var, ir.Eqn]


@dataclass(frozen=True, slots=True)
class Access:
    """An access: the equation, and those on the Ref that stand for it.

    `updated` are results that are the array after it, if it is updated; `same` are those that are the array as it was.
    """

    eqn: ir.Eqn
    instead: list[ir.Eqn]
    is_dynamic: bool
    updated: Sequence[ir.Var] = ()
    same: Sequence[ir.Var] = ()


AccessRule: TypeAlias = Callable[[ir.Eqn, ir.Var, "Made"], Access | None]
"""What an equation does with its first operand, an array, on a Ref that holds it; None if that cannot be."""


access_rules: rules.RuleTable[AccessRule] = rules.RuleTable(
    "access", default="it uses arrays whole", by="define_access"
)


def define_access(prim: ir.Primitive[Any], rule: AccessRule) -> None:
    """Say how an equation that accesses an array at indices accesses a Ref that holds the array."""
    access_rules.define(prim, rule)


def access(eqn: ir.Eqn, array: ir.Var, ref: ir.Var, made: Made) -> Access | None:
    """What an equation does with an array, on a Ref that holds it; None if it does more than index it."""
    if eqn.primitive is for_p:
        return _loop(eqn, array, ref)
    rule = access_rules.find(eqn.primitive)
    if rule is None or eqn.invars[0] is not array or array in eqn.invars[1:]:
        return None
    return rule(eqn, ref, made)


def _take(eqn: ir.Eqn, ref: ir.Var, made: Made) -> Access | None:
    found = _index(eqn, eqn.invars[1:], made)
    if found is None:
        return None
    before, index = found
    params = primitives.IndexParams(eqn.params.indexer)
    read = rules.new_eqn(primitives.get_p, [ref, *index], params, eqn.outvars, eqn.source)
    return Access(eqn, [*before, read], bool(index))


def _put(eqn: ir.Eqn, ref: ir.Var, made: Made) -> Access | None:
    found = _index(eqn, eqn.invars[2:], made)
    if found is None:
        return None
    before, index = found
    prim, params = _writing(eqn.params)
    write = rules.new_eqn(prim, [ref, eqn.invars[1], *index], params, (), eqn.source)
    return Access(eqn, [*before, write], bool(index), eqn.outvars)


def _writing(p: prims.PutParams) -> tuple[ir.Primitive[Any], primitives.IndexParams]:
    """What does to a Ref what `put` does to an array."""
    match p.kind:
        case "set":
            return primitives.swap_p, primitives.SwapParams(p.indexer, returns_old=False)
        case "add":
            return primitives.addupdate_p, primitives.IndexParams(p.indexer)
    return primitives.accumulate_p, primitives.AccumulateParams(p.indexer, p.kind)


define_access(prims.take_p, _take)
define_access(prims.put_p, _put)


def _index(
    eqn: ir.Eqn, positions: Sequence[ir.Atom], made: Made
) -> tuple[list[ir.Eqn], list[ir.Atom]] | None:
    """The operands of an index of a Ref, of which these are the positions; and what spreads those that lanes share."""
    before, index = list[ir.Eqn](), list[ir.Atom]()
    sizes, indexer = eqn.invars[0].aval.shape, eqn.params.indexer
    for axis, position in zip(indexer.dynamic_axes, positions, strict=True):
        found = _given(position, sizes[axis], made)
        if found is not None:
            position, spreads = found
            for spread in spreads:
                before.append(rules.new_eqn(prims.broadcast_in_dim_p, [position], spread))
                position = before[-1].outvars[0]
        elif indexer.is_block or indexer.drops:
            return (
                None  # a position that is out of range, and negative, counts from the end for a Ref
            )
        index.append(position)
    return before, index


def _given(
    position: ir.Atom, size: ir.Dim, made: Made
) -> tuple[ir.Atom, list[prims.BroadcastParams]] | None:
    """The index that the user gave, of which this is the position; and how it was spread over lanes after that."""
    spreads: list[prims.BroadcastParams] = []
    while (eqn := _maker(position, made)) is not None:
        if eqn.primitive is prims.resolve_index_p and eqn.params.size == size:
            return eqn.invars[0], spreads  # a Ref resolves it in the same way
        if eqn.primitive is prims.broadcast_in_dim_p:
            spreads.insert(0, eqn.params)
        elif eqn.primitive is not prims.clamp_p and not _converts(eqn):
            return None
        position = eqn.invars[1 if eqn.primitive is prims.clamp_p else 0]
    return None


def _converts(eqn: ir.Eqn) -> bool:
    """Whether an equation changes the dtype of a position."""
    return eqn.primitive is prims.resolve_index_p and not eqn.params.size


def _maker(x: ir.Atom, made: Made) -> ir.Eqn | None:
    return made.get(x) if isinstance(x, ir.Var) else None


def _loop(eqn: ir.Eqn, array: ir.Var, ref: ir.Var) -> Access | None:
    """An inner loop that has the array as a state takes the Ref instead."""
    states = is_state(eqn.params, [a.aval for a in eqn.invars])
    places = [k for k, a in enumerate(eqn.invars) if a is array]
    if len(places) != 1 or not states[places[0]]:
        return None
    (place,) = places
    number = eqn.params.num_carry + sum(states[:place])
    result = eqn.outvars[number]
    invars = [ref if k == place else a for k, a in enumerate(eqn.invars)]
    outvars = [v for k, v in enumerate(eqn.outvars) if k != number]
    loop = rules.new_eqn(for_p, invars, eqn.params, outvars, eqn.source)
    changes = place + 1 in ir.mutated_positions(eqn.params.body.effects)
    if changes:
        return Access(eqn, [loop], True, [result])
    return Access(eqn, [loop], True, same=[result])
