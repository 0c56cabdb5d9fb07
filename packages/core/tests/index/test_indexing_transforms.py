"""Derivatives and batches of reads and writes: exact, for out-of-range and repeated indices too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

import fiveloop.core.index.ops  # noqa: F401  # gives arrays their methods
from fiveloop.core import grad, jit, make_jaxpr
from fiveloop.core.ad import UndefinedPrimal
from fiveloop.core.arrays.array import Value, device_put
from fiveloop.core.extend import jaxprs_in
from fiveloop.core.index.access import put, take
from fiveloop.core.index.parse import DynamicSpan, ds, normalize
from fiveloop.core.ir.avals import ShapedArray
from fiveloop.core.lower.dispatch import compiled
from fiveloop.core.primitives.broadcast import bdim_at, instantiate
from fiveloop.core.primitives.take import batched_index
from fiveloop.core.trace.stage import stage_closed
from fiveloop.core.transforms.batch import batch_flat
from fiveloop.core.transforms.jvp import jvp_flat
from fiveloop.core.transforms.linearize import linearize_flat
from fiveloop.core.transforms.transpose import backward_pass

Flat = Callable[..., Sequence[Any]]
RNG = np.random.default_rng(0)
SHAPE = (4, 5, 6)
ROOM = 10
LANES = 3
INDICES: dict[str, Callable[[Any, Any], Any]] = {
    "static": lambda i, a: (1, slice(None, None, -2), None),
    "scalar": lambda i, a: i,
    "middle": lambda i, a: (slice(None), i, slice(1, 3)),
    "span": lambda i, a: (ds(i, 2), 1, slice(None, None, -1)),
    "strided": lambda i, a: (ds(i, 2, 2), slice(4, 0, -2)),
    "pick": lambda i, a: a,
    "outer": lambda i, a: (a, slice(None), i),
    "inner": lambda i, a: (slice(1, 3), i, a),
    "span and pick": lambda i, a: (ds(i, 2), slice(None, None, 2), a),
    "new axis": lambda i, a: (None, i, None, a),
}
# A read at 9 is of the last place, one at -9 of the first; a write there is left out.
SCALARS = np.array([1, -9, 9], np.int32)
PICKS = np.array([[1, 1], [-1, 0], [9, 2]], np.int32)


def run(fun: Flat, *args: np.ndarray) -> list[np.ndarray]:
    """A flat function's results, compiled as one program."""
    avals = [ShapedArray(a.shape, a.dtype) for a in args]
    values = [device_put(a) for a in args]
    return [np.asarray(out) for out in compiled(stage_closed(fun, avals)).run(values)]


def vmapped(fun: Flat, dims: Sequence[int | None]) -> Flat:
    """A flat function over lanes, with the batch axis of results in front."""

    def batched(*args: Value) -> list[Value]:
        outs, out_dims = batch_flat(fun, LANES, args, dims)
        return [bdim_at(x, d, LANES, 0) for x, d in zip(outs, out_dims, strict=True)]

    return batched


def pulled_back(fun: Flat, primals: Sequence[Value], cts: Sequence[Value]) -> list[Value]:
    """The cotangents of float arguments."""
    nonzero = tuple(x.aval.differentiable for x in primals)
    _, linear = linearize_flat(fun, primals, nonzero)
    unknown = [UndefinedPrimal(x.aval) for x, nz in zip(primals, nonzero, strict=True) if nz]
    out = backward_pass(linear.jaxpr, [*linear.residuals, *unknown], cts)
    assert all(isinstance(ct, Value) for ct in out)
    return [ct for ct in out if isinstance(ct, Value)]


def lane(x: np.ndarray, dim: int | None, k: int) -> np.ndarray:
    """One lane's own argument."""
    return x if dim is None else np.take(x, k, axis=dim)


def point(i: Any, size: int, extent: int = 1) -> Any:
    """Where a run-time index points, by the one rule."""
    return np.clip(np.where(i < 0, i + size, i), 0, size - extent)


def roomy_index(index: Any) -> tuple[Any, ...]:
    """The same index into an array with room around it, in which what lies outside has a place."""
    out: list[Any] = []
    for item in index if isinstance(index, tuple) else (index,):
        size = SHAPE[sum(x is not None for x in out)] if item is not None else 0
        if item is None:
            out.append(None)
        elif isinstance(item, slice):
            start, stop, step = item.indices(size)
            out.append(slice(start + ROOM, stop + ROOM, step))
        else:
            span = item if isinstance(item, DynamicSpan) else None
            i = np.asarray(item.start if span else item)
            i = np.where(i < 0, i + size, i) + ROOM
            out.append(slice(int(i), int(i) + span.size * span.stride, span.stride) if span else i)
    while len(out) < len(SHAPE) + sum(x is None for x in out):
        out.append(slice(ROOM, ROOM + SHAPE[len(out) - sum(x is None for x in out)]))
    return tuple(x if isinstance(x, slice) or x is None or x.ndim else int(x) for x in out)


def numpy_index(index: Any) -> tuple[Any, ...]:
    """An index with its run-time parts replaced by what they point to."""
    out: list[Any] = []
    for item in index if isinstance(index, tuple) else (index,):
        size = SHAPE[sum(x is not None for x in out)] if item is not None else 0
        if isinstance(item, DynamicSpan):
            extent = (item.size - 1) * item.stride + 1
            low = int(point(np.asarray(item.start), size, extent))
            out.append(slice(low, low + extent, item.stride))
        elif item is None or isinstance(item, slice):
            out.append(item)
        else:
            where = point(np.asarray(item), size)
            out.append(where if where.ndim else int(where))
    return tuple(out)


def updates(index: Callable[[Any, Any], Any]) -> Flat:
    """What is read at an index, and the array after each kind of write."""

    def fun(x: Value, i: Value, a: Value, v: Value) -> list[Value]:
        at = x.at[index(i, a)]
        return [at.get(), at.set(v), at.add(v), at.max(v)]

    return fun


def numpy_updates(index: Any, x: np.ndarray, v: np.ndarray) -> list[np.ndarray]:
    """The same in NumPy: a read fits, and a write leaves out what lies outside."""
    written, added, raised = (np.pad(x, ROOM) for _ in range(3))
    place = roomy_index(index)
    written[place] = v
    np.add.at(added, place, v)
    np.maximum.at(raised, place, v)
    inner = (slice(ROOM, -ROOM),) * x.ndim
    return [x[numpy_index(index)], written[inner], added[inner], raised[inner]]


BATCHES = [
    (0, None, None),
    (2, None, None),
    (None, 0, None),
    (None, None, 1),
    (2, 0, None),
    (0, 0, 1),
]


@pytest.mark.parametrize("dims", BATCHES, ids=str)
@pytest.mark.parametrize("name", INDICES)
def test_a_batch_equals_its_lanes_one_by_one(name: str, dims: tuple[int | None, ...]) -> None:
    index = INDICES[name]
    x_dim, i_dim, a_dim = dims
    x = RNG.standard_normal(SHAPE if x_dim is None else np.insert(SHAPE, x_dim, LANES))
    i = SCALARS[1:2].reshape(()) if i_dim is None else SCALARS
    a = PICKS[2] if a_dim is None else PICKS.T
    inner = x if x_dim is None else np.take(x, 0, axis=x_dim)
    v = RNG.standard_normal((LANES, *inner[numpy_index(index(1, PICKS[0]))].shape))
    got = run(vmapped(updates(index), (*dims, 0)), x, i, a, v)
    for k in range(LANES):
        x_k, i_k, a_k = [lane(y, d, k) for y, d in zip((x, i, a), dims, strict=True)]
        want = numpy_updates(index(i_k, a_k), x_k, v[k])
        for g, w in zip(got, want, strict=True):
            np.testing.assert_allclose(g[k], w, rtol=1e-12)


@pytest.mark.parametrize("name", INDICES)
def test_batches_of_batches(name: str) -> None:
    index = INDICES[name]
    x = RNG.standard_normal((LANES, *SHAPE, LANES))
    v = RNG.standard_normal((LANES, LANES, *x[0, ..., 0][numpy_index(index(1, PICKS[0]))].shape))
    inner = vmapped(updates(index), (3, None, 0, 0))
    got = run(vmapped(inner, (0, 0, None, 0)), x, SCALARS, PICKS, v)
    for k, m in product(range(LANES), range(LANES)):
        want = numpy_updates(index(SCALARS[k], PICKS[m]), x[k, ..., m], v[k, m])
        for g, w in zip(got, want, strict=True):
            np.testing.assert_allclose(g[k, m], w, rtol=1e-12)


@pytest.mark.parametrize("name", INDICES)
def test_derivatives_are_exact(name: str) -> None:
    """The tangent is a difference quotient (all is piecewise linear), and the transpose its adjoint."""
    index = INDICES[name]
    x, x_dot = RNG.standard_normal((2, *SHAPE))
    shape = x[numpy_index(index(9, PICKS[2]))].shape
    v, v_dot = RNG.standard_normal((2, *shape))
    at = np.asarray(9, np.int32)
    w = [RNG.standard_normal(s) for s in (shape, SHAPE, SHAPE, SHAPE)]

    def forward_and_back(*args: Value) -> list[Value]:
        x, x_dot, v, v_dot, i, a, *w = args

        def fun(x: Value, v: Value) -> Sequence[Value]:
            return updates(index)(x, i, a, v)

        _, dots = jvp_flat(fun, [x, v], [x_dot, v_dot])
        return [*map(instantiate, dots), *pulled_back(fun, [x, v], w)]

    *dots, x_bar, v_bar = run(forward_and_back, x, x_dot, v, v_dot, at, PICKS[2], *w)
    eps, place = 1e-6, index(9, PICKS[2])
    ahead = numpy_updates(place, x + eps * x_dot, v + eps * v_dot)
    behind = numpy_updates(place, x - eps * x_dot, v - eps * v_dot)
    for got, a, b in zip(dots, ahead, behind, strict=True):
        np.testing.assert_allclose(got, (a - b) / (2 * eps), atol=1e-6)
    left = sum(np.vdot(ct, dot) for ct, dot in zip(w, dots, strict=True))
    np.testing.assert_allclose(np.vdot(x_bar, x_dot) + np.vdot(v_bar, v_dot), left, rtol=1e-10)


def test_the_last_of_several_writes_gets_the_cotangent() -> None:
    place = np.array([1, 1, 2])
    args = [device_put(y) for y in (np.zeros(3), np.ones(3), np.array([1.0, 2.0, 3.0]))]
    x, v, ct = args
    x_bar, v_bar = pulled_back(lambda x, v: [x.at[place].set(v)], [x, v], [ct])
    np.testing.assert_array_equal(x_bar, [1, 0, 0])
    np.testing.assert_array_equal(v_bar, [0, 2, 3])


def test_the_first_of_several_equal_extrema_gets_the_cotangent() -> None:
    place = np.array([0, 0, 1, 1, 2])
    x = device_put(np.array([0.0, 5.0, 2.0]))
    v = device_put(np.array([3.0, 3.0, 5.0, 6.0, 1.0]))
    ct = device_put(np.array([1.0, 2.0, 4.0]))
    x_bar, v_bar = pulled_back(lambda x, v: [x.at[place].max(v)], [x, v], [ct])
    np.testing.assert_array_equal(x_bar, [0, 0, 4])
    np.testing.assert_array_equal(v_bar, [1, 0, 0, 2, 0])


@pytest.mark.parametrize("unique", [False, True])
def test_the_derivative_of_a_product_in_distinct_places(unique: bool) -> None:
    place = np.array([2, 0])
    x, v, ct = [device_put(np.array(y)) for y in ([2.0, 3.0, 4.0], [5.0, 6.0], [1.0, 1.0, 1.0])]
    x_bar, v_bar = pulled_back(
        lambda x, v: [x.at[place].multiply(v, unique_indices=unique)], [x, v], [ct]
    )
    np.testing.assert_array_equal(x_bar, [6, 1, 5])
    np.testing.assert_array_equal(v_bar, [4, 2])


def test_the_derivative_of_a_product_of_several_factors_one_of_them_zero() -> None:
    place = np.array([0, 1, 1, 3, 1, 0, 1])
    x = device_put(np.array([1.0, 2.0, 3.0, 4.0]))
    v = device_put(np.array([2.0, 0.0, 3.0, 5.0, 7.0, 11.0, 2.0]))
    ct = device_put(np.array([1.0, 10.0, 100.0, 1000.0]))
    x_bar, v_bar = pulled_back(lambda x, v: [x.at[place].multiply(v)], [x, v], [ct])
    np.testing.assert_array_equal(x_bar, [22, 0, 100, 5000])
    np.testing.assert_array_equal(v_bar, [11, 10 * 2 * 3 * 7 * 2, 0, 4000, 0, 2, 0])


def test_a_batched_indexer_keeps_blocks_where_lanes_agree() -> None:
    indexer, operands = normalize(SHAPE, (device_put(np.asarray(1, np.int32)), slice(1, 3)))
    shared, same, dim = batched_index(indexer, operands, [None], 1, LANES)
    assert shared.is_block and shared.result_shape == (LANES, 2, 6)
    assert same == operands and dim == 0
    assert shared.pretty(["i"]) == "i, 0:3, 1:3, 0:6"  # as if it had not been batched
    x = RNG.standard_normal((4, LANES, 5, 6))
    np.testing.assert_array_equal(take(device_put(x), shared, same), x[1, :, 1:3])
    own, moved, _ = batched_index(indexer, [device_put(SCALARS)], [0], 1, LANES)
    assert (
        not own.is_block and own.result_shape == (LANES, 2, 6) and own.operand_shape(0) == (LANES,)
    )
    want = np.stack([x[point(SCALARS[k], 4), k, 1:3] for k in range(LANES)])
    np.testing.assert_array_equal(take(device_put(x), own, moved), want)


@pytest.mark.parametrize("lanes_at", range(4))
@pytest.mark.parametrize("index", [(slice(1, 3), 1, None), (None, 1, slice(None), 2), (2,)])
def test_lanes_that_agree_read_and_write_as_if_one_by_one(index: Any, lanes_at: int) -> None:
    indexer, operands = normalize(SHAPE, index)
    none = [None] * len(operands)
    shared, same, dim = batched_index(indexer, operands, none, lanes_at, LANES)
    x = RNG.standard_normal((*SHAPE[:lanes_at], LANES, *SHAPE[lanes_at:]))
    lanes = np.moveaxis(x, lanes_at, 0)
    want = np.stack([lane[index] for lane in lanes], dim)
    np.testing.assert_array_equal(take(device_put(x), shared, same), want)
    new = RNG.standard_normal(want.shape)
    for lane, y in zip(lanes, np.moveaxis(new, dim, 0), strict=True):  # views of x
        lane[index] = y
    out = put(device_put(np.zeros_like(x)), shared, same, device_put(new))
    np.testing.assert_array_equal(out, np.where(np.isin(x, new), x, 0.0))


def test_lanes_that_share_an_array_accumulate() -> None:
    indexer, _ = normalize((4,), device_put(np.asarray(1, np.int32)))
    shared, moved, _ = batched_index(
        indexer, [device_put(np.array([1, 1, 9], np.int32))], [0], None, LANES
    )
    out = put(device_put(np.zeros(4)), shared, moved, np.array([1.0, 2.0, 4.0]), "add")
    np.testing.assert_array_equal(out, [0, 3, 0, 4])


def whole_after_row(x: Any, k: Any) -> Any:
    return (x[k] + x.sum(0)).sum() + (x * x).sum()


def two_rows(x: Any, k: Any) -> Any:
    return (x[k] * x[k + 1]).sum()


@pytest.mark.parametrize(("f", "read"), [(whole_after_row, 0), (two_rows, 1)])
@pytest.mark.parametrize("called", [False, True])
def test_cotangents_of_blocks_are_added_in_place_among_themselves(
    f: Any, read: int, called: bool
) -> None:
    """One of the whole is added as a whole: XLA would compute it for each block that it adds to it in place."""
    x = RNG.standard_normal((5, 3)).astype(np.float32)
    g = grad(jit(f) if called else f)
    eqns = make_jaxpr(g)(x, 1).eqns
    inner = [e for eqn in eqns for j in jaxprs_in(eqn.params) for e in j.eqns]
    made = {v for eqn in (*eqns, *inner) for v in eqn.outvars}
    taken = [e for e in (*eqns, *inner) if e.primitive.name == "take" and e.invars[0] in made]
    assert len(taken) == read
    want = np.zeros_like(x)
    if f is two_rows:
        want[1], want[2] = x[2], x[1]
    else:
        want = 1 + 2 * x
        want[1] += 1
    np.testing.assert_allclose(g(x, 1), want, rtol=1e-6)
