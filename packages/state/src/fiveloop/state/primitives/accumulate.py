"""`accumulate`: combine with what a Ref holds, by a monoid that is not linear; repeated places combine all shares."""

from __future__ import annotations

from collections.abc import Sequence

from fiveloop.core import RuleError, Value
from fiveloop.core.engine import (
    bitwise_or,
    check_count,
    equal,
    is_first,
    mul,
    not_equal,
    product_of_others,
)
from fiveloop.core.extend import (
    Accumulator,
    Aval,
    Effects,
    Refusal,
    UndefinedPrimal,
    Zero,
    bind,
    bind1,
    bitwise_and,
    define,
    instantiate,
    select,
    zeros_of,
)
from fiveloop.state.discharge.phases import names_each_once
from fiveloop.state.discharge.table import Cell, DischargeContext, define_discharge
from fiveloop.state.effects import AccumEffect
from fiveloop.state.errors import not_differentiated
from fiveloop.state.monoids import MONOIDS, monoid_of
from fiveloop.state.primitives.common import (
    AccumulateParams,
    IndexParams,
    SwapParams,
    Tangent,
    accumulate_p,
    accumulator,
    addupdate_p,
    batched_shares,
    check_index,
    check_value,
    element_aval,
    get_p,
    swap_p,
)
from fiveloop.state.primitives.places import element_numbers


def accumulate_abstract_eval(
    avals: Sequence[Aval], p: AccumulateParams
) -> tuple[list[Aval], Effects]:
    """No result; the Ref is accumulated into by the monoid."""
    check_count("accumulate", avals, 2, or_more=True)
    ref, value, *operands = avals
    element = element_aval(ref, p.indexer)
    monoid_of(p.monoid, ref)
    check_index("accumulate", ref, operands, p.indexer)
    check_value("accumulate", value, element)
    return [], frozenset([AccumEffect(0, p.monoid)])


def accumulate_jvp(
    primals: Sequence[Value], tangents: Sequence[Tangent], p: AccumulateParams
) -> tuple[list[Value], list[Tangent]]:
    """The tangent of a product by the product rule, that of an extreme from whoever won."""
    ref, _, *index = primals
    ref_dot, x_dot = tangents[:2]
    if isinstance(ref_dot, Zero):
        if not isinstance(x_dot, Zero):
            raise not_differentiated("accumulate")
        bind(accumulate_p, *primals, params=p)
        return [], []
    old = bind1(get_p, ref, *index, params=IndexParams(p.indexer))
    if p.monoid == "mul":
        bind(accumulate_p, *primals, params=p)
        _product_rule(primals, old, ref_dot, x_dot, p)
    else:
        _winner_rule(primals, old, ref_dot, instantiate(x_dot), p)
    return [], []


def _product_rule(
    primals: Sequence[Value], old: Value, ref_dot: Value, x_dot: Tangent, p: AccumulateParams
) -> None:
    """Each factor's tangent times all other factors; there is no division, so it is right at zeros."""
    ref, x, *index = primals
    bind(accumulate_p, ref_dot, x, *index, params=p)
    if isinstance(x_dot, Zero):
        return
    if not names_each_once(p.indexer):
        old = mul(old, product_of_others(x, element_numbers(ref.shape, p.indexer, index)))
    bind(addupdate_p, ref_dot, mul(old, x_dot), *index, params=IndexParams(p.indexer))


def _winner_rule(
    primals: Sequence[Value], old: Value, ref_dot: Value, x_dot: Value, p: AccumulateParams
) -> None:
    """The old tangent where the old element stays, else that of the first share that equals the new one."""
    ref, x, *index = primals
    at, write = IndexParams(p.indexer), SwapParams(p.indexer, returns_old=False)
    old_dot = bind1(get_p, ref_dot, *index, params=at)
    if names_each_once(p.indexer):
        new = MONOIDS[p.monoid].combine(old, x)
        wins = _differs(new, old)
        bind(swap_p, ref, new, *index, params=write)
        bind(swap_p, ref_dot, select(wins, x_dot, old_dot), *index, params=write)
        return
    bind(accumulate_p, *primals, params=p)
    new = bind1(get_p, ref, *index, params=at)
    changed = _differs(new, old)
    candidates = bitwise_and(changed, bitwise_or(equal(x, new), not_equal(x, x)))
    wins = is_first(candidates, element_numbers(ref.shape, p.indexer, index))
    nothing = zeros_of(x_dot.aval)
    bind(swap_p, ref_dot, select(changed, nothing, old_dot), *index, params=write)
    bind(addupdate_p, ref_dot, select(wins, x_dot, nothing), *index, params=at)


def _differs(new: Value, old: Value) -> Value:
    """Whether an extreme has changed; NaN that stays NaN has not."""
    return bitwise_and(not_equal(new, old), equal(old, old))


def accumulate_transpose(
    cts: Sequence[Tangent],
    operands: Sequence[Value | UndefinedPrimal | Accumulator],
    p: AccumulateParams,
) -> list[Tangent | None]:
    """A product by what is known is linear in the Ref: its cotangent is multiplied, too."""
    ref, x, *index = operands
    if p.monoid != "mul" or isinstance(x, UndefinedPrimal):
        raise RuleError(
            f"`accumulate` by {p.monoid!r} has no transpose here: it is not linear; differentiate it first "
            "(`jvp`, `linearize`)"
        )
    bind(accumulate_p, accumulator(ref), x, *index, params=p)  # type: ignore[arg-type]  # known, as an index is
    return [None] * len(operands)


def accumulate_batch(
    size: int, operands: Sequence[Value], dims: Sequence[int | None], p: AccumulateParams
) -> tuple[list[Value], list[int | None]]:
    """Accumulate each lane's share; into a Ref that is not batched, those of all lanes."""
    params, shares = batched_shares(size, operands, dims, p, MONOIDS[p.monoid])
    bind(accumulate_p, *shares, params=params)
    return [], []


def accumulate_discharge(
    ctx: DischargeContext, operands: Sequence[Value | Cell], p: AccumulateParams
) -> list[Value]:
    """Combine with the contents."""
    cell, x, *index = operands
    ctx.accumulate(cell, p.indexer, index, x, p.monoid)  # type: ignore[arg-type]  # the first operand is the Ref, the others are values
    return []


define(
    accumulate_p,
    abstract_eval=accumulate_abstract_eval,
    lower=Refusal("it changes a Ref; discharge it first (`discharge_state`)"),
    jvp=accumulate_jvp,
    batch=accumulate_batch,
    transpose=accumulate_transpose,
)
define_discharge(accumulate_p, accumulate_discharge)
