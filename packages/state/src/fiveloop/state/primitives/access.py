"""The primitives that read and write Refs, with their rows: get, swap, addupdate and accumulate.

`addupdate` adds, and is linear. `accumulate` combines by another monoid, which its params name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fiveloop.core import RuleError, Value, ad, ir, prims, rules, trace, transforms
from fiveloop.core.dataclass import replace
from fiveloop.core.index import access as indexing
from fiveloop.core.ir.indexer import Indexer
from fiveloop.state import discharge, errors, refs
from fiveloop.state.primitives import common, lifetime


def get_abstract_eval(avals: ir.Avals, p: common.IndexParams) -> ir.Typing:
    """The element's type; the Ref is read."""
    prims.check_count("get", avals, 1, or_more=True)
    ref, *operands = avals
    element = common.element_aval(ref, p.indexer)
    prims.check_index("get", ref, operands, p.indexer)
    return [element], frozenset([refs.ReadEffect(0)])


def get_jvp(primals: ad.Values, tangents: ad.Tangents, p: common.IndexParams) -> ad.Duals:
    """Read the tangent Ref at the same place."""
    _, *operands = primals
    out = trace.bind1(common.get_p, *primals, params=p)
    ref_dot = tangents[0]
    if isinstance(ref_dot, ad.Zero):
        return [out], [transforms.zero_like(out)]
    return [out], [trace.bind1(common.get_p, ref_dot, *operands, params=p)]


def get_transpose(cts: ad.Tangents, operands: ad.Operands, p: common.IndexParams) -> ad.Cotangents:
    """Add the cotangent into the accumulator at the same place."""
    ref, *index = operands
    (ct,) = cts
    if not isinstance(ct, ad.Zero):
        trace.bind(common.addupdate_p, common.accumulator(ref), ct, *index, params=p)  # type: ignore[arg-type]  # an index is not linear
    return [None] * len(operands)


def get_batch(
    size: int, operands: ad.Values, dims: ad.BatchAxes, p: common.IndexParams
) -> ad.Batched:
    """Read each lane at its own index, from its own array if the Ref is batched."""
    ref, *index = operands
    batched, moved, dim = common.batched_index(p, index, dims[1:], dims[0], size)
    return trace.bind(common.get_p, ref, *moved, params=batched), [dim]


rules.define(
    common.get_p,
    abstract_eval=get_abstract_eval,
    lower=rules.Refusal("it reads a Ref; discharge it first (`discharge_state`)"),
    jvp=get_jvp,
    batch=get_batch,
    transpose=get_transpose,
)
discharge.define_discharge(common.get_p, lambda ctx, xs, p: [ctx.read(xs[0], p.indexer, xs[1:])])
ir.define_printer(
    common.get_p,
    lambda eqn, names: (
        f"{names.binder(eqn.outvars[0])} <- {prims.place_of(eqn, names, eqn.invars[1:])}"
    ),
)


def swap_abstract_eval(avals: ir.Avals, p: common.SwapParams) -> ir.Typing:
    """The old element's type, if it is wanted; the Ref is written."""
    prims.check_count("swap", avals, 2, or_more=True)
    ref, value, *operands = avals
    element = common.element_aval(ref, p.indexer)
    prims.check_index("swap", ref, operands, p.indexer)
    common.check_value("swap", value, element)
    if p.returns_old:
        return [element], frozenset([refs.ReadEffect(0), refs.WriteEffect(0)])
    return [], frozenset([refs.WriteEffect(0)])


def swap_jvp(primals: ad.Values, tangents: ad.Tangents, p: common.SwapParams) -> ad.Duals:
    """Swap the tangent into the tangent Ref at the same place."""
    _, _, *index = primals
    ref_dot, x_dot = tangents[:2]
    if isinstance(ref_dot, ad.Zero) and not isinstance(x_dot, ad.Zero):
        raise errors.not_differentiated("swap")
    outs = trace.bind(common.swap_p, *primals, params=p)
    if isinstance(ref_dot, ad.Zero):
        return outs, [transforms.zero_like(out) for out in outs]
    return outs, list(
        trace.bind(common.swap_p, ref_dot, transforms.instantiate(x_dot), *index, params=p)
    )


def swap_transpose(cts: ad.Tangents, operands: ad.Operands, p: common.SwapParams) -> ad.Cotangents:
    """Swap the cotangent of the old element into the accumulator; the result is the cotangent of the new element."""
    ref, x, *index = operands
    acc = common.accumulator(ref)
    element = common.element_aval(acc.aval, p.indexer)
    ct = cts[0] if p.returns_old else ad.Zero(element)
    wanted = isinstance(x, ad.UndefinedPrimal)
    places: list[Value] = [i for i in index if isinstance(i, Value)]  # an index is not linear
    if p.indexer.names_each_once:
        params = replace(p, returns_old=wanted)
        outs = trace.bind(common.swap_p, acc, transforms.instantiate(ct), *places, params=params)
    else:
        outs = [_last_writers(acc, places, p.indexer)] if wanted else []
        common.write(acc, transforms.instantiate(ad.Zero(element)), p.indexer, places)
        if not isinstance(ct, ad.Zero):
            common.combine(acc, ct, p.indexer, places)
    return [None, outs[0] if wanted else None, *[None] * len(index)]


def _last_writers(acc: Value, places: ad.Values, at: Indexer) -> Value:
    """The contents of the accumulator for the last writers of an element; zero for overwritten values."""
    cts = common.read(acc, at, places)
    # Each writer leaves its number: whoever finds its own was the last. Float accumulators hold numbers exactly
    # up to a size; beyond that, a board of integers is used.
    count = ir.size_of(cts.shape)
    zeros = ir.ShapedArray(acc.shape, np.int32)
    exact = count <= _largest_exact(acc)
    board = acc if exact else lifetime.ref_of(transforms.zeros_of(zeros))
    numbers = prims.convert(prims.reshape(prims.iota(np.int32, count), cts.shape), board.dtype)
    common.write(board, numbers, at, places)
    found = common.read(board, at, places)
    return prims.select(prims.equal(found, numbers), cts, transforms.zeros_of(cts.aval))


def _largest_exact(ref: Value) -> int:
    """Up to which integer all are exact in the dtype of a Ref: by its size, as bfloat16 has the least for its own."""
    dtype = ref.dtype
    bytes_of_real = dtype.itemsize // (2 if dtype.kind == "c" else 1)
    return {2: 2**8, 4: 2**24, 8: 2**53}.get(bytes_of_real, 0) if ref.aval.differentiable else 0


def swap_batch(
    size: int, operands: ad.Values, dims: ad.BatchAxes, p: common.SwapParams
) -> ad.Batched:
    """Swap each lane's element in its own array; a Ref that is not batched cannot hold a batch of values."""
    ref, x, *index = operands
    ref_dim, x_dim, *index_dims = dims
    if ref_dim is None:
        raise errors.not_batched("swap")
    batched, moved, dim = common.batched_index(p, index, index_dims, ref_dim, size)
    new = prims.bdim_at(x, x_dim, size, dim)
    outs = trace.bind(common.swap_p, ref, new, *moved, params=batched)
    return outs, [dim] * len(outs)


def swap_dce(used: Sequence[bool], eqn: ir.Eqn) -> tuple[list[bool], ir.Eqn | None]:
    """If the old element is not used, only write."""
    if eqn.params.returns_old and not used[0]:
        eqn = rules.new_eqn(
            common.swap_p, eqn.invars, replace(eqn.params, returns_old=False), (), eqn.source
        )
    return [True] * len(eqn.invars), eqn


def swap_discharge(
    ctx: discharge.DischargeContext, operands: discharge.Operands, p: common.SwapParams
) -> list[Value]:
    """Read the contents if the old element is wanted, then write them."""
    cell, x, *index = operands
    old = [ctx.read(cell, p.indexer, index)] if p.returns_old else []  # type: ignore[arg-type]
    with ctx.holding(old):
        ctx.write(cell, p.indexer, index, x)  # type: ignore[arg-type]  # the first operand is the Ref, the others are values
    return [ctx.latest(value) for value in old]


rules.define(
    common.swap_p,
    abstract_eval=swap_abstract_eval,
    lower=rules.Refusal("it changes a Ref; discharge it first (`discharge_state`)"),
    jvp=swap_jvp,
    batch=swap_batch,
    transpose=swap_transpose,
    dce=swap_dce,
)
discharge.define_discharge(common.swap_p, swap_discharge)


def _print_swap(eqn: ir.Eqn, names: ir.Names) -> str:
    """`r[i] <- v`, or `b, r[i] <- r[i], v`."""
    place, new = prims.place_of(eqn, names, eqn.invars[2:]), names.atom(eqn.invars[1])
    if not eqn.outvars:
        return f"{place} <- {new}"
    return f"{names.binder(eqn.outvars[0])}, {place} <- {place}, {new}"


ir.define_printer(common.swap_p, _print_swap)


def _abstract_eval(name: str) -> rules.AbstractEval:
    def rule(avals: ir.Avals, p: common.IndexParams) -> ir.Typing:
        """No result; the Ref is accumulated into."""
        prims.check_count(name, avals, 2, or_more=True)
        ref, value, *operands = avals
        element = common.element_aval(ref, p.indexer)
        if isinstance(p, common.AccumulateParams):
            common.monoid_of(p.monoid, ref)
        prims.check_index(name, ref, operands, p.indexer)
        common.check_value(name, value, element)
        return [], frozenset([refs.AccumEffect(0, common.name_of_monoid(p))])

    return rule


def _batch(prim: ir.Primitive[Any]) -> rules.Batch:
    def rule(
        size: int, operands: ad.Values, dims: ad.BatchAxes, p: common.IndexParams
    ) -> ad.Batched:
        """Combine with each lane's share; a Ref that is not batched gets the shares of all lanes combined."""
        params, shares = common.batched_shares(size, operands, dims, p)
        trace.bind(prim, *shares, params=params)
        return [], []

    return rule


def _discharge(
    ctx: discharge.DischargeContext, operands: discharge.Operands, p: common.IndexParams
) -> list[Value]:
    """Combine with the contents."""
    cell, x, *index = operands
    ctx.accumulate(cell, p.indexer, index, x, common.name_of_monoid(p))  # type: ignore[arg-type]  # the first operand is the Ref, the others are values
    return []


def _print(eqn: ir.Eqn, names: ir.Names) -> str:
    """`r[i] += v`, `r[i] max= v`."""
    symbol = prims.MONOIDS[common.name_of_monoid(eqn.params)].symbol
    return f"{prims.place_of(eqn, names, eqn.invars[2:])} {symbol} {names.atom(eqn.invars[1])}"


def _define(prim: ir.Primitive[Any], jvp: rules.Jvp, transpose: rules.Transpose) -> None:
    rules.define(
        prim,
        abstract_eval=_abstract_eval(prim.name),
        lower=rules.Refusal("it changes a Ref; discharge it first (`discharge_state`)"),
        jvp=jvp,
        batch=_batch(prim),
        transpose=transpose,
    )
    discharge.define_discharge(prim, _discharge)
    ir.define_printer(prim, _print)


def addupdate_jvp(primals: ad.Values, tangents: ad.Tangents, p: common.IndexParams) -> ad.Duals:
    """Add the tangent to the tangent Ref at the same place."""
    _, _, *index = primals
    ref_dot, x_dot = tangents[:2]
    if isinstance(ref_dot, ad.Zero) and not isinstance(x_dot, ad.Zero):
        raise errors.not_differentiated("addupdate")
    trace.bind(common.addupdate_p, *primals, params=p)
    if not isinstance(ref_dot, ad.Zero) and not isinstance(x_dot, ad.Zero):
        trace.bind(common.addupdate_p, ref_dot, x_dot, *index, params=p)
    return [], []


def addupdate_transpose(
    cts: ad.Tangents, operands: ad.Operands, p: common.IndexParams
) -> ad.Cotangents:
    """The cotangent of what was added is the accumulator's element."""
    ref, x, *index = operands
    x_bar: ad.Tangent | None = None
    if isinstance(x, ad.UndefinedPrimal):
        x_bar = trace.bind1(common.get_p, common.accumulator(ref), *index, params=p)  # type: ignore[arg-type]  # an index is not linear
    return [None, x_bar, *[None] * len(index)]


def accumulate_jvp(
    primals: ad.Values, tangents: ad.Tangents, p: common.AccumulateParams
) -> ad.Duals:
    """The tangent of a product by the product rule, that of an extreme from whoever won."""
    ref, _, *index = primals
    ref_dot, x_dot = tangents[:2]
    if isinstance(ref_dot, ad.Zero):
        if not isinstance(x_dot, ad.Zero):
            raise errors.not_differentiated("accumulate")
        trace.bind(common.accumulate_p, *primals, params=p)
        return [], []
    old = common.read(ref, p.indexer, index)
    if p.monoid == "mul":
        trace.bind(common.accumulate_p, *primals, params=p)
        _product_rule(primals, old, ref_dot, x_dot, p)
    else:
        _winner_rule(primals, old, ref_dot, transforms.instantiate(x_dot), p)
    return [], []


def _product_rule(
    primals: ad.Values, old: Value, ref_dot: Value, x_dot: ad.Tangent, p: common.AccumulateParams
) -> None:
    """Each factor's tangent times all other factors; there is no division, so it is right at zeros."""
    ref, x, *index = primals
    trace.bind(common.accumulate_p, ref_dot, x, *index, params=p)
    if isinstance(x_dot, ad.Zero):
        return
    slope = prims.factor_of_share(old, x, _places(ref, index, p))
    common.combine(ref_dot, prims.mul(slope, x_dot), p.indexer, index)


def _places(ref: Value, index: ad.Values, p: common.AccumulateParams) -> Value | None:
    """For each element of the share, the number of the Ref's element it goes to; None if no two go to one."""
    if p.indexer.names_each_once:
        return None
    positions = indexing.resolve(ref.shape, p.indexer, index)
    return prims.element_numbers(ref.shape, p.indexer, positions)


def _winner_rule(
    primals: ad.Values, old: Value, ref_dot: Value, x_dot: Value, p: common.AccumulateParams
) -> None:
    """The old tangent where the old element stays, else the tangent of the first share that equals the new element."""
    (ref, x, *index), at = primals, p.indexer
    old_dot = common.read(ref_dot, at, index)
    if at.names_each_once:
        new = prims.MONOIDS[p.monoid].combine(old, x)
        wins = prims.changed_by(old, new)
        common.write(ref, new, at, index)
        common.write(ref_dot, prims.select(wins, x_dot, old_dot), at, index)
        return
    trace.bind(common.accumulate_p, *primals, params=p)
    new = common.read(ref, at, index)
    changed = prims.changed_by(old, new)
    wins = prims.winning_shares(changed, new, x, _places(ref, index, p))
    nothing = transforms.zeros_of(x_dot.aval)
    common.write(ref_dot, prims.select(changed, nothing, old_dot), at, index)
    common.combine(ref_dot, prims.select(wins, x_dot, nothing), at, index)


def accumulate_transpose(
    cts: ad.Tangents, operands: ad.Operands, p: common.AccumulateParams
) -> ad.Cotangents:
    """A product by what is known is linear in the Ref: its cotangent is multiplied, too."""
    ref, x, *index = operands
    if p.monoid != "mul" or isinstance(x, ad.UndefinedPrimal):
        raise RuleError(
            f"`accumulate` by {p.monoid!r} has no transpose here: it is not linear; differentiate it first "
            "(`jvp`, `linearize`)"
        )
    trace.bind(common.accumulate_p, common.accumulator(ref), x, *index, params=p)  # type: ignore[arg-type]  # known, as an index is
    return [None] * len(operands)


_define(common.addupdate_p, addupdate_jvp, addupdate_transpose)
_define(common.accumulate_p, accumulate_jvp, accumulate_transpose)
