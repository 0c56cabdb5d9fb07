"""`put`: an array with new elements combined in at an index. Its params are in `take`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fiveloop.core import ad, errors, ir, rules, trace
from fiveloop.core.arrays import Value
from fiveloop.core.backend import hlo
from fiveloop.core.ir.indexer import At, Indexer, Lane, Pick, Span, is_dynamic

from . import broadcast, check, convert, elementwise, monoids, shape, take, windows

KINDS = ("set", *hlo.COMBINERS)


def put(
    x: Value,
    v: Value,
    indexer: Indexer,
    positions: ad.Values = (),
    kind: str = "set",
    *,
    unique: bool = False,
    ascending: bool = False,
) -> Value:
    """`x` with `v`, of the type that an index selects, combined in at the index by "set" or the name of a monoid.

    If several elements are "set" to the same place, the last wins; the other kinds combine them all. `unique` promises
    that no element is named twice, `ascending` that positions ascend.
    """
    if ir.is_empty(v.shape):
        return x
    if indexer.is_block and kind != "set":
        combine = monoids.MONOIDS[kind].combine_evenly
        return put(x, combine(take.take(x, indexer, positions), v), indexer, positions)
    if indexer.is_all_of(x.shape):
        return broadcast.reshape(v, x.shape)
    return _bind(x, v, positions, take.PutParams(indexer, unique, ascending, kind))


def _bind(x: Value, v: Value, positions: ad.Values, p: take.PutParams) -> Value:
    return trace.bind1(take.put_p, x, v, *positions, params=p)


def _taken(x: Value, positions: ad.Values, p: take.PutParams) -> Value:
    """What stands where a `put` writes."""
    params = take.TakeParams(p.indexer, p.unique, p.ascending)
    return trace.bind1(take.take_p, x, *positions, params=params)


def _put_aval(avals: ir.Avals, p: take.PutParams) -> list[ir.Aval]:
    check.check_count("put", avals, 2, or_more=True)
    x, v, *positions = check.array_avals("put", avals)
    if p.kind not in KINDS or (p.kind != "set" and p.indexer.is_block):
        raise ValueError(f"put: expected a kind in {KINDS}, for a block `set`, got {p.kind!r}")
    take.check_index("put", x, positions, p.indexer)
    element = x.update(shape=p.indexer.result_shape)
    if v.dtype != x.dtype or not ir.same_shape(v.shape, element.shape):
        raise TypeError(f"put: expected a value of type {element}, got {v}")
    return [x]


def _put_lower(ctx: Any, operands: hlo.IRValues, p: take.PutParams) -> list[hlo.IRValue]:
    x, v, *positions = operands
    x, v = ctx.late([x, v])
    if p.indexer.is_block:
        return [windows.put_block(ctx.b, x, v, p.indexer, positions)]
    promised = (p.unique, p.ascending)
    return [windows.scatter(ctx.b, x, v, p.indexer, positions, p.kind, *promised)]


def _put_jvp(primals: ad.Values, tangents: ad.Tangents, p: take.PutParams) -> ad.Duals:
    x, v, *positions = primals
    x_dot, v_dot, *_ = tangents
    out = _bind(x, v, positions, p)
    if p.kind in ("set", "add"):
        dots = broadcast.instantiate(x_dot), broadcast.instantiate(v_dot)
        return [out], [_bind(*dots, positions, p)]
    if p.kind == "mul":
        return [out], [_mul_tangent(primals, x_dot, v_dot, p)]
    return [out], [_extremum_tangent(primals, out, x_dot, v_dot, p)]


def _mul_tangent(
    primals: ad.Values, x_dot: ad.Tangent, v_dot: ad.Tangent, p: take.PutParams
) -> Value:
    x, v, *positions = primals
    out = broadcast.instantiate(x_dot)
    if isinstance(x_dot, Value):
        out = _bind(x_dot, v, positions, p)
    if isinstance(v_dot, ad.Zero):
        return out
    slope = monoids.factor_of_share(_taken(x, positions, p), v, _places(x, positions, p))
    return _bind(out, elementwise.mul(slope, v_dot), positions, replace(p, kind="add"))


def _extremum_tangent(
    primals: ad.Values, out: Value, x_dot: ad.Tangent, v_dot: ad.Tangent, p: take.PutParams
) -> Value:
    """The tangent of whatever won: the old element if it equals the result, else the first such new one."""
    x, v, *positions = primals
    nothing = broadcast.zeros_of(x.aval)
    changed = monoids.changed_by(x, out)
    kept = elementwise.select(changed, nothing, broadcast.instantiate(x_dot))
    if isinstance(v_dot, ad.Zero):
        return kept
    old, new = _taken(x, positions, p), _taken(out, positions, p)
    changed = monoids.changed_by(old, new)
    wins = monoids.winning_shares(changed, new, v, _places(x, positions, p))
    won = elementwise.select(wins, v_dot, broadcast.zeros_of(v.aval))
    return _bind(kept, won, positions, replace(p, kind="add"))


def _places(x: Value, positions: ad.Values, p: take.PutParams) -> Value | None:
    """The number of the element that each new element goes to; None if no two go to one."""
    if p.unique or p.indexer.names_each_once:
        return None
    return element_numbers(x.shape, p.indexer, positions)


def element_numbers(sizes: ir.Shape, indexer: Indexer, positions: ad.Values) -> Value:
    """The number in C order, in an array of these sizes, of each element that an index selects.

    Elements outside of the array, of a dropping index, have the number -1.
    """
    dtype = np.dtype(np.int32 if ir.size_of(sizes) <= np.iinfo(np.int32).max else np.int64)
    labels, out = indexer.labels(), indexer.result_shape
    leads = list(range(len(indexer.lead)))
    picks = [k for k, label in enumerate(labels) if label[0] == "pick"]
    given = iter(positions)
    total = broadcast.full(out, 0, dtype)
    for axis, e in enumerate(indexer.entries):
        weight = ir.size_of(sizes[axis + 1 :])
        if is_dynamic(e):
            along = [*leads, *picks] if isinstance(e, Pick) else leads
            start = broadcast.broadcast_in_dim(convert.convert(next(given), dtype), out, along)
            total = elementwise.add(total, elementwise.mul(start, weight))
        elif isinstance(e, At | Span):
            total = elementwise.add(total, (e.start or 0) * weight)
        if isinstance(e, Span | Lane):
            by, label = (e.stride, ("span", axis)) if isinstance(e, Span) else (1, ("lead", e.lead))
            steps = shape.iota(dtype, out, labels.index(label))
            total = elementwise.add(total, elementwise.mul(steps, by * weight))
    if not indexer.drops:
        return total
    inside = take.take(broadcast.full(sizes, True, np.bool_), indexer, positions)
    return elementwise.select(inside, total, broadcast.full(out, -1, dtype))


def _put_transpose(cts: ad.Tangents, operands: ad.Operands, p: take.PutParams) -> ad.Cotangents:
    """What was overwritten gets nothing; of several that set one element only the last gets its share."""
    (ct,), (x, v, *index) = cts, operands
    assert isinstance(ct, Value), "unreachable: the only cotangent is not zero"
    positions, once = take.values_of(index), p.unique or p.indexer.names_each_once
    x_bar = v_bar = None
    if p.kind == "mul" and isinstance(v, Value):
        x_bar = _bind(ct, v, positions, p)
    elif p.kind == "mul":
        assert isinstance(x, Value), "unreachable: linear in one factor at a time"
        if not once:
            raise errors.RuleError(
                "`put` with kind 'mul' has no transpose in its updates unless they are unique"
            )
        v_bar = elementwise.mul(_taken(ct, positions, p), _taken(x, positions, p))
    elif p.kind not in ("set", "add"):
        raise errors.RuleError(f"`put` with kind {p.kind!r} has no transpose: it is not linear")
    else:
        if isinstance(x, ad.UndefinedPrimal):
            nothing = broadcast.zeros_of(v.aval) if p.kind == "set" else None
            x_bar = ct if nothing is None else _bind(ct, nothing, positions, p)
        if isinstance(v, ad.UndefinedPrimal):
            v_bar = _taken(ct, positions, p)
            if p.kind == "set" and not once:
                last = _is_last(ct, v_bar, positions, p)
                v_bar = elementwise.select(last, v_bar, broadcast.zeros_of(v_bar.aval))
    return [x_bar, v_bar, *[None] * len(index)]


def _is_last(x: Value, v: Value, positions: ad.Values, p: take.PutParams) -> Value:
    """Which of the new elements are the last that go to their places."""
    numbers = broadcast.reshape(shape.iota(np.int32, ir.size_of(v.shape)), v.shape)
    board = _bind(broadcast.full(x.shape, 0, np.int32), numbers, positions, p)
    return elementwise.equal(_taken(board, positions, p), numbers)


def _put_batch(size: int, operands: ad.Values, dims: ad.BatchAxes, p: take.PutParams) -> ad.Batched:
    (x, v, *positions), (x_dim, v_dim, *index_dims) = operands, dims
    if any(d is not None for d in index_dims):
        sizes = x.shape if x_dim is None else (*x.shape[:x_dim], *x.shape[x_dim + 1 :])
        positions = take.clamped(sizes, p.indexer, positions)
        p = replace(p, ascending=False)
    at = x_dim if x_dim is not None else 0
    indexer, moved, place = take.batched_index(p.indexer, positions, index_dims, at, size)
    x, v = broadcast.bdim_at(x, x_dim, size, at), broadcast.bdim_at(v, v_dim, size, place)
    return [_bind(x, v, moved, replace(p, indexer=indexer))], [at]


def _pretty(eqn: ir.Eqn, names: ir.Names) -> str:
    inside = eqn.params.indexer.pretty(
        [names.atom(a) for a in eqn.invars[2:]], eqn.invars[0].aval.shape
    )
    x, v = map(names.atom, eqn.invars[:2])
    written = f"{x}.at[{inside}].{eqn.params.kind}({v})"
    return f"{names.binder(eqn.outvars[0])} = {written}{take.promises(eqn)}"


rules.define(
    take.put_p,
    abstract_eval=rules.pure(_put_aval),
    lower=_put_lower,
    jvp=_put_jvp,
    transpose=_put_transpose,
    batch=_put_batch,
)
ir.define_printer(take.put_p, _pretty)
