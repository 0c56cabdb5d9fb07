"""Jacobians and Hessians: jacfwd, jacrev and hessian, all directions at once or in chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import Any

import numpy as np

from fiveloop.core.api.arguments import Argnums, Chosen, Differentiation
from fiveloop.core.api.derivative_types import as_jacobian, as_second_derivatives
from fiveloop.core.api.flatten import FlatFunction, as_result, check_callable
from fiveloop.core.api.pullback import pull_back
from fiveloop.core.array import Value
from fiveloop.core.dims import size_of
from fiveloop.core.errors import at_source
from fiveloop.core.ir.avals import Aval, ShapedArray
from fiveloop.core.primitives.convert import convert
from fiveloop.core.primitives.elementwise import equal
from fiveloop.core.primitives.shape import concatenate, iota, reshape
from fiveloop.core.pytree import tree_unflatten
from fiveloop.core.trace.boundary import guarded
from fiveloop.core.trace.tracer import current_source, current_trace
from fiveloop.core.transforms.batch import BatchTracer, move_batch
from fiveloop.core.transforms.directions import batch_directions
from fiveloop.core.transforms.jvp import jvp_flat
from fiveloop.core.transforms.linearize import linearize_flat
from fiveloop.core.transforms.zeros import Tangent, instantiate, zero_like, zeros_of

Pushed = Callable[..., Sequence[Value]]
"""A derivative on leaves: from tangents to tangents, or from cotangents to cotangents."""


@as_jacobian
def jacfwd(
    fun: Callable[..., Any],
    argnums: Argnums = 0,
    *,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    chunk: int | None = None,
) -> Callable[..., Any]:
    """A function that gives the Jacobian of `fun`, column by column: forward mode, for few inputs.

    The Jacobian has the structure of the result, with that of the argument in place of each leaf (a tuple of them
    for several argnums); its arrays have the shape of the result, then that of the argument. With `has_aux` it
    gives a pair of the Jacobian and the auxiliary result. `chunk` tangents are pushed through at a time, all at
    once if it is not given: less memory, for `fun` run again for each chunk. With `allow_int` arguments may hold
    integers, whose slopes are zeros of their own dtype.

    >>> jacfwd(lambda x: x**2)(np.arange(2.0, dtype="float32"))
    Array([[0., 0.],
           [0., 2.]], dtype=float32)
    """
    return _by_columns("jacfwd", fun, argnums, has_aux, holomorphic, allow_int, chunk)


def _by_columns(
    what: str,
    fun: Callable[..., Any],
    argnums: Argnums,
    has_aux: bool,
    holomorphic: bool,
    allow_int: bool,
    chunk: int | None,
) -> Callable[..., Any]:
    """The Jacobian by forward mode, of which messages speak as `what`."""
    check_callable(what, fun)
    check_chunk(what, chunk)
    asked = Differentiation(what, fun, argnums, has_aux, holomorphic, allow_int, real=True)

    @wraps(fun)
    @guarded
    def jacfwd_fun(*args: Any, **kwargs: Any) -> Any:
        chosen = asked.choose(args, kwargs)
        values, flat = chosen.values, chosen.flat
        lanes: list[Callable[[], Value]] = []

        def push(*dots: Value) -> list[Value]:
            moved = [
                dot if x.aval.differentiable else zero_like(x)
                for x, dot in zip(values, dots, strict=True)
            ]
            outs, outs_dot = jvp_flat(flat, values, moved, fun)
            lanes[:] = map(_of_one_lane, outs[flat.num_outs :])
            return [instantiate(t) for t in outs_dot[: flat.num_outs]]

        columns = _all_directions(push, values, chunk, fun, side=-1)
        found = [lane() for lane in lanes]
        flat.give_back(found)
        # columns : for each result, [*result, all tangents]
        cells = [
            [
                _slope(y, x.aval)
                for x, y in zip(values, _cut(column, values, first=False), strict=True)
            ]
            for column in columns
        ]
        jacobian = _nested(flat, cells, asked, chosen)
        return (jacobian, flat.unflatten_aux(found)) if has_aux else jacobian

    return jacfwd_fun


@as_jacobian
def jacrev(
    fun: Callable[..., Any],
    argnums: Argnums = 0,
    *,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    chunk: int | None = None,
) -> Callable[..., Any]:
    """A function that gives the Jacobian of `fun`, row by row: reverse mode, for few results.

    The Jacobian is that of `jacfwd`. `fun` runs once; `chunk` cotangents are pulled back at a time, all at once if
    it is not given.

    >>> jacrev(lambda x: x**2)(np.arange(2.0, dtype="float32"))
    Array([[0., 0.],
           [0., 2.]], dtype=float32)
    """
    return _by_rows("jacrev", fun, argnums, has_aux, holomorphic, allow_int, chunk)


def _by_rows(
    what: str,
    fun: Callable[..., Any],
    argnums: Argnums,
    has_aux: bool,
    holomorphic: bool,
    allow_int: bool,
    chunk: int | None,
) -> Callable[..., Any]:
    """The Jacobian by reverse mode, of which messages speak as `what`."""
    check_callable(what, fun)
    check_chunk(what, chunk)
    asked = Differentiation(what, fun, argnums, has_aux, holomorphic, allow_int)

    @wraps(fun)
    @guarded
    def jacrev_fun(*args: Any, **kwargs: Any) -> Any:
        chosen = asked.choose(args, kwargs)
        values, flat = chosen.values, chosen.flat
        nonzero = tuple([x.aval.differentiable for x in values])
        outs, linear = linearize_flat(flat, values, nonzero, fun)
        flat.give_back(outs)
        results, aux = outs[: flat.num_outs], outs[flat.num_outs :]
        _check_results(asked, results)

        def pull(*cts: Value) -> list[Value]:
            in_cts = iter(
                pull_back(linear, [x.aval for x in values], nonzero, [*cts, *map(zero_like, aux)])
            )
            given: list[Tangent] = [
                next(in_cts) if nz else zero_like(x) for x, nz in zip(values, nonzero, strict=True)
            ]
            return [instantiate(ct) for ct in given]

        rows = _all_directions(pull, results, chunk, fun, side=0)
        # rows : for each argument, [all cotangents, *argument]
        by_argument = [_cut(x, results, first=True) for x in rows]
        cells = [[_slope(row[k], x.aval) for row in by_argument] for k, x in enumerate(results)]
        jacobian = _nested(flat, cells, asked, chosen)
        return (jacobian, flat.unflatten_aux(aux)) if has_aux else jacobian

    return jacrev_fun


@as_second_derivatives
def hessian(
    fun: Callable[..., Any],
    argnums: Argnums = 0,
    *,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    chunk: int | None = None,
) -> Callable[..., Any]:
    """A function that gives the second derivatives of `fun`: forward mode over reverse mode.

    The result is the Jacobian of the Jacobian; for a scalar result and one array argument it is a square, shape
    after shape. `chunk` tangents are pushed through the gradient at a time.

    >>> hessian(lambda x: (x**3).sum())(np.arange(2.0, dtype="float32"))
    Array([[0., 0.],
           [0., 6.]], dtype=float32)
    """
    first = _by_rows("hessian", fun, argnums, has_aux, holomorphic, allow_int, chunk)
    return _by_columns("hessian", first, argnums, has_aux, holomorphic, allow_int, chunk)


def check_chunk(what: str, chunk: int | None) -> None:
    """Raise ValueError if `chunk` is no positive integer."""
    if chunk is not None and chunk < 1:
        raise ValueError(
            f"{what}: chunk must be an integer of at least 1, got {chunk!r}{at_source(current_source())}"
        )


def _check_results(asked: Differentiation, results: Sequence[Value]) -> None:
    for x in results:
        if asked.holomorphic != (x.dtype.kind == "c") and x.aval.differentiable:
            kind = "complex with holomorphic=True" if asked.holomorphic else "real"
            raise TypeError(
                f"{asked.of}: its results must be {kind}, got {x.aval}; say whether it is holomorphic, or use `vjp`"
                f"{at_source(current_source())}"
            )


def _all_directions(
    push: Pushed, along: Sequence[Value], chunk: int | None, fun: object, side: int
) -> list[Value]:
    """A derivative in every direction of `along`, with the directions along the axis `side` of each result."""
    total = sum([size_of(x.shape) for x in along])
    parts = [_batch(push, start, stop, along, fun, side) for start, stop in _ranges(total, chunk)]
    return [
        concatenate(list(pieces), side % pieces[0].ndim) if len(pieces) > 1 else pieces[0]
        for pieces in zip(*parts, strict=True)
    ]


def _ranges(total: int, chunk: int | None) -> Iterator[tuple[int, int]]:
    step = chunk or max(total, 1)
    for start in range(0, max(total, 1), step):
        yield start, min(start + step, total)


def _batch(
    push: Pushed, start: int, stop: int, along: Sequence[Value], fun: object, side: int
) -> list[Value]:
    size = stop - start
    basis = list(_basis(start, size, along))
    outs, dims = batch_directions(push, size, basis, fun)
    return [
        move_batch(x, size, d, side % (x.ndim + (d is None)))
        for x, d in zip(outs, dims, strict=True)
    ]


def _basis(start: int, size: int, along: Sequence[Value]) -> Iterator[Value]:
    """Unit vectors number `start` and on, `size` of them, each cut into the shapes of `along`."""
    offset = -start
    for x in along:
        count = size_of(x.shape)
        if not x.aval.differentiable:
            yield zeros_of(x.aval.batched(size))
        else:
            rows, columns = (iota(np.int32, (size, count), axis) for axis in (0, 1))
            ones = convert(equal(rows, columns + offset), x.dtype)
            yield reshape(ones, (size, *x.shape))
        offset += count


def _of_one_lane(x: Value) -> Callable[[], Value]:
    """How to get, after the batch, a value that is the same in all lanes."""
    if not isinstance(x, BatchTracer) or x.owner is not current_trace():
        return lambda: x
    whole, dim = x.value, x.dim
    return lambda: whole[(*[slice(None)] * dim, 0)]


def _cut(x: Value, along: Sequence[Value], first: bool) -> list[Value]:
    """The blocks of all directions, which lie along the first or last axis of `x`, each in its own shape."""
    blocks, start = [], 0
    for each in along:
        stop = start + size_of(each.shape)
        block, rest = (x[start:stop], x.shape[1:]) if first else (x[..., start:stop], x.shape[:-1])
        shape = (*each.shape, *rest) if first else (*rest, *each.shape)
        blocks.append(reshape(block, shape))
        start = stop
    return blocks


def _slope(block: Value, of: Aval) -> Value:
    """A block of the Jacobian; that of an integer argument or result is zero in its own dtype, as its tangents are."""
    return block if of.differentiable else zeros_of(ShapedArray(block.shape, of.dtype))


def _nested(
    flat: FlatFunction, cells: Sequence[Sequence[Value]], asked: Differentiation, chosen: Chosen
) -> Any:
    """The cells, by result and argument leaf, as the result's tree of the arguments' trees."""
    assert flat.out_tree is not None, "unreachable: the function has run"
    inner = [
        asked.one(tree_unflatten(chosen.tree, [as_result(x) for x in row])[0]) for row in cells
    ]
    return tree_unflatten(flat.out_tree, inner)
