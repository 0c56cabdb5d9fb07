"""`dot_general`: products summed over contracted axes, and the matrix products made of it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import reduce
from typing import Any

import numpy as np

from fiveloop.core import ad, ir, rules, trace
from fiveloop.core.arrays import ArrayLike, Value
from fiveloop.core.backend import hlo
from fiveloop.core.dataclass import dataclass, replace
from fiveloop.core.primitives import broadcast, check, convert, elementwise

Axes = tuple[int, ...]
DimensionNumbers = tuple[tuple[Sequence[int], Sequence[int]], tuple[Sequence[int], Sequence[int]]]


@dataclass(frozen=True)
class DotParams:
    """Which axes of the left and right operand are contracted, which go along, and the result's dtype.

    `out_dtype` None keeps the operands' dtype; `precision` is DEFAULT, HIGH or HIGHEST.
    """

    contract: tuple[Axes, Axes]
    batch: tuple[Axes, Axes] = ((), ())
    out_dtype: np.dtype[Any] | None = None
    precision: str | None = None

    def free(self, side: int, rank: int) -> Axes:
        """The axes of an operand that are neither contracted nor go along."""
        used = {*self.contract[side], *self.batch[side]}
        return tuple(k for k in range(rank) if k not in used)


MATMUL_PRECISION: trace.Setting[str | None] = trace.Setting("default_matmul_precision", None)
PRECISIONS = {
    **dict.fromkeys(("default", "fastest", "bfloat16"), "DEFAULT"),
    **dict.fromkeys(("high", "bfloat16_3x", "tensorfloat32"), "HIGH"),
    **dict.fromkeys(("highest", "float32"), "HIGHEST"),
}


def default_matmul_precision(precision: str | None) -> AbstractContextManager[None]:
    """Within the block, matrix products that name no precision of their own have this one.

    It is "default" (or "fastest"), "high" or "highest", or the name of the dtype that is computed in: "bfloat16",
    "bfloat16_3x", "tensorfloat32" or "float32"; ValueError for another. On a CPU all are the same.

    >>> from fiveloop.core import jit
    >>> with default_matmul_precision("highest"):
    ...     text = jit(lambda x: x @ x).lower(np.ones((2, 2), "float32")).as_text()
    >>> "HIGHEST" in text
    True
    """
    if precision is not None and precision not in PRECISIONS:
        check.bad_value(
            f"default_matmul_precision: expected one of {', '.join(map(repr, PRECISIONS))} or None, got {precision!r}"
        )
    return MATMUL_PRECISION.to(None if precision is None else PRECISIONS[precision])


dot_general_p: ir.Primitive[DotParams] = ir.Primitive("dot_general")


def dot_general(
    x: ArrayLike,
    y: ArrayLike,
    dimension_numbers: DimensionNumbers,
    preferred_element_type: Any = None,
    precision: str | None = None,
) -> Value:
    """Products of `x` and `y` summed over the contracted axes.

    `dimension_numbers` is `((contract_x, contract_y), (batch_x, batch_y))`. The result has the batch
    axes first, then the free axes of `x`, then those of `y`.
    """
    a, b = convert.promote("dot_general", x, y)
    (cx, cy), (bx, by) = dimension_numbers
    axes = [
        check.canonical_axes("dot_general", given, value.ndim, "dimension_numbers")
        for given, value in ((cx, a), (cy, b), (bx, a), (by, b))
    ]
    out = None if preferred_element_type is None else np.dtype(preferred_element_type)
    if out == a.dtype:
        out = None
    chosen = precision or MATMUL_PRECISION.value
    params = DotParams((axes[0], axes[1]), (axes[2], axes[3]), out, chosen)
    return trace.bind1(dot_general_p, a, b, params=params)


def _dot_aval(avals: ir.Avals, p: DotParams) -> list[ir.Aval]:
    x, y = check.array_avals("dot_general", avals, 2)
    check.check_kind("dot_general", x, "biufc")
    if x.dtype != y.dtype:
        check.bad_type(f"dot_general: expected operands of one dtype, got {x} and {y}")
    for what, (of_x, of_y) in (("contracted", p.contract), ("batch", p.batch)):
        sizes_x, sizes_y = [x.shape[k] for k in of_x], [y.shape[k] for k in of_y]
        if len(of_x) != len(of_y) or not all(map(ir.same_dim, sizes_x, sizes_y)):
            check.bad_value(
                f"dot_general: expected {what} axes of equal sizes, got axes {of_x} of {x} "
                f"and axes {of_y} of {y}"
            )
    for side, aval in enumerate((x, y)):
        if {*p.contract[side]} & {*p.batch[side]}:
            check.bad_value(
                f"dot_general: an axis of {aval} is both contracted and a batch axis: {p}"
            )
    return [_product_aval(x, y, p)]


def _product_aval(x: ir.Aval, y: ir.Aval, p: DotParams) -> ir.Aval:
    left = [x.shape[k] for k in (*p.batch[0], *p.free(0, x.ndim))]
    shape = (*left, *[y.shape[k] for k in p.free(1, y.ndim)])
    weak = x.weak_type and y.weak_type and p.out_dtype is None
    return ir.ShapedArray(shape, x.dtype if p.out_dtype is None else p.out_dtype, weak)


LANES, LEAST_TERMS, MOST_ELEMENTS, LEAST_TURNS = 16, 4, 8192, 64
"""Of a matrix of float32 that a loop multiplies with vectors: what divides its rows, its terms at least, its elements
at most; and the turns of the loop from which on it pays to transpose it before.

If it has no more terms than rows, XLA on CPU takes .2 to .9 of the time then. Measured on two versions of jaxlib with
40 matrices, of 8 x 4 to 1024 x 64, and loops of 4 to 128 turns.
"""


MOST_VECTORS, LEAST_ROWS, MOST_OF_SEVERAL, LEAST_TURNS_OF_SEVERAL = 32, 8, 1 << 15, 16
"""The same of a matrix that is multiplied with several vectors at once, the rows of another: so many at most.

XLA on CPU takes .4 to 1.0 of the time then, .84 in the median, and with more vectors as long as before. Measured on two
versions of jaxlib with 22 matrices, of 4 x 64 to 1024 x 256, 2 to 256 vectors, and loops of 4 to 256 turns. A larger
matrix is not worth its bytes: with one of 128 x 512, the gradient of an LSTM takes .95 to 1.02 of the time.
"""


LEAST_SUMMED, LEAST_KEPT, LEAST_COPIED = 32, 24, 1024
"""Of a transpose that is multiplied with a vector: its terms, its rows and its elements at least, to be left out.

XLA on CPU copies the transpose. With the matrix that it is the transpose of, loops take about the same time at 40 x 40,
.4 of it at 64 x 64 and .1 at 256 x 256; smaller ones become part of one kernel with what is around them. Measured on
two versions of jaxlib with 60 matrices, of 5 x 4 to 1000 x 1000, in loops and outside of them.
"""


def _dot_lower(ctx: Any, xs: hlo.IRValues, p: DotParams) -> list[hlo.IRValue]:
    """A product; in a loop, that of vectors with a matrix from outside of it may take the matrix transposed."""
    out = ctx.avals_out[0].dtype
    if ctx.platform == "cpu":
        xs, p = without_transpose(xs, p)
    found = better_transposed(xs, p) if ctx.platform == "cpu" else None
    if found is not None:
        side, least = found
        vectors, matrix = xs[1 - side], xs[side]
        turned = ctx.b.before_loops(matrix, "transposed", least, lambda: _turned(ctx.b, matrix))
        if turned is not None:
            last = len(vectors.shape) - 1
            return [
                hlo.dot_general(ctx.b, vectors, turned, (), (), (last,), (0,), out, p.precision)
            ]
    x, y = xs
    return [hlo.dot_general(ctx.b, x, y, *p.batch, *p.contract, out, p.precision)]


def without_transpose(xs: Sequence[Any], p: DotParams) -> tuple[Sequence[Any], DotParams]:
    """A product of vectors with a transpose: as one with the matrix that it is the transpose of, if that is better."""
    for side in (1, 0):
        vectors, matrix = xs[1 - side], xs[side].transposed
        if matrix is None or any(p.batch) or len(p.contract[side]) != 1:
            continue
        summed = 1 - p.contract[side][0]
        free = [vectors.shape[k] for k in p.free(1 - side, len(vectors.shape))]
        if _is_better_flat(free, matrix.shape, summed):
            contract, operands = [*p.contract], [*xs]
            contract[side], operands[side] = (summed,), matrix
            return operands, replace(p, contract=(contract[0], contract[1]))
    return xs, p


def _is_better_flat(vectors: Sequence[int], shape: ir.Shape, summed: int) -> bool:
    """Whether a matrix is better multiplied with so many vectors as it lies in memory than its transpose is.

    With several, XLA does so itself, but a matrix of which rows are summed may be faster transposed before a loop.
    """
    terms, kept = shape[summed], shape[1 - summed]
    if vectors and summed == 1:
        return len(vectors) == 1
    is_large = terms >= LEAST_SUMMED and kept >= LEAST_KEPT and terms * kept >= LEAST_COPIED
    return is_large and all(n == 1 for n in vectors)


def better_transposed(xs: Sequence[Any], p: DotParams) -> tuple[int, int] | None:
    """Which operand of a product is a matrix that is better transposed before a loop of so many turns; None if none is.

    The operands may be anything with a shape and a dtype.
    """
    side = int(len(xs[1].shape) >= len(xs[0].shape))
    vectors, matrix = xs[1 - side], xs[side]
    if len(matrix.shape) != 2 or matrix.dtype != np.float32 or any(p.batch) or p.out_dtype:
        return None
    several = vectors.shape[:-1]
    if (p.contract[1 - side], p.contract[side]) != ((len(several),), (1,)):
        return None
    rows, terms = matrix.shape
    if not several:
        fits = rows % LANES == 0 and LEAST_TERMS <= terms <= rows and rows * terms <= MOST_ELEMENTS
        return (side, LEAST_TURNS) if fits else None
    fits = several[0] <= MOST_VECTORS and rows >= LEAST_ROWS and rows * terms <= MOST_OF_SEVERAL
    return (side, LEAST_TURNS_OF_SEVERAL) if fits else None


def _turned(b: hlo.Builder, x: hlo.IRValue) -> hlo.IRValue:
    """A matrix transposed; jaxlib 0.12 would make it twice, by columns and then by rows, if it were never flat."""
    rows, terms = x.shape
    flat = hlo.reshape(b, hlo.transpose(b, x, (1, 0)), (rows * terms,))
    return hlo.reshape(b, hlo.optimization_barrier(b, [flat])[0], (terms, rows))


def _dot_jvp(primals: ad.Values, tangents: ad.Tangents, p: DotParams) -> ad.Duals:
    (x, y), (t, u) = primals, tangents
    out = trace.bind1(dot_general_p, x, y, params=p)
    if not out.aval.differentiable:
        return [out], [ad.Zero(out.aval.tangent())]
    given = [(a, b) for a, b in ((t, y), (x, u)) if isinstance(a, Value) and isinstance(b, Value)]
    parts = [trace.bind1(dot_general_p, a, b, params=p) for a, b in given]
    return [out], [reduce(elementwise.add, parts)]


def _dot_transpose(cts: ad.Tangents, operands: ad.Operands, p: DotParams) -> ad.Cotangents:
    (ct,), (x, y) = cts, operands
    assert isinstance(ct, Value), "unreachable: the only cotangent is not zero"
    if isinstance(y, Value):
        return [_transposed(ct, y, x.aval, p, 0), None]
    return [None, _transposed(ct, check.known_factor("dot_general", x), y.aval, p, 1)]


def _transposed(ct: Value, other: Value, aval: ir.Aval, p: DotParams, side: int) -> Value:
    """Contract the cotangent with the other operand over that one's free axes, and restore the order.

    The product is taken in the order that leaves the axes where they belong, if either does.
    """
    other_side = 1 - side
    free, free_other = p.free(side, aval.ndim), p.free(other_side, other.ndim)
    nb = len(p.batch[0])
    # ct : [*batch, *free of x, *free of y]
    start = nb if side == 1 else nb + len(free)
    ct_axes = tuple(range(start, start + len(free_other)))
    batch = tuple(range(nb))
    wide = None if ct.dtype == other.dtype else ct.dtype
    # What is left of the other operand: its contracted axes, in the order in which they lie there.
    order = sorted(range(len(p.contract[side])), key=p.contract[other_side].__getitem__)
    contracted = [p.contract[side][k] for k in order]
    places = [*p.batch[side], *free, *contracted]
    in_place = list(range(aval.ndim))
    if places != in_place == [*p.batch[side], *contracted, *free]:
        numbers = ((free_other, ct_axes), (p.batch[other_side], batch))
        return convert.convert_back(dot_general(other, ct, numbers, wide, p.precision), aval.dtype)
    out = dot_general(
        ct, other, ((ct_axes, free_other), (batch, p.batch[other_side])), wide, p.precision
    )
    return convert.convert_back(
        broadcast.transpose(out, [places.index(k) for k in range(aval.ndim)]), aval.dtype
    )


def _dot_batch(size: int, operands: ad.Values, dims: ad.BatchAxes, p: DotParams) -> ad.Batched:
    (x, y), (dx, dy) = operands, dims
    contract = (broadcast.past(p.contract[0], dx), broadcast.past(p.contract[1], dy))
    batch = (broadcast.past(p.batch[0], dx), broadcast.past(p.batch[1], dy))
    if dx is not None and dy is not None:
        both = replace(p, contract=contract, batch=((dx, *batch[0]), (dy, *batch[1])))
        return [trace.bind1(dot_general_p, x, y, params=both)], [0]
    # A batch axis of one operand only is one more free axis of it.
    one = replace(p, contract=contract, batch=batch)
    place = len(batch[0])
    if one.free(1, y.ndim) == (dy,):
        # Vectors on the right go to the left, as rows: so the batch axis comes first, and nothing is transposed.
        x, y, dx, dy = y, x, dy, dx
        one = replace(one, contract=contract[::-1], batch=batch[::-1])
    out = trace.bind1(dot_general_p, x, y, params=one)
    if dx is not None:
        return [out], [place + one.free(0, x.ndim).index(dx)]
    assert dy is not None, "unreachable: some operand is batched"
    return [out], [place + len(one.free(0, x.ndim)) + one.free(1, y.ndim).index(dy)]


def _dot_cost(avals: ir.Avals, p: DotParams) -> rules.Cost:
    out = _product_aval(avals[0], avals[1], p)
    flops = 2 * ir.size_of(out.shape) * ir.size_of([avals[0].shape[k] for k in p.contract[0]])
    return rules.Cost(flops, ir.bytes_of([*avals, out]))


rules.define(
    dot_general_p,
    abstract_eval=rules.pure(_dot_aval),
    lower=_dot_lower,
    jvp=_dot_jvp,
    transpose=_dot_transpose,
    batch=_dot_batch,
    cost=_dot_cost,
)


def dot(x: ArrayLike, y: ArrayLike) -> Value:
    """The product of two vectors or matrices: the last axis of `x` with the first of `y`."""
    a, b = convert.promote("dot", x, y)
    if not 1 <= a.ndim <= 2 or not 1 <= b.ndim <= 2:
        check.bad_value(f"dot: expected vectors or matrices, got {a.aval} and {b.aval}")
    return dot_general(a, b, (((a.ndim - 1,), (0,)), ((), ())))


def matmul(x: ArrayLike, y: ArrayLike, preferred_element_type: Any = None) -> Value:
    """The matrix product under NumPy's rules: the last two axes multiply, those before broadcast."""
    a, b = convert.promote("matmul", x, y)
    if a.ndim == 0 or b.ndim == 0:
        check.bad_value(
            f"matmul: expected arrays with axes, got {a.aval} and {b.aval}; use `*` for scalars"
        )
    inner_a, inner_b = a.shape[-1], b.shape[max(b.ndim - 2, 0)]
    if not ir.same_dim(inner_a, inner_b):
        check.bad_value(
            f"matmul: expected inner sizes that agree, got {inner_a} and {inner_b} in {a.aval} @ {b.aval}"
        )
    check.common_shape("matmul", [a.shape[:-2], b.shape[:-2]])
    a, labels_a = _labelled(a, b, "m", -1)
    b, labels_b = _labelled(b, a, "n", -2)
    along = [k for k in labels_a if k in labels_b and k != "k"]
    batch = ([labels_a.index(k) for k in along], [labels_b.index(k) for k in along])
    contract = ([labels_a.index("k")], [labels_b.index("k")])
    out = dot_general(a, b, (contract, batch), preferred_element_type)
    free = [k for k in [*labels_a, *labels_b] if k not in along and k != "k"]
    labels = [*along, *free]
    return broadcast.transpose(out, [labels.index(k) for k in sorted(labels, key=_label_order)])


def _labelled(x: Value, other: Value, free: str, inner: int) -> tuple[Value, list[str]]:
    """An operand of `matmul` with a label per axis; axes of size 1 that broadcast are taken away.

    Leading axes are labelled by their place from the end, so that those of both operands meet.
    """
    if x.ndim == 1:
        return x, ["k"]
    lead, lead_other = x.shape[:-2], other.shape[:-2]
    pair = [free, "k"] if inner == -1 else ["k", free]
    repeated = [
        k
        for k in range(len(lead))
        if ir.is_one(lead[k]) and len(lead) - k <= len(lead_other)
        if not ir.is_one(lead_other[k - len(lead)])
    ]
    labels = [str(len(lead) - k) for k in range(len(lead)) if k not in repeated]
    return broadcast.squeeze(x, repeated), [*labels, *pair]


def _label_order(label: str) -> tuple[int, int]:
    """Leading axes from the left, then the rows, then the columns."""
    return (0, -int(label)) if label.isdigit() else ("mn".index(label) + 1, 0)
