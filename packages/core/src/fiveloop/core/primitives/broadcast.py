"""Shape primitives that are each other's transposes: broadcast, reshape, transpose and sum.

Batching rules of all other files use the helpers at the end: `move_axis` and `bdim_at`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fiveloop.core import ad, arrays, errors, ir, rules, trace
from fiveloop.core.arrays import ArrayLike, Value
from fiveloop.core.backend import hlo
from fiveloop.core.dataclass import dataclass, replace
from fiveloop.core.primitives import check, convert, costs

# The engines call no rule with tangents or cotangents that are all zero: a single one is a value.


def jvp_of_one(prim: ir.Primitive[Any], tangent: Callable[..., ad.Tangent]) -> rules.Jvp:
    """The jvp of a primitive of one operand and one result, from `tangent(t, out, x, p)`."""

    def rule(primals: ad.Values, tangents: ad.Tangents, p: Any) -> ad.Duals:
        (x,), (t,) = primals, tangents
        out = trace.bind1(prim, x, params=p)
        return [out], [tangent(t, out, x, p)]

    return rule


def linear_jvp(prim: ir.Primitive[Any], num: int | None = None) -> rules.Jvp:
    """The jvp of a primitive that is linear in its first `num` operands, or in all, together: itself."""

    def rule(primals: ad.Values, tangents: ad.Tangents, p: Any) -> ad.Duals:
        outs = trace.bind(prim, *primals, params=p)
        dots, fixed = map(instantiate, tangents[:num]), () if num is None else primals[num:]
        return outs, [*trace.bind(prim, *dots, *fixed, params=p)]

    return rule


def zero_jvp(prim: ir.Primitive[Any]) -> rules.Jvp:
    """The jvp of a primitive that is constant almost everywhere."""

    def rule(primals: ad.Values, tangents: ad.Tangents, p: Any) -> ad.Duals:
        outs = trace.bind(prim, *primals, params=p)
        return outs, [ad.Zero(out.aval.tangent()) for out in outs]

    return rule


def linear_transpose(back: Any) -> rules.Transpose:
    """The transpose of a one-operand primitive from `back(ct, aval, p)`, with the operand's type."""

    return lambda cts, operands, p: [back(*cts, operands[0].aval, p)]


def of_linear(operands: ad.Operands, cts: Sequence[ad.Tangent | None]) -> ad.Cotangents:
    """The cotangents of those operands that are linear, and None for the others."""
    linear = (ad.UndefinedPrimal, ad.Accumulator)
    return [ct if isinstance(x, linear) else None for x, ct in zip(operands, cts, strict=True)]


def same_dims_batch(prim: ir.Primitive[Any]) -> rules.Batch:
    """The batching rule of a primitive that gives each operand back, changed element by element."""

    return lambda size, operands, dims, p: (trace.bind(prim, *operands, params=p), list(dims))


def batch_in_front(prim: ir.Primitive[Any], batched: Callable[[Any, ir.Dim], Any]) -> rules.Batch:
    """The batching rule that puts the batch axis of all operands and results in front, under `batched(p, size)`."""

    def rule(size: int, operands: ad.Values, dims: ad.BatchAxes, p: Any) -> ad.Batched:
        moved = [bdim_at(x, d, size, 0) for x, d in zip(operands, dims, strict=True)]
        outs = trace.bind(prim, *moved, params=batched(p, size))
        return outs, [0] * len(outs)

    return rule


def past(axes: Sequence[int], dim: int | None) -> tuple[int, ...]:
    """Axes counted with a batch axis, if there is one, among them."""
    return tuple(axes) if dim is None else tuple(k + (k >= dim) for k in axes)


def along_next_axis(p: Any, size: ir.Dim) -> Any:
    """Params whose `axis` counts one more axis in front."""
    return replace(p, axis=p.axis + 1)


# broadcast_in_dim


@dataclass(frozen=True)
class BroadcastParams:
    """The result's shape, and the axis of it that each axis of the operand becomes."""

    shape: ir.Shape
    dims: tuple[int, ...]


broadcast_in_dim_p: ir.Primitive[BroadcastParams] = ir.Primitive("broadcast_in_dim")


def broadcast_in_dim(x: ArrayLike, shape: Any, dims: Sequence[int] = ()) -> Value:
    """Repeat `x` to `shape`; axis k of `x` becomes axis `dims[k]`, and is repeated if its size is 1.

    ValueError if an axis of `x` has another size than 1 and than its axis of `shape`.

    >>> print(broadcast_in_dim(np.array([1.0, 2.0]), (2, 3), (0,)))
    [[1. 1. 1.]
     [2. 2. 2.]]
    """
    value = convert.operand("broadcast_in_dim", "x", x)
    out = check.canonical_shape("broadcast_in_dim", shape)
    places = check.canonical_axes("broadcast_in_dim", dims, len(out), "dims")
    if places == tuple(range(len(out))) and ir.same_shape(value.shape, out):
        return value
    return trace.bind1(broadcast_in_dim_p, value, params=BroadcastParams(out, places))


def broadcast_to(x: ArrayLike, shape: Any) -> Value:
    """Repeat `x` to `shape` under NumPy's rules: new axes come in front."""
    value = convert.operand("broadcast_to", "x", x)
    out = check.canonical_shape("broadcast_to", shape)
    sizes = zip(value.shape, out[len(out) - value.ndim :], strict=True)
    if value.ndim > len(out) or not all(ir.is_one(d) or ir.same_dim(d, k) for d, k in sizes):
        check.bad_value(
            f"broadcast_to: cannot broadcast {errors.shape_str(value.shape)} to {errors.shape_str(out)}"
        )
    return broadcast_in_dim(value, out, range(len(out) - value.ndim, len(out)))


def _broadcast_aval(avals: ir.Avals, p: BroadcastParams) -> list[ir.Aval]:
    (x,) = check.array_avals("broadcast_in_dim", avals, 1)
    fits = len(p.dims) == x.ndim and all(a < b for a, b in zip(p.dims, p.dims[1:], strict=False))
    sizes = zip(x.shape, [p.shape[k] for k in p.dims], strict=False)
    if not fits or not all(ir.is_one(d) or ir.same_dim(d, k) for d, k in sizes):
        check.bad_value(
            f"broadcast_in_dim: expected `dims` to place each axis of {errors.shape_str(x.shape)}, in order, "
            f"on an axis of {errors.shape_str(p.shape)} of its size, got dims {p.dims}"
        )
    return [x.update(shape=p.shape)]


def _broadcast_back(ct: Value, aval: ir.Aval, p: BroadcastParams) -> Value:
    """Sum over added axes and repeated axes."""
    repeated = {
        k for d, k in zip(aval.shape, p.dims, strict=True) if not ir.same_dim(d, p.shape[k])
    }
    summed = [k for k in range(len(p.shape)) if k not in p.dims or k in repeated]
    return reshape(reduce_sum(ct, summed), aval.shape)


rules.define(
    broadcast_in_dim_p,
    abstract_eval=rules.pure(_broadcast_aval),
    cost=costs.moving_cost(_broadcast_aval),
    lower=lambda ctx, xs, p: [hlo.broadcast_in_dim(ctx.b, xs[0], p.shape, p.dims)],
    jvp=linear_jvp(broadcast_in_dim_p),
    transpose=linear_transpose(_broadcast_back),
    batch=batch_in_front(
        broadcast_in_dim_p,
        lambda p, size: BroadcastParams((size, *p.shape), (0, *[k + 1 for k in p.dims])),
    ),
    view=True,
)


def full(shape: Any, value: ArrayLike, dtype: Any = None) -> Value:
    """An array with the same value everywhere; by default float32, int32 or the value's own dtype."""
    x: Value
    if arrays.is_python_number(value):
        typed = arrays.Typed(arrays.python_typed(value).dtype if dtype is None else np.dtype(dtype))
        x = arrays.python_number(value, typed, "full: argument `value`")
    else:
        x = convert.operand("full", "value", value)
        if x.shape:
            check.bad_value(f"full: expected `value` to be a scalar, got {x.aval}")
        x = convert.convert(x, x.dtype if dtype is None else dtype)
    return broadcast_in_dim(x, check.canonical_shape("full", shape), ())


def zeros(shape: Any, dtype: Any = np.float32) -> Value:
    """An array of zeros."""
    return full(shape, 0, dtype)


def ones(shape: Any, dtype: Any = np.float32) -> Value:
    """An array of ones."""
    return full(shape, 1, dtype)


def full_like(x: ArrayLike, value: ArrayLike, dtype: Any = None) -> Value:
    """An array of the shape and dtype of `x` that holds one value everywhere."""
    like = convert.operand("full_like", "x", x)
    return full(like.shape, value, like.dtype if dtype is None else dtype)


def zeros_of(aval: ir.Aval) -> Value:
    """Zeros of a type; an axis-free one is a number on the host."""
    zero = arrays.Scalar(np.zeros((), aval.dtype), aval.weak_type)
    return broadcast_in_dim(zero, aval.shape, ())


def instantiate(t: ad.Tangent) -> Value:
    """A tangent or cotangent as a value: zeros for a symbolic zero."""
    return zeros_of(t.aval) if isinstance(t, ad.Zero) else t


# reshape


@dataclass(frozen=True)
class ReshapeParams:
    """The result's shape."""

    shape: ir.Shape


reshape_p: ir.Primitive[ReshapeParams] = ir.Primitive("reshape")


def reshape(x: ArrayLike, shape: Any) -> Value:
    """The same elements, in row-major order, in another shape; one dim may be -1.

    ValueError if the shape has another number of elements.

    >>> print(reshape(np.arange(6), (2, -1)))
    [[0 1 2]
     [3 4 5]]
    """
    value = convert.operand("reshape", "x", x)
    out = fill_in(value.shape, shape)
    if ir.same_shape(out, value.shape):
        return value
    return trace.bind1(reshape_p, value, params=ReshapeParams(out))


def fill_in(old: ir.Shape, shape: Any) -> ir.Shape:
    """The shape asked for, with a -1 replaced by what is left."""
    new = tuple(shape) if hasattr(shape, "__iter__") else (shape,)
    free = [k for k, d in enumerate(new) if ir.is_constant(d) and d == -1]
    if not free:
        return check.canonical_shape("reshape", new)
    known = check.canonical_shape("reshape", [d for k, d in enumerate(new) if k not in free])
    count, total = ir.size_of(known), ir.size_of(old)
    if len(free) > 1 or count == 0 or total % count:
        check.bad_value(
            f"reshape: cannot find the dim -1 in {new} for an array of shape {errors.shape_str(old)}"
        )
    return (*new[: free[0]], total // count, *new[free[0] + 1 :])


def reshape_aval(avals: ir.Avals, p: ReshapeParams) -> list[ir.Aval]:
    """The type of an array in another shape; ValueError if that has another number of elements."""
    (x,) = check.array_avals("reshape", avals, 1)
    if not ir.same_dim(ir.size_of(x.shape), ir.size_of(p.shape)):
        check.bad_value(
            f"reshape: expected a shape of {ir.size_of(x.shape)} elements for an array of shape "
            f"{errors.shape_str(x.shape)}, got {errors.shape_str(p.shape)}"
        )
    return [x.update(shape=p.shape)]


rules.define(
    reshape_p,
    abstract_eval=rules.pure(reshape_aval),
    cost=costs.moving_cost(reshape_aval),
    lower=lambda ctx, xs, p: [hlo.reshape(ctx.b, xs[0], p.shape)],
    jvp=linear_jvp(reshape_p),
    transpose=linear_transpose(lambda ct, aval, p: reshape(ct, aval.shape)),
    batch=batch_in_front(reshape_p, lambda p, size: ReshapeParams((size, *p.shape))),
    view=True,
)


def expand_dims(x: ArrayLike, axes: int | Sequence[int]) -> Value:
    """`x` with new axes of size 1, at these positions in the result."""
    value = convert.operand("expand_dims", "x", x)
    count = 1 if isinstance(axes, int) else len(axes)
    new = check.canonical_axes("expand_dims", axes, value.ndim + count, "axes")
    old = iter(value.shape)
    return reshape(value, [1 if k in new else next(old) for k in range(value.ndim + count)])


def squeeze(x: ArrayLike, axes: int | Sequence[int] | None = None) -> Value:
    """The array without axes of size 1: without these, or all of them."""
    value = convert.operand("squeeze", "x", x)
    ones_at = [k for k, d in enumerate(value.shape) if ir.is_one(d)]
    gone = ones_at if axes is None else check.canonical_axes("squeeze", axes, value.ndim, "axes")
    if any(k not in ones_at for k in gone):
        check.bad_value(
            f"squeeze: expected `axes` of size 1 in {errors.shape_str(value.shape)}, got {tuple(gone)}"
        )
    return reshape(value, [d for k, d in enumerate(value.shape) if k not in gone])


# transpose


@dataclass(frozen=True)
class TransposeParams:
    """Which axis of the operand each axis of the result is."""

    perm: tuple[int, ...]


transpose_p: ir.Primitive[TransposeParams] = ir.Primitive("transpose")


def transpose(x: ArrayLike, perm: Sequence[int] | None = None) -> Value:
    """Axes in another order: axis k of the result is axis `perm[k]` of `x`; reversed if None."""
    value = convert.operand("transpose", "x", x)
    order = tuple(range(value.ndim))
    axes = (
        order[::-1] if perm is None else check.canonical_axes("transpose", perm, value.ndim, "axes")
    )
    if axes == order:
        return value
    return trace.bind1(transpose_p, value, params=TransposeParams(axes))


def _transpose_aval(avals: ir.Avals, p: TransposeParams) -> list[ir.Aval]:
    (x,) = check.array_avals("transpose", avals, 1)
    if sorted(p.perm) != list(range(x.ndim)):
        check.bad_value(f"transpose: expected `perm` to name each axis of {x} once, got {p.perm}")
    return [x.update(shape=tuple(x.shape[k] for k in p.perm))]


def inverse(perm: Sequence[int]) -> tuple[int, ...]:
    """The permutation that undoes another."""
    return tuple(sorted(range(len(perm)), key=perm.__getitem__))


def _transpose_batch(
    size: int, operands: ad.Values, dims: ad.BatchAxes, p: TransposeParams
) -> ad.Batched:
    (d,) = dims
    assert d is not None, "unreachable: the one operand is batched"
    return [transpose(operands[0], (d, *past(p.perm, d)))], [0]


rules.define(
    transpose_p,
    abstract_eval=rules.pure(_transpose_aval),
    cost=costs.moving_cost(_transpose_aval),
    lower=lambda ctx, xs, p: [hlo.transpose(ctx.b, xs[0], p.perm)],
    jvp=linear_jvp(transpose_p),
    transpose=linear_transpose(lambda ct, aval, p: transpose(ct, inverse(p.perm))),
    batch=_transpose_batch,
    view=True,
)


# reduce_sum


@dataclass(frozen=True)
class ReduceParams:
    """The axes that are combined and disappear."""

    axes: tuple[int, ...]


reduce_sum_p: ir.Primitive[ReduceParams] = ir.Primitive("reduce_sum")


def reduce_sum(x: ArrayLike, axes: Any = None) -> Value:
    """The sum over `axes`, or over all; the axes disappear. The dtype stays (bools count as int32).

    >>> x = np.arange(6.0).reshape(2, 3)
    >>> print(reduce_sum(x, 0), reduce_sum(x), reduce_sum(x > 1))
    [3. 5. 7.] 15.0 4
    """
    return bind_reduction(
        reduce_sum_p, convert.counted(convert.operand("reduce_sum", "x", x)), axes
    )


def bind_reduction(prim: ir.Primitive[ReduceParams], x: Value, axes: Any) -> Value:
    """Combine the elements along `axes`, or along all; an array as it is along none."""
    over = check.canonical_axes(prim.name, axes, x.ndim, "axes")
    return trace.bind1(prim, x, params=ReduceParams(over)) if over else x


def reduced_aval(fun: str, x: ir.ShapedArray, axes: Sequence[int]) -> ir.ShapedArray:
    """The type of a reduction's result, after a check of its axes."""
    if any(not 0 <= k < x.ndim for k in axes) or len(set(axes)) != len(axes):
        check.bad_value(f"{fun}: expected distinct axes of {x}, got {tuple(axes)}")
    return x.update(shape=tuple(d for k, d in enumerate(x.shape) if k not in axes))


def restore_axes(x: Value, shape: ir.Shape, axes: Sequence[int]) -> Value:
    """Repeat a reduction's result along the axes that it combined, to the operand's shape."""
    return broadcast_in_dim(x, shape, [k for k in range(len(shape)) if k not in axes])


def batch_reduction(prim: ir.Primitive[Any]) -> rules.Batch:
    """The batching rule of a reduction: the same over axes counted without the batch axis."""

    def rule(size: int, operands: ad.Values, dims: ad.BatchAxes, p: Any) -> ad.Batched:
        (d,) = dims
        assert d is not None, "unreachable: the one operand is batched"
        axes = past(p.axes, d)
        out = trace.bind1(prim, *operands, params=replace(p, axes=axes))
        return [out], [d - sum(k < d for k in axes)]

    return rule


def define_reduction(
    prim: ir.Primitive[ReduceParams],
    kind: str,
    kinds: str,
    jvp: rules.Jvp,
    transpose: rules.Transpose | rules.Refusal = rules.NOT_LINEAR,
) -> None:
    """Fill the row of a reduction by the monoid `kind`, of arrays of these kinds of dtype."""

    def abstract_eval(avals: ir.Avals, p: ReduceParams) -> list[ir.Aval]:
        (x,) = check.array_avals(prim.name, avals, 1)
        check.check_kind(prim.name, x, kinds)
        return [reduced_aval(prim.name, x, p.axes)]

    def lower(ctx: Any, xs: hlo.IRValues, p: ReduceParams) -> list[hlo.IRValue]:
        (x,) = xs
        wide = hlo.convert(ctx.b, x, arrays.wide_for_sums(x.dtype)) if kind in ("add", "mul") else x
        return [hlo.convert(ctx.b, hlo.reduce(ctx.b, wide, p.axes, kind), x.dtype)]

    rules.define(
        prim,
        abstract_eval=rules.pure(abstract_eval),
        cost=costs.reduction_cost,
        lower=lower,
        jvp=jvp,
        transpose=transpose,
        batch=batch_reduction(prim),
    )


define_reduction(
    reduce_sum_p,
    "add",
    "iufc",
    linear_jvp(reduce_sum_p),
    linear_transpose(lambda ct, aval, p: restore_axes(ct, aval.shape, p.axes)),
)


# helpers of batching rules


def move_axis(x: Value, source: int, destination: int) -> Value:
    """The axis at `source` moved to `destination`; the others keep their order.

    Both may count from the end.

    >>> move_axis(as_value(np.ones((2, 3, 4))), 0, -1).shape
    (3, 4, 2)
    """
    start = check.canonical_axis("move_axis", source, x.ndim, "source")
    end = check.canonical_axis("move_axis", destination, x.ndim, "destination")
    if start == end:
        return x
    perm = [k for k in range(x.ndim) if k != start]
    perm.insert(end, start)
    return transpose(x, perm)


def bdim_at(x: Value, dim: int | None, size: ir.Dim, place: int) -> Value:
    """An operand with its batch axis at `place`; one without gets it by repetition."""
    if dim is not None:
        return x if dim == place else move_axis(x, dim, place)
    shape = (*x.shape[:place], size, *x.shape[place:])
    return broadcast_in_dim(x, shape, [k for k in range(len(shape)) if k != place])
