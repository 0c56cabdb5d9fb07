"""Elementwise primitives of one, two or more operands: a whole row, and its function, from one call.

`unary` and `binary` fill a row and make the function that binds its primitive. Operands have one dtype and one
shape, save that an operand without axes may stand beside any others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Protocol, cast

import numpy as np

from fiveloop.core.array import ArrayLike, Value
from fiveloop.core.backend import hlo
from fiveloop.core.backend.hlo import Binary as WriteBinary
from fiveloop.core.backend.hlo import IRValue
from fiveloop.core.backend.hlo import Unary as WriteUnary
from fiveloop.core.errors import RuleError
from fiveloop.core.ir.avals import Aval, ShapedArray
from fiveloop.core.ir.dims import Shape, same_shape
from fiveloop.core.ir.effects import NO_EFFECTS, Effects
from fiveloop.core.ir.jaxpr import Primitive
from fiveloop.core.primitives.broadcast import bdim_at, broadcast_in_dim, broadcast_to, reduce_sum
from fiveloop.core.primitives.check import array_avals, bad_type, check_kind, common_shape
from fiveloop.core.primitives.convert import operand, promote
from fiveloop.core.primitives.costs import elementwise_cost
from fiveloop.core.promotion import DType, Typed, dtype_kind, join, python_number, python_typed
from fiveloop.core.rules import (
    NOT_LINEAR,
    AbstractEval,
    Batch,
    Jvp,
    Lower,
    Operand,
    Tangent,
    Transpose,
    UndefinedPrimal,
    Zero,
    define,
)
from fiveloop.core.trace.tracer import bind1

Term = Callable[..., Value | None]
"""The part of a derivative that an operand has: `term(t, out, *primals)`, linear in `t`; None where it is zero."""

kind_of: Callable[[Any], Any] = type  # as a key of a cache; not every type is hashable to mypy
BOOL = np.dtype(np.bool_)
add_p: Primitive[Any] = Primitive("add")  # its row is in `elementwise`; sums of terms need it


class Unary(Protocol):
    """The function of an elementwise primitive of one operand."""

    prim: Primitive[Any]

    def __call__(self, x: ArrayLike) -> Value: ...


class Binary(Protocol):
    """The function of an elementwise primitive of two operands."""

    prim: Primitive[Any]

    def __call__(self, x: ArrayLike, y: ArrayLike) -> Value: ...


# how functions bind


def apply_unary(prim: Primitive[Any], x: ArrayLike, inexact: bool, unchanged: str) -> Value:
    """Bind a primitive to an argument; integers become float32 if `inexact`, `unchanged` kinds stay as they are."""
    if inexact and not (isinstance(x, Value) and x.aval.dtype.kind in "fc"):
        return bind1(prim, *promote(prim.name, x, inexact=True))
    value = operand(prim.name, "x", x)
    return value if unchanged and value.dtype.kind in unchanged else bind1(prim, value)


def apply_binary(prim: Primitive[Any], x: ArrayLike, y: ArrayLike, inexact: bool = False) -> Value:
    """Bind a primitive to arguments brought to one dtype and one shape; integers become float32 if `inexact`."""
    if not inexact:
        # The common cases first: operands of one type, and a Python number beside an array.
        if isinstance(x, Value):
            if isinstance(y, Value):
                if x.aval is y.aval:
                    return bind1(prim, x, y)
            elif (typed := partner(x.aval, kind_of(y))) is not None:
                return bind1(prim, x, python_number(y, typed, f"{prim.name}: argument `y`"))
        elif isinstance(y, Value) and (typed := partner(y.aval, kind_of(x))) is not None:
            return bind1(prim, python_number(x, typed, f"{prim.name}: argument `x`"), y)
    return bind1(prim, *same_shapes(prim.name, promote(prim.name, x, y, inexact=inexact)))


@lru_cache(maxsize=4096)
def partner(aval: Aval, kind: Any) -> Typed | None:
    """The type of a Python number of a kind beside an array that keeps its own type, if it does."""
    if kind not in (bool, int, float, complex) or aval.weak_type:
        return None
    if not isinstance(aval, ShapedArray) or dtype_kind(aval.dtype) == "b":
        return None
    kept = Typed(aval.dtype)
    return kept if join((kept, python_typed(kind(0)))) == kept else None


def same_shapes(fun: str, xs: Sequence[Value]) -> list[Value]:
    """Operands broadcast to their common shape; those without axes stay as they are."""
    first = xs[0].shape
    if all(not x.shape or same_shape(x.shape, first) for x in xs):
        return list(xs)
    shape = common_shape(fun, [x.shape for x in xs])
    return [broadcast_to(x, shape) if x.shape else x for x in xs]


# the cells


def elementwise_shape(fun: str, avals: Sequence[Aval]) -> Shape:
    """The shape of an elementwise result: that of all operands that have axes."""
    out: Shape = ()
    for aval in avals:
        if aval.shape and out and not same_shape(aval.shape, out):
            bad_type(f"{fun}: expected operands of one shape, got {_listed(avals)}")
        out = out or aval.shape
    return out


def elementwise_avals(fun: str, avals: Sequence[Aval], count: int, kinds: str) -> ShapedArray:
    """The type that all operands of an elementwise primitive agree on; weak if all are."""
    given = array_avals(fun, avals, count)
    first = given[0]
    check_kind(fun, first, kinds)
    if count == 1:
        return first
    if any(a.dtype != first.dtype for a in given):
        bad_type(f"{fun}: expected operands of one dtype, got {_listed(avals)}")
    return ShapedArray(elementwise_shape(fun, given), first.dtype, all(a.weak_type for a in given))


def _listed(avals: Sequence[Aval]) -> str:
    return " and ".join(str(a) for a in avals)


Back = Callable[..., Value]
"""The cotangent of a linear operand: `back(ct, *others)`, the other operands in order."""

OutDtype = Callable[[DType], DType]


def _abstract_eval(name: str, count: int, kinds: str, out: OutDtype | None) -> AbstractEval:
    """The types of an elementwise primitive's results, remembered: tracing asks for them often."""

    @lru_cache(maxsize=512)
    def remembered(*avals: Aval) -> tuple[Aval, ...]:
        common = elementwise_avals(name, avals, count, kinds)
        if out is None:
            return (common,)
        dtype = out(common.dtype)
        return (common.update(dtype=dtype, weak_type=common.weak_type and dtype != BOOL),)

    def rule(avals: Sequence[Aval], p: Any) -> tuple[list[Aval], Effects]:
        return list(remembered(*avals)), NO_EFFECTS

    return rule


def to_bool(dtype: DType) -> DType:
    """The dtype of answers: bool."""
    return BOOL


def lower_elementwise(write: Callable[..., IRValue]) -> Lower:
    """Lower to one HLO operation, after repeating operands without axes to the result's shape."""

    def rule(ctx: Any, operands: Sequence[IRValue], p: Any) -> list[IRValue]:
        shape = ctx.avals_out[0].shape
        return [write(ctx.b, *[repeat_scalar(ctx.b, x, shape) for x in operands])]

    return rule


def repeat_scalar(b: Any, x: IRValue, shape: Shape) -> IRValue:
    """A scalar of a program repeated to a shape; an array as it is."""
    return x if x.shape or not shape else hlo.broadcast_in_dim(b, x, shape, ())


def batch_elementwise(prim: Primitive[Any]) -> Batch:
    """Batch along the axis of the first operand with axes of its own; scalars stay scalars."""

    def rule(
        size: int, operands: Sequence[Value], dims: Sequence[int | None], p: Any
    ) -> tuple[list[Value], list[int | None]]:
        xs, out_dim = align_elementwise(size, operands, dims)
        return [bind1(prim, *xs, params=p)], [out_dim]

    return rule


def align_elementwise(
    size: int, operands: Sequence[Value], dims: Sequence[int | None]
) -> tuple[list[Value], int]:
    """Operands of an elementwise primitive with one batch axis in one place, and that place."""
    ranks = [x.ndim - (d is not None) for x, d in zip(operands, dims, strict=True)]
    rank = max(ranks)
    placed = [d for d, r in zip(dims, ranks, strict=True) if d is not None and r == rank]
    place = placed[0] if placed else 0
    shape = next(
        (x.shape if d is None else x.aval.unbatched(d).shape)
        for x, d, r in zip(operands, dims, ranks, strict=True)
        if r == rank
    )
    batched_shape = (*shape[:place], size, *shape[place:])
    xs: list[Value] = []
    for x, d, r in zip(operands, dims, ranks, strict=True):
        if r < rank and d is not None:
            xs.append(broadcast_in_dim(x, batched_shape, [place]))
        elif r == 0 and d is None:
            xs.append(x)
        else:
            xs.append(bdim_at(x, d, size, place))
    return xs, place


def fit(t: Value, aval: Aval) -> Value:
    """A tangent in the shape of the result: one without axes is repeated."""
    return t if same_shape(t.shape, aval.shape) else broadcast_in_dim(t, aval.shape, ())


def unbroadcast(ct: Value, aval: Aval) -> Value:
    """A cotangent in the shape of the operand: summed for an operand without axes."""
    return ct if same_shape(ct.shape, aval.shape) else reduce_sum(ct)


def jvp_elementwise(prim: Primitive[Any], terms: Sequence[Term | None]) -> Jvp:
    """The sum of a term per operand that has a tangent; None is a derivative that is zero."""

    def rule(
        primals: Sequence[Value], tangents: Sequence[Tangent], p: Any
    ) -> tuple[list[Value], list[Tangent]]:
        out = bind1(prim, *primals, params=p)
        total: Tangent = Zero(out.aval.tangent())
        for term, t in zip(terms, tangents, strict=True):
            part = None if term is None or isinstance(t, Zero) else term(t, out, *primals)
            if part is not None:
                part = fit(part, out.aval)
                total = part if isinstance(total, Zero) else bind1(add_p, total, part)
        return [out], [total]

    return rule


def transpose_elementwise(name: str, terms: Sequence[Back | None]) -> Transpose:
    """The cotangent of each linear operand by `term(ct, *others)`, the other operands in order."""

    def rule(cts: Sequence[Tangent], operands: Sequence[Operand], p: Any) -> list[Tangent | None]:
        (ct,) = cts
        outs: list[Tangent | None] = []
        for k, (term, x) in enumerate(zip(terms, operands, strict=True)):
            if not isinstance(x, UndefinedPrimal):
                outs.append(None)
                continue
            if term is None:
                raise RuleError(f"`{name}` has no transpose: it is not linear in operand {k}")
            others = [*operands[:k], *operands[k + 1 :]]
            outs.append(
                Zero(x.aval) if isinstance(ct, Zero) else unbroadcast(term(ct, *others), x.aval)
            )
        return outs

    return rule


# the rows


def define_elementwise(
    prim: Primitive[Any],
    *,
    count: int,
    kinds: str,
    lower: Callable[..., IRValue],
    jvp: Jvp,
    transpose: Sequence[Back | None] | None = None,
    out: OutDtype | None = None,
    flops: int = 1,
) -> None:
    """Fill the row of an elementwise primitive of `count` operands without params; `flops` of each element."""
    define(
        prim,
        abstract_eval=_abstract_eval(prim.name, count, kinds, out),
        lower=lower_elementwise(lower),
        jvp=jvp,
        transpose=NOT_LINEAR if transpose is None else transpose_elementwise(prim.name, transpose),
        batch=batch_elementwise(prim),
        cost=elementwise_cost(flops),
        by_element=True,
    )


def unary(
    name: str | Primitive[Any],
    doc: str,
    lower: WriteUnary,
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
    prim = Primitive[Any](name) if isinstance(name, str) else name
    define_elementwise(
        prim,
        count=1,
        kinds=kinds,
        lower=lower,
        jvp=jvp_elementwise(prim, [jvp]),
        transpose=None if transpose is None else [transpose],
        out=out,
        flops=flops,
    )
    inexact = "i" not in kinds and not unchanged

    def fun(x: ArrayLike) -> Value:
        return apply_unary(prim, x, inexact, unchanged)

    return cast(Unary, _described(fun, prim, doc))


def binary(
    name: str | Primitive[Any],
    doc: str,
    lower: WriteBinary,
    jvp: tuple[Term | None, Term | None] = (None, None),
    *,
    kinds: str = "iufc",
    transpose: tuple[Back | None, Back | None] | None = None,
    out: OutDtype | None = None,
    flops: int = 1,
    whole_jvp: Callable[[Primitive[Any]], Jvp] | None = None,
) -> Binary:
    """A new elementwise primitive of two operands, with its row, and the function that binds it.

    `jvp` has a term `(t, out, x, y)` for each operand, or `whole_jvp` makes the rule. A primitive that is linear in an
    operand gives for it a term `(ct, other)` of `transpose`. What is not told is as for `unary`.
    """
    prim = Primitive[Any](name) if isinstance(name, str) else name
    define_elementwise(
        prim,
        count=2,
        kinds=kinds,
        lower=lower,
        jvp=jvp_elementwise(prim, jvp) if whole_jvp is None else whole_jvp(prim),
        transpose=transpose,
        out=out,
        flops=flops,
    )
    inexact = "i" not in kinds

    def fun(x: ArrayLike, y: ArrayLike) -> Value:
        return apply_binary(prim, x, y, inexact)

    return cast(Binary, _described(fun, prim, doc))


def _described(fun: Any, prim: Primitive[Any], doc: str) -> Any:
    """A function that is made here, named after its primitive and with a docstring."""
    fun.__name__ = fun.__qualname__ = prim.name
    fun.__doc__, fun.prim = doc, prim
    return fun


def comparison(name: str, doc: str, direction: str, kinds: str = "biuf") -> Binary:
    """A comparison, whose results are bools."""
    return binary(
        name, doc, lambda b, x, y: hlo.compare(b, x, y, direction), kinds=kinds, out=to_bool
    )


def zero_jvp(prim: Primitive[Any]) -> Jvp:
    """The jvp of a primitive that is constant almost everywhere."""

    def rule(
        primals: Sequence[Value], tangents: Sequence[Tangent], p: Any
    ) -> tuple[list[Value], list[Tangent]]:
        out = bind1(prim, *primals, params=p)
        return [out], [Zero(out.aval.tangent())]

    return rule


def same_dims_batch(prim: Primitive[Any]) -> Batch:
    """The batching rule of a one-operand primitive that treats every element alike."""

    def rule(
        size: int, operands: Sequence[Value], dims: Sequence[int | None], p: Any
    ) -> tuple[list[Value], list[int | None]]:
        return [bind1(prim, *operands, params=p)], list(dims)

    return rule
