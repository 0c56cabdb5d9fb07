"""Makes elementwise primitives: the row and the function from one call.

`unary` and `binary` fill a row and make the function that binds its primitive. Operands have one dtype and one
shape, save that an operand without axes may stand beside any others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, Protocol, cast

import numpy as np

from fiveloop.core import ad, arrays, errors, ir, rules, trace
from fiveloop.core.arrays import ArrayLike, Value
from fiveloop.core.backend import hlo
from fiveloop.core.primitives import broadcast, check, convert, costs

Term = Callable[..., Value | None]
"""The part of a derivative that an operand has: `term(t, out, *primals)`, linear in `t`; None where it is zero."""

kind_of: Callable[[Any], Any] = type  # as a key of a cache; not every type is hashable to mypy
BOOL = np.dtype(np.bool_)
add_p: ir.Primitive[Any] = ir.Primitive("add")  # its row is in `elementwise`; sums of terms need it


class Unary(Protocol):
    """The function of an elementwise primitive of one operand."""

    prim: ir.Primitive[Any]

    def __call__(self, x: ArrayLike) -> Value: ...


class Binary(Protocol):
    """The function of an elementwise primitive of two operands."""

    prim: ir.Primitive[Any]

    def __call__(self, x: ArrayLike, y: ArrayLike) -> Value: ...


# how functions bind


def apply_binary(prim: ir.Primitive[Any], x: ArrayLike, y: ArrayLike, inexact: bool) -> Value:
    """Bind a primitive to arguments brought to one dtype and one shape; integers become float32 if `inexact`."""
    if not inexact:
        # The common cases first: operands of one type, an array and a scalar, and a Python number beside an array.
        if isinstance(x, Value):
            if isinstance(y, Value):
                a, b = x.aval, y.aval
                if a is b or (
                    type(a) is type(b) is ir.ShapedArray
                    and a.dtype == b.dtype
                    and not (a.shape and b.shape)
                ):
                    return trace.bind1(prim, x, y)
            elif (typed := arrays.partner(x.aval, kind_of(y))) is not None:
                return trace.bind1(
                    prim, x, arrays.python_number(y, typed, f"{prim.name}: argument `y`")
                )
        elif isinstance(y, Value) and (typed := arrays.partner(y.aval, kind_of(x))) is not None:
            return trace.bind1(
                prim, arrays.python_number(x, typed, f"{prim.name}: argument `x`"), y
            )
    return trace.bind1(
        prim, *same_shapes(prim.name, convert.promote(prim.name, x, y, inexact=inexact))
    )


def same_shapes(fun: str, xs: ad.Values) -> list[Value]:
    """Operands broadcast to their common shape; those without axes stay as they are."""
    first = xs[0].shape
    if all(not x.shape or ir.same_shape(x.shape, first) for x in xs):
        return list(xs)
    shape = check.common_shape(fun, [x.shape for x in xs])
    return [broadcast.broadcast_to(x, shape) if x.shape else x for x in xs]


# the cells


def elementwise_shape(fun: str, avals: ir.Avals) -> ir.Shape:
    """The shape of an elementwise result: the common shape of operands with axes."""
    out: ir.Shape = ()
    for aval in avals:
        if aval.shape and out and not ir.same_shape(aval.shape, out):
            check.bad_type(f"{fun}: expected operands of one shape, got {_listed(avals)}")
        out = out or aval.shape
    return out


def elementwise_avals(fun: str, avals: ir.Avals, count: int, kinds: str) -> ir.ShapedArray:
    """The type that all operands of an elementwise primitive agree on; weak if all are."""
    given = check.array_avals(fun, avals, count)
    first = given[0]
    check.check_kind(fun, first, kinds)
    if count == 1:
        return first
    if any(a.dtype != first.dtype for a in given):
        check.bad_type(f"{fun}: expected operands of one dtype, got {_listed(avals)}")
    return ir.ShapedArray(
        elementwise_shape(fun, given), first.dtype, all(a.weak_type for a in given)
    )


def _listed(avals: ir.Avals) -> str:
    return " and ".join(str(a) for a in avals)


Back = Callable[..., Value]
"""The cotangent of a linear operand: `back(ct, *others)`, the other operands in order."""

OutDtype = Callable[[arrays.DType], arrays.DType]


def _abstract_eval(name: str, count: int, kinds: str, out: OutDtype | None) -> rules.AbstractEval:
    """The types of an elementwise primitive's results, remembered: tracing asks for them often."""

    @lru_cache(maxsize=512)
    def remembered(*avals: ir.Aval) -> tuple[ir.Aval, ...]:
        common = elementwise_avals(name, avals, count, kinds)
        if out is None:
            return (common,)
        dtype = out(common.dtype)
        return (common.update(dtype=dtype, weak_type=common.weak_type and dtype != BOOL),)

    def rule(avals: ir.Avals, p: Any) -> ir.Typing:
        return list(remembered(*avals)), ir.NO_EFFECTS

    return rule


def lower_elementwise(write: Any, ctx: Any, operands: hlo.IRValues, p: Any) -> list[hlo.IRValue]:
    """Lower to one HLO operation, after repeating operands without axes to the result's shape."""
    shape = ctx.avals_out[0].shape
    return [write(ctx.b, *[repeat_scalar(ctx.b, x, shape) for x in operands])]


def repeat_scalar(b: Any, x: hlo.IRValue, shape: ir.Shape) -> hlo.IRValue:
    """A scalar of a program repeated to a shape; an array as it is."""
    return x if x.shape or not shape else hlo.broadcast_in_dim(b, x, shape, ())


def batch_elementwise(
    prim: ir.Primitive[Any], size: int, operands: ad.Values, dims: ad.BatchAxes, p: Any
) -> ad.Batched:
    """Batch along the axis of the first operand with axes of its own; scalars stay scalars."""
    xs, out_dim = align(size, operands, dims)
    return trace.bind(prim, *xs, params=p), [out_dim]


def align(size: int, operands: ad.Values, dims: ad.BatchAxes) -> tuple[list[Value], int]:
    """Operands of an elementwise primitive with the batch axis in the same place, and this place."""
    first, count = dims[0], len(dims)
    if first is not None and dims.count(first) == count:
        if count == 1 or [len(x.aval.shape) for x in operands].count(operands[0].ndim) == count:
            return list(operands), first
    ranks = [x.ndim - (d is not None) for x, d in zip(operands, dims, strict=True)]
    rank = max(ranks)
    placed = [d for d, r in zip(dims, ranks, strict=True) if d is not None and r == rank]
    place = placed[0] if placed else 0
    x, d = operands[ranks.index(rank)], dims[ranks.index(rank)]
    shape = x.shape if d is None else (*x.shape[:d], *x.shape[d + 1 :])
    batched_shape = (*shape[:place], size, *shape[place:])
    xs: list[Value] = []
    for x, d, r in zip(operands, dims, ranks, strict=True):
        if r < rank and d is not None:
            xs.append(broadcast.broadcast_in_dim(x, batched_shape, [place]))
        elif d == place or (r == 0 and d is None):
            xs.append(x)
        else:
            xs.append(broadcast.bdim_at(x, d, size, place))
    return xs, place


def fit(t: Value, aval: ir.Aval) -> Value:
    """A tangent in the shape of the result: one without axes is repeated."""
    known = t.aval
    if known is aval or ir.same_shape(known.shape, aval.shape):
        return t
    return broadcast.broadcast_in_dim(t, aval.shape, ())


Terms = Sequence[Term | None]


def jvp_elementwise(
    prim: ir.Primitive[Any], terms: Terms, primals: ad.Values, tangents: ad.Tangents, p: Any
) -> ad.Duals:
    """The sum of a term per operand that has a tangent; None is a derivative that is zero."""
    out = trace.bind1(prim, *primals, params=p)
    aval = out.aval
    total: Value | None = None
    for term, t in zip(terms, tangents, strict=True):
        part = None if term is None or isinstance(t, ad.Zero) else term(t, out, *primals)
        if part is not None:
            part = fit(part, aval)
            total = part if total is None else trace.bind1(add_p, total, part)
    return [out], [ad.Zero(aval.tangent()) if total is None else total]


def transpose_elementwise(
    name: str, terms: Sequence[Back | None], cts: ad.Tangents, operands: ad.Operands, p: Any
) -> ad.Cotangents:
    """The cotangent of each linear operand by `term(ct, *others)`; summed for an operand without axes."""
    outs: ad.Cotangents = [None] * len(operands)
    for k, (term, x) in enumerate(zip(terms, operands, strict=True)):
        if not isinstance(x, ad.UndefinedPrimal):
            continue
        if term is None:
            raise errors.RuleError(f"`{name}` has no transpose: it is not linear in operand {k}")
        x_bar = term(*cts, *operands[:k], *operands[k + 1 :])
        repeated = not ir.same_shape(x_bar.aval.shape, x.aval.shape)
        outs[k] = broadcast.reduce_sum(x_bar) if repeated else x_bar
    return outs


# the rows


def elementwise_cost(flops: int, avals: ir.Avals, p: Any) -> rules.Cost:
    """The cost of a function of each element."""
    wide = max(avals, key=lambda a: a.ndim)
    return rules.Cost(flops * ir.size_of(wide.shape), ir.bytes_of([*avals, wide]), again=True)


def define_elementwise(
    prim: ir.Primitive[Any],
    *,
    count: int,
    kinds: str,
    lower: Callable[..., hlo.IRValue],
    jvp: rules.Jvp,
    transpose: Sequence[Back | None] | None = None,
    out: OutDtype | None = None,
    flops: int = 1,
) -> None:
    """Fill the row of an elementwise primitive of `count` operands without params; `flops` of each element."""
    rules.define(
        prim,
        abstract_eval=_abstract_eval(prim.name, count, kinds, out),
        lower=partial(lower_elementwise, lower),
        jvp=jvp,
        transpose=rules.NOT_LINEAR
        if transpose is None
        else partial(transpose_elementwise, prim.name, transpose),
        batch=partial(batch_elementwise, prim),
        cost=partial(elementwise_cost, flops),
        by_element=True,
    )


def unary(
    name: str | ir.Primitive[Any],
    doc: str,
    lower: hlo.Unary,
    jvp: Term | None = None,
    *,
    kinds: str = "fc",
    transpose: Back | None = None,
    out: OutDtype | None = None,
    flops: int = 1,
    unchanged: str = "",
) -> Unary:
    """A new elementwise primitive of one operand, with its row, and the function that binds it.

    It takes dtypes of these `kinds`. Where there are no integers among them its function makes float32 of integers, or
    gives arrays of the kinds that are `unchanged` as they are. Its derivative is `jvp(t, y, x)`, zero if that is None;
    a linear one also gives `transpose(ct)`.
    """
    prim = ir.Primitive[Any](name) if isinstance(name, str) else name
    define_elementwise(
        prim,
        count=1,
        kinds=kinds,
        lower=lower,
        jvp=partial(jvp_elementwise, prim, [jvp]),
        transpose=None if transpose is None else [transpose],
        out=out,
        flops=flops,
    )
    inexact = "i" not in kinds and not unchanged

    def fun(x: ArrayLike) -> Value:
        if inexact and not (isinstance(x, Value) and x.aval.dtype.kind in "fc"):
            return trace.bind1(prim, *convert.promote(prim.name, x, inexact=True))
        value = convert.operand(prim.name, "x", x)
        return value if unchanged and value.dtype.kind in unchanged else trace.bind1(prim, value)

    return cast(Unary, _described(fun, prim, doc))


def binary(
    name: str | ir.Primitive[Any],
    doc: str,
    lower: hlo.Binary,
    jvp: tuple[Term | None, Term | None] = (None, None),
    *,
    kinds: str = "iufc",
    transpose: tuple[Back | None, Back | None] | None = None,
    out: OutDtype | None = None,
    flops: int = 1,
    whole_jvp: Callable[[ir.Primitive[Any]], rules.Jvp] | None = None,
) -> Binary:
    """A new elementwise primitive of two operands, with its row, and the function that binds it.

    `jvp` has a term `(t, out, x, y)` for each operand, or `whole_jvp` makes the rule. A primitive that is linear in an
    operand gives for it a term `(ct, other)` of `transpose`. What is not told is as for `unary`.
    """
    prim = ir.Primitive[Any](name) if isinstance(name, str) else name
    define_elementwise(
        prim,
        count=2,
        kinds=kinds,
        lower=lower,
        jvp=partial(jvp_elementwise, prim, jvp) if whole_jvp is None else whole_jvp(prim),
        transpose=transpose,
        out=out,
        flops=flops,
    )
    inexact = "i" not in kinds

    def fun(x: ArrayLike, y: ArrayLike) -> Value:
        return apply_binary(prim, x, y, inexact)

    return cast(Binary, _described(fun, prim, doc))


short_series = partial(unary, flops=costs.EXP)
long_series = partial(unary, flops=costs.SLOW)


def _described(fun: Any, prim: ir.Primitive[Any], doc: str) -> Any:
    """A function that is made here, named after its primitive and with a docstring."""
    fun.__name__ = fun.__qualname__ = prim.name
    fun.__doc__, fun.prim = doc, prim
    return fun


def comparison(name: str, doc: str, direction: str, kinds: str = "biuf") -> Binary:
    """A comparison, whose results are bools."""
    return binary(
        name,
        doc,
        lambda b, x, y: hlo.compare(b, x, y, direction),
        kinds=kinds,
        out=lambda dtype: BOOL,
    )
