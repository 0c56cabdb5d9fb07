"""Gradients, Jacobians and Hessians as functions; Jacobians in all directions at once or in chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import Any

import numpy as np

from fiveloop.core import ad, arrays, ir, prims, pytree, trace, transforms
from fiveloop.core.api import derivative_types, flatten
from fiveloop.core.api.arguments import Argnums, Differentiation
from fiveloop.core.api.flat_function import FlatFunction
from fiveloop.core.arrays import Value


@derivative_types.public(derivative_types.ValueAndGradient)  # type: ignore[type-abstract]  # it is a type alone
def value_and_grad(
    fun: Callable[..., Any],
    argnums: Argnums = 0,
    *,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[..., Any]:
    """A function that returns the value of `fun` and its gradient with respect to the arguments `argnums`.

    `fun` must return a float scalar, or with `has_aux` a pair of one and anything else, arrays or not.
    The gradient has the structure, shapes and dtypes of the argument; for several argnums it is a tuple. With
    `holomorphic` arguments and result are complex, and the gradient is the complex derivative. With `allow_int`
    arguments may be integers, whose gradients are zeros of their own dtype.

    Raises TypeError if an argument to differentiate is not floating, or if the result is not one float scalar;
    ValueError if `argnums` names no argument.

    >>> value_and_grad(lambda x: x**2)(3.0)
    (Array(9., dtype=float32, weak_type=True), Array(6., dtype=float32))
    """
    return _both("value_and_grad", fun, argnums, has_aux, holomorphic, allow_int)


def _both(
    what: str, fun: Callable[..., Any], argnums: Argnums, *options: bool
) -> Callable[..., Any]:
    """`value_and_grad`, or that part of `grad`, which messages name."""
    flatten.check_callable(what, fun)
    asked = Differentiation(what, fun, argnums, *options)

    @wraps(fun)
    @trace.guarded
    def value_and_grad_fun(*args: Any, **kwargs: Any) -> Any:
        flat, values = asked.choose(args, kwargs)
        outs, linear = flat.linearized(values, fun)
        cts = [_unit_cotangent(asked, flat, outs), *map(transforms.zero_like, outs[1:])]
        in_cts = linear.pull_back([x.aval for x in values], cts)
        leaves = [flatten.as_result(transforms.instantiate(ct)) for ct in in_cts]
        return flat.results(outs), asked.one(pytree.tree_unflatten(flat.in_tree, leaves)[0])

    return value_and_grad_fun


@derivative_types.public(derivative_types.Gradient)  # type: ignore[type-abstract]  # it is a type alone
def grad(
    fun: Callable[..., Any],
    argnums: Argnums = 0,
    *,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[..., Any]:
    """A function that returns the gradient of `fun` with respect to the arguments `argnums`.

    As `value_and_grad`; with `has_aux` it returns a pair of the gradient and the auxiliary result.

    >>> grad(lambda x: x**2)(3.0)
    Array(6., dtype=float32)
    """
    both = _both("grad", fun, argnums, has_aux, holomorphic, allow_int)

    @wraps(fun)
    @trace.guarded
    def grad_fun(*args: Any, **kwargs: Any) -> Any:
        value, grads = both(*args, **kwargs)
        return (grads, value[1]) if has_aux else grads

    return grad_fun


def _unit_cotangent(asked: Differentiation, flat: FlatFunction, outs: ad.Values) -> ad.Tangent:
    if flat.num_outs != 1:
        raise TypeError(
            f"{asked.of}: it must return one float scalar, got {flat.num_outs or 'no'} arrays; use `vjp` for other "
            f"results, or has_aux=True for a pair"
        )
    aval = outs[0].aval
    if aval.accumulates:
        raise TypeError(
            f"{asked.of}: it must return one float scalar, got {aval}; read a Ref first: `ref[...]`"
        )
    if asked.holomorphic and (aval.shape or aval.dtype.kind != "c"):
        raise TypeError(
            f"{asked.of}: with holomorphic=True it must return one complex scalar, got {aval}; leave holomorphic out "
            f"for a real result"
        )
    if aval.shape or not aval.differentiable or (aval.dtype.kind == "c" and not asked.holomorphic):
        raise TypeError(
            f"{asked.of}: it must return one float scalar, got {aval}; reduce it, or use `vjp`"
        )
    return arrays.Scalar(np.array(1, aval.dtype))


Cells = tuple[Sequence[ad.Values], ad.Values]
"""For each result the Jacobian with respect to each argument leaf; and the auxiliary results."""


@derivative_types.public(derivative_types.Jacobian)  # type: ignore[type-abstract]  # it is a type alone
def jacfwd(
    fun: Callable[..., Any],
    argnums: Argnums = 0,
    *,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    chunk: int | None = None,
) -> Callable[..., Any]:
    """A function that returns the Jacobian of `fun`, column by column: forward mode, for few inputs.

    The Jacobian has the structure of the result, with that of the argument in place of each leaf (a tuple of them
    for several argnums); its arrays have the shape of the result, then that of the argument. With `has_aux` it
    returns a pair of the Jacobian and the auxiliary result. `chunk` is the number of tangents that are pushed forward
    at a time, by default all: smaller chunks take less memory, but `fun` runs once for each. With `allow_int`
    arguments may be integers, whose derivatives are zeros of their own dtype.

    >>> jacfwd(lambda x: x**2)(np.arange(2.0, dtype="float32"))
    Array([[0., 0.],
           [0., 2.]], dtype=float32)
    """
    how = (argnums, has_aux, holomorphic, allow_int)
    return _jacobian(Differentiation("jacfwd", fun, *how, real=True), chunk, _by_columns)


def _by_columns(
    asked: Differentiation, flat: FlatFunction, values: ad.Values, chunk: int | None
) -> Cells:
    """The Jacobian by forward mode."""
    lanes: list[Callable[[], Value]] = []

    def push(*dots: Value) -> list[Value]:
        moved = [
            dot if x.aval.differentiable else transforms.zero_like(x)
            for x, dot in zip(values, dots, strict=True)
        ]
        outs, outs_dot = transforms.jvp_flat(flat, values, moved, asked.fun)
        flat.check_arrays(outs)
        lanes[:] = map(_of_one_lane, outs[flat.num_outs :])
        return [transforms.instantiate(t) for t in outs_dot[: flat.num_outs]]

    columns = _all_directions(push, values, chunk, asked.fun, side=-1)
    aux = [lane() for lane in lanes]
    flat.give_back(aux)
    # columns : for each result, [*result, all tangents]
    cells = [
        [_slope(y, x.aval) for x, y in zip(values, _cut(column, values, first=False), strict=True)]
        for column in columns
    ]
    return cells, aux


@derivative_types.public(derivative_types.Jacobian)  # type: ignore[type-abstract]  # it is a type alone
def jacrev(
    fun: Callable[..., Any],
    argnums: Argnums = 0,
    *,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    chunk: int | None = None,
) -> Callable[..., Any]:
    """A function that returns the Jacobian of `fun`, row by row: reverse mode, for few results.

    The Jacobian is that of `jacfwd`. `fun` runs once; `chunk` is the number of cotangents that are pulled back at a
    time, by default all.

    >>> jacrev(lambda x: x**2)(np.arange(2.0, dtype="float32"))
    Array([[0., 0.],
           [0., 2.]], dtype=float32)
    """
    asked = Differentiation("jacrev", fun, argnums, has_aux, holomorphic, allow_int)
    return _jacobian(asked, chunk, _by_rows)


def _by_rows(
    asked: Differentiation, flat: FlatFunction, values: ad.Values, chunk: int | None
) -> Cells:
    """The Jacobian by reverse mode."""
    outs, linear = flat.linearized(values, asked.fun)
    flat.check_arrays(outs)
    results, aux = outs[: flat.num_outs], outs[flat.num_outs :]
    for x in results:
        if asked.holomorphic != (x.dtype.kind == "c") and x.aval.differentiable:
            kind = "complex with holomorphic=True" if asked.holomorphic else "real"
            raise TypeError(
                f"{asked.of}: its results must be {kind}, got {x.aval}; say whether it is holomorphic, or use `vjp`"
            )

    def pull(*cts: Value) -> list[Value]:
        given: list[ad.Tangent] = [*cts, *map(transforms.zero_like, aux)]
        slopes = linear.pull_back([x.aval for x in values], given)
        return [*map(transforms.instantiate, slopes)]

    rows = _all_directions(pull, results, chunk, asked.fun, side=0)
    # rows : for each argument, [all cotangents, *argument]
    by_argument = [_cut(x, results, first=True) for x in rows]
    return [[_slope(row[k], x.aval) for row in by_argument] for k, x in enumerate(results)], aux


def _jacobian(
    asked: Differentiation,
    chunk: int | None,
    cells_of: Callable[[Differentiation, FlatFunction, ad.Values, int | None], Cells],
) -> Callable[..., Any]:
    """A function that gives the Jacobian, by columns or by rows."""
    flatten.check_callable(asked.what, asked.fun)
    if chunk is not None and chunk < 1:
        raise ValueError(f"{asked.what}: chunk must be an integer of at least 1, got {chunk!r}")

    @wraps(asked.fun)
    @trace.guarded
    def jacobian_fun(*args: Any, **kwargs: Any) -> Any:
        flat, values = asked.choose(args, kwargs)
        cells, aux = cells_of(asked, flat, values, chunk)
        # The cells, by result and argument leaf, as the result's tree of the arguments' trees.
        rows = [[flatten.as_result(x) for x in row] for row in cells]
        inner = [asked.one(pytree.tree_unflatten(flat.in_tree, row)[0]) for row in rows]
        assert flat.out_tree is not None, "unreachable: the function has run"
        jacobian = pytree.tree_unflatten(flat.out_tree, inner)
        return (jacobian, flat.unflatten_aux(aux)) if asked.has_aux else jacobian

    return jacobian_fun


@derivative_types.public(derivative_types.SecondDerivatives)  # type: ignore[type-abstract]  # it is a type alone
def hessian(
    fun: Callable[..., Any],
    argnums: Argnums = 0,
    *,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    chunk: int | None = None,
) -> Callable[..., Any]:
    """A function that returns the second derivatives of `fun`: forward mode over reverse mode.

    The result is the Jacobian of the Jacobian; for a scalar result and one array argument its shape is that of the
    argument, twice. `chunk` is the number of tangents that are pushed through the gradient at a time.

    Raises TypeError if an argument to differentiate is not floating.

    >>> hessian(lambda x: (x**3).sum())(np.arange(2.0, dtype="float32"))
    Array([[0., 0.],
           [0., 6.]], dtype=float32)
    """
    how = (argnums, has_aux, holomorphic, allow_int)
    first = _jacobian(Differentiation("hessian", fun, *how), chunk, _by_rows)
    return _jacobian(Differentiation("hessian", first, *how, real=True), chunk, _by_columns)


def _all_directions(
    push: Callable[..., ad.Values], along: ad.Values, chunk: int | None, fun: object, side: int
) -> list[Value]:
    """A derivative in every direction of `along`, with the directions along the axis `side` of each result."""
    total = sum([ir.size_of(x.shape) for x in along])
    step = chunk or max(total, 1)
    starts = range(0, max(total, 1), step)
    parts: list[list[Value]] = []
    for start in starts:
        size = min(step, total - start)
        outs, dims = transforms.batch_directions(push, size, [*_basis(start, size, along)], fun)
        sides = [side % (x.ndim + (d is None)) for x, d in zip(outs, dims, strict=True)]
        found = zip(outs, dims, sides, strict=True)
        parts.append([transforms.move_batch(x, size, d, to) for x, d, to in found])
    return [
        prims.concatenate(list(pieces), side % pieces[0].ndim) if len(pieces) > 1 else pieces[0]
        for pieces in zip(*parts, strict=True)
    ]


def _basis(start: int, size: int, along: ad.Values) -> Iterator[Value]:
    """Unit vectors number `start` and on, `size` of them, each cut into the shapes of `along`."""
    offset = -start
    for x in along:
        count = ir.size_of(x.shape)
        if not x.aval.differentiable:
            yield transforms.zeros_of(x.aval.batched(size))
        else:
            rows, columns = (prims.iota(np.int32, (size, count), axis) for axis in (0, 1))
            ones = prims.convert(prims.equal(rows, columns + offset), x.dtype)
            yield prims.reshape(ones, (size, *x.shape))
        offset += count


def _of_one_lane(x: Value) -> Callable[[], Value]:
    """How to get, after the batch, a value that is the same in all lanes."""
    if not isinstance(x, transforms.BatchTracer) or x.owner is not trace.current_trace():
        return lambda: x
    whole, dim = x.value, x.dim
    return lambda: whole[(*[slice(None)] * dim, 0)]


def _cut(x: Value, along: ad.Values, first: bool) -> list[Value]:
    """The blocks of all directions, which lie along the first or last axis of `x`, each in its own shape."""
    blocks, start = [], 0
    for each in along:
        stop = start + ir.size_of(each.shape)
        block, rest = (x[start:stop], x.shape[1:]) if first else (x[..., start:stop], x.shape[:-1])
        shape = (*each.shape, *rest) if first else (*rest, *each.shape)
        blocks.append(prims.reshape(block, shape))
        start = stop
    return blocks


def _slope(block: Value, of: ir.Aval) -> Value:
    """A block of the Jacobian; that of an integer argument or result is zero in its own dtype, as its tangents are."""
    return (
        block if of.differentiable else transforms.zeros_of(ir.ShapedArray(block.shape, of.dtype))
    )
