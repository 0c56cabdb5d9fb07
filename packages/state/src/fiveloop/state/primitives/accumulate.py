"""Combining with the contents of a Ref: `addupdate`, which is linear, and `accumulate`, by any other monoid.

The params of `addupdate` name no monoid: it adds.
"""

from __future__ import annotations

from typing import Any

from fiveloop.core import Value, ad, errors, ir, prims, rules, trace, transforms
from fiveloop.core.index import access as indexing
from fiveloop.state import discharge, refs
from fiveloop.state.errors import not_differentiated
from fiveloop.state.primitives import common

Params = common.IndexParams


def _monoid(p: Params) -> str:
    return p.monoid if isinstance(p, common.AccumulateParams) else "add"


def _abstract_eval(name: str) -> rules.AbstractEval:
    def rule(avals: ir.Avals, p: Params) -> ir.Typing:
        """No result; the Ref is accumulated into."""
        prims.check_count(name, avals, 2, or_more=True)
        ref, value, *operands = avals
        element = common.element_aval(ref, p.indexer)
        if isinstance(p, common.AccumulateParams):
            common.monoid_of(p.monoid, ref)
        prims.check_index(name, ref, operands, p.indexer)
        common.check_value(name, value, element)
        return [], frozenset([refs.AccumEffect(0, _monoid(p))])

    return rule


def _batch(prim: ir.Primitive[Any]) -> rules.Batch:
    def rule(size: int, operands: ad.Values, dims: ad.BatchAxes, p: Params) -> ad.Batched:
        """Combine with each lane's share; into a Ref that is not batched, go those of all lanes combined."""
        monoid = prims.MONOIDS[_monoid(p)]
        params, shares = common.batched_shares(size, operands, dims, p, monoid)
        trace.bind(prim, *shares, params=params)
        return [], []

    return rule


def _discharge(
    ctx: discharge.DischargeContext, operands: discharge.Operands, p: Params
) -> list[Value]:
    """Combine with the contents."""
    cell, x, *index = operands
    ctx.accumulate(cell, p.indexer, index, x, _monoid(p))  # type: ignore[arg-type]  # the first operand is the Ref, the others are values
    return []


def _print(eqn: ir.Eqn, names: ir.Names) -> str:
    """`r[i] += v`, `r[i] max= v`."""
    symbol = prims.MONOIDS[_monoid(eqn.params)].symbol
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
        raise not_differentiated("addupdate")
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
            raise not_differentiated("accumulate")
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
    """The old tangent where the old element stays, else that of the first share that equals the new one."""
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
        raise errors.RuleError(
            f"`accumulate` by {p.monoid!r} has no transpose here: it is not linear; differentiate it first "
            "(`jvp`, `linearize`)"
        )
    trace.bind(common.accumulate_p, common.accumulator(ref), x, *index, params=p)  # type: ignore[arg-type]  # known, as an index is
    return [None] * len(operands)


_define(common.addupdate_p, addupdate_jvp, addupdate_transpose)
_define(common.accumulate_p, accumulate_jvp, accumulate_transpose)
