"""What an equation does with an array, as an access to a Ref that holds it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fiveloop.core import ir, prims, rules
from fiveloop.core.index.indexer import Entry, Indexer, Lane, Pick, Span
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


class AccessRule(Protocol):
    """What an equation does with its first operand, an array, on a Ref that holds it; None if that cannot be."""

    def __call__(self, eqn: ir.Eqn, ref: ir.Var, made: Made, /) -> Access | None: ...


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


def _slice(eqn: ir.Eqn, ref: ir.Var, made: Made) -> Access:
    p = eqn.params
    spans = [
        Span(start, size, stride)
        for start, size, stride in zip(p.start, eqn.outvars[0].aval.shape, p.strides, strict=True)
    ]
    return Access(eqn, [_get(eqn, ref, Indexer(tuple(spans)), [])], is_dynamic=False)


def _dynamic_slice(eqn: ir.Eqn, ref: ir.Var, made: Made) -> Access | None:
    place = _block(eqn, eqn.invars[1:], eqn.params.sizes, eqn.params.drops, made)
    if place is None:
        return None
    indexer, operands = place
    return Access(eqn, [_get(eqn, ref, indexer, operands)], bool(operands))


def _dynamic_update_slice(eqn: ir.Eqn, ref: ir.Var, made: Made) -> Access | None:
    update = eqn.invars[1]
    place = _block(eqn, eqn.invars[2:], update.aval.shape, eqn.params.drops, made)
    if place is None:
        return None
    return _put(eqn, ref, update, *place)


def _put(
    eqn: ir.Eqn,
    ref: ir.Var,
    x: ir.Atom,
    indexer: Indexer,
    operands: Sequence[ir.Atom],
    before: Sequence[ir.Eqn] = (),
) -> Access:
    """An update that replaces what an index selects."""
    params = primitives.SwapParams(indexer, returns_old=False)
    write = rules.new_eqn(primitives.swap_p, [ref, x, *operands], params, (), eqn.source)
    return Access(eqn, [*before, write], bool(operands), eqn.outvars)


def _gather(eqn: ir.Eqn, ref: ir.Var, made: Made) -> Access | None:
    if eqn.params.dims.operand_batch:
        lanes = _lanes(eqn, eqn.outvars[0].aval.shape, made)
        return lanes and Access(eqn, [*lanes[2], _get(eqn, ref, *lanes[:2])], is_dynamic=True)
    place = _picks(eqn, eqn.invars[1], eqn.params.sizes, made)
    if place is None:
        return None
    return Access(eqn, [_get(eqn, ref, *place)], is_dynamic=True)


def _scatter(eqn: ir.Eqn, ref: ir.Var, made: Made) -> Access | None:
    _, indices, updates = eqn.invars
    if eqn.params.dims.operand_batch:
        lanes = _lanes(eqn, updates.aval.shape, made) if eqn.params.kind == "set" else None
        return lanes and _put(eqn, ref, updates, *lanes)
    place = _picks(eqn, indices, None, made)
    if place is None:
        return None
    indexer, operands = place
    if indexer.result_shape != updates.aval.shape:
        return None
    args = [ref, updates, *operands]
    match eqn.params.kind:
        case "set":
            write = rules.new_eqn(
                primitives.swap_p,
                args,
                primitives.SwapParams(indexer, returns_old=False),
                (),
                eqn.source,
            )
        case "add":
            write = rules.new_eqn(
                primitives.addupdate_p, args, primitives.IndexParams(indexer), (), eqn.source
            )
        case monoid:
            params = primitives.AccumulateParams(indexer, monoid)
            write = rules.new_eqn(primitives.accumulate_p, args, params, (), eqn.source)
    return Access(eqn, [write], is_dynamic=True, updated=eqn.outvars)


define_access(prims.slice_p, _slice)
define_access(prims.dynamic_slice_p, _dynamic_slice)
define_access(prims.dynamic_update_slice_p, _dynamic_update_slice)
define_access(prims.gather_p, _gather)
define_access(prims.scatter_p, _scatter)


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


def _get(eqn: ir.Eqn, ref: ir.Var, indexer: Indexer, operands: Sequence[ir.Atom]) -> ir.Eqn:
    return rules.new_eqn(
        primitives.get_p, [ref, *operands], primitives.IndexParams(indexer), eqn.outvars, eqn.source
    )


def _block(
    eqn: ir.Eqn, starts: Sequence[ir.Atom], sizes: Sequence[int], drops: Sequence[int], made: Made
) -> tuple[Indexer, list[ir.Atom]] | None:
    """The index of a block, if its starts count from the end when they are negative, and it drops all or none."""
    spans, operands = [], list[ir.Atom]()
    for k, (start, size, dim) in enumerate(
        zip(starts, sizes, eqn.invars[0].aval.shape, strict=True)
    ):
        found = _span(start, size, dim, k in drops, made)
        if found is None:
            return None
        spans.append(found[0])
        operands += found[1]
    indexer = Indexer(tuple(spans), drops=bool(drops))
    return (indexer, operands) if not drops or indexer.dynamic_axes == [*drops] else None


def _span(
    start: ir.Atom, size: int, dim: int, drops: bool, made: Made
) -> tuple[Span, list[ir.Atom]] | None:
    """A block along one axis, and the index where it starts, if that is not known."""
    if size == dim and not drops:
        return Span(0, size), []
    if isinstance(start, ir.Literal) and ir.is_scalar(start):
        number = int(start.value.host)  # type: ignore[attr-defined]  # a scalar has its number
        return Span(min(max(number, 0), dim - size), size), []
    given = _unresolved(start, dim, made)
    return (Span(None, size), [given]) if given is not None else None


def _lanes(
    eqn: ir.Eqn, sizes: Sequence[int], made: Made
) -> tuple[Indexer, list[ir.Atom], list[ir.Eqn]] | None:
    """The index of a block of its own in each lane, as `vmap` leaves it; and what spreads indices that they share."""
    shape, indices = eqn.invars[0].aval.shape, eqn.invars[1]
    lead = len(eqn.params.dims.operand_batch)
    lanes, inner = tuple(range(lead)), tuple(range(lead, len(shape)))
    wide = eqn.params.dims.collapsed
    starts = [
        _lane_start(c, k + lead, lead, wide, made) for k, c in enumerate(_columns(indices, made))
    ]
    blocks = tuple(k for k in inner if k not in wide)
    if eqn.params.dims != prims.WindowDims(blocks, wide, lanes, lanes, inner) or len(starts) != len(
        inner
    ):
        return None
    spans, operands, before = list[Span](), list[ir.Atom](), list[ir.Eqn]()
    for start, size, dim in zip(starts, sizes[lead:], shape[lead:], strict=True):
        if start is None:
            return None
        maker = made.get(start) if isinstance(start, ir.Var) else None
        shared = (
            maker if maker is not None and maker.primitive is prims.broadcast_in_dim_p else None
        )
        given_start = shared.invars[0] if shared is not None else start
        found = _span(given_start, size, dim, eqn.params.drops, made)
        if found is None:
            return None
        spans.append(found[0])
        for given in found[1]:
            each = given
            if shared is not None:
                each = ir.Var(ir.ShapedArray(shape[:lead], given.aval.dtype))
                before.append(
                    rules.new_eqn(prims.broadcast_in_dim_p, [given], shared.params, [each])
                )
            operands.append(each)
    entries: tuple[Entry, ...] = (*map(Lane, lanes), *spans)
    paired = (True,) * lead
    indexer = Indexer(entries, lead=shape[:lead], paired=paired, drops=eqn.params.drops)
    return (indexer, operands, before) if operands else None


def _lane_start(
    column: ir.Atom, axis: int, lead: int, wide: Sequence[int], made: Made
) -> ir.Atom | None:
    """Where each lane's block starts, of its position along an axis; along a `wide` one elements have one each.

    For those it must be `start[:, None] + arange(size)`, as `vmap` makes it; None if it is not.
    """
    if not wide:
        return column
    if axis in wide:
        column, steps = _made_by(column, prims.add_p, made) or (column, column)
        (counts,) = _made_by(steps, prims.broadcast_in_dim_p, made, (lead + wide.index(axis),)) or (
            None,
        )
        if counts is None or _made_by(counts, prims.iota_p, made) is None:
            return None
    (start,) = _made_by(column, prims.broadcast_in_dim_p, made, tuple(range(lead))) or (None,)
    return start


def _made_by(
    x: ir.Atom, primitive: ir.Primitive[Any], made: Made, dims: tuple[int, ...] | None = None
) -> Sequence[ir.Atom] | None:
    """The operands of the equation of a primitive, with `dims` if they are given, that makes something."""
    eqn = made.get(x) if isinstance(x, ir.Var) else None
    if eqn is None or eqn.primitive is not primitive:
        return None
    return eqn.invars if dims is None or eqn.params.dims == dims else None


def _columns(indices: ir.Atom, made: Made) -> list[ir.Atom]:
    """The arrays of positions that lie side by side along the last axis; none if they cannot be told."""
    eqn = made.get(indices) if isinstance(indices, ir.Var) else None
    joins = eqn is not None and eqn.primitive is prims.concatenate_p
    parts = eqn.invars if eqn is not None and joins else [indices]
    columns = [_without_last_axis(part, made) for part in parts]
    return [c for c in columns if c is not None]


def _unresolved(start: ir.Atom, dim: int, made: Made) -> ir.Atom | None:
    """The index that the user gave, of which `start` is the position; a Ref resolves it in the same way."""
    eqn = made.get(start) if isinstance(start, ir.Var) else None
    while eqn is not None and eqn.primitive is prims.resolve_index_p:
        if eqn.params.size == dim:
            return eqn.invars[0]
        inner = eqn.invars[0]  # a change of dtype
        eqn = made.get(inner) if isinstance(inner, ir.Var) and not eqn.params.size else None
    return None


def _picks(
    eqn: ir.Eqn, indices: ir.Atom, sizes: Sequence[int] | None, made: Made
) -> tuple[Indexer, list[ir.Atom]] | None:
    """The index of whole rows along one axis, in the order in which blocks lie in the result."""
    dims, shape = eqn.params.dims, eqn.invars[0].aval.shape
    if len(dims.index_map) != 1 or dims.collapsed != dims.index_map or dims.operand_batch:
        return None
    (axis,) = dims.index_map
    full = [n for k, n in enumerate(shape) if k != axis]
    if sizes is not None and [n for k, n in enumerate(sizes) if k != axis] != full:
        return None
    picks, drops = _without_last_axis(indices, made), eqn.params.drops
    if picks is not None and drops:
        picks = _unresolved(picks, shape[axis], made)
    if picks is None or not picks.aval.ndim or not (drops or eqn.params.in_bounds):
        return None
    rank = len(full) + picks.aval.ndim
    leading = next((k for k in range(rank) if k not in dims.window_dims), rank)
    if dims.window_dims != (*range(leading), *range(leading + picks.aval.ndim, rank)):
        return None
    entries = [Pick() if k == axis else Span(0, n) for k, n in enumerate(shape)]
    return Indexer(tuple(entries), picks.aval.shape, leading, drops=drops), [picks]


def _without_last_axis(indices: ir.Atom, made: Made) -> ir.Atom | None:
    """An array of positions, before it was given an axis for the one number that each of them is."""
    eqn = made.get(indices) if isinstance(indices, ir.Var) else None
    if eqn is None or eqn.primitive is not prims.reshape_p:
        return None
    picks = eqn.invars[0]
    return picks if (*picks.aval.shape, 1) == indices.aval.shape else None
