"""Refs under `vmap` against a Python loop over the lanes: each axis of the Ref, each access, each place it happens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
import fiveloop.testing.remat.references  # noqa: F401  # the oracle learns what a checkpoint is
from fiveloop.core import Jaxpr, closed_call, custom_jvp, jit, vmap
from fiveloop.core.extend import ShapedArray, stage_closed, typecheck
from fiveloop.loops import cond, for_loop, scan, while_loop
from fiveloop.remat import checkpoint
from fiveloop.state import AbstractRef, accumulate, new_ref, swap
from fiveloop.testing.core.compare import assert_all_close
from fiveloop.testing.core.oracle import Cell
from fiveloop.testing.core.samples import run_purely
from fiveloop.testing.loops import references

Array = np.ndarray[Any, Any]
LANES = 3
SHAPE = (4, 2)
"""The shape of one lane's Ref."""
STEPS = 3
CLOSED_OVER = "closed over"
IN_AXES = [0, 1, -1, None, CLOSED_OVER]
assert references.__name__


# one access, as the library makes it and as NumPy does


def touch(name: str, ref: Any, index: Any, v: Any) -> Any:
    """Make an access; what it reads, or zero."""
    if name == "get":
        return ref[index].sum()
    if name == "swap":
        return swap(ref, index, v).sum()
    if name == "set":
        ref[index] = v
    elif name == "add":
        ref[index] += v
    else:
        accumulate(ref, index, v, name)
    return fnp.zeros((), np.float64)


def twin(name: str, array: Array, index: Any, v: Any) -> float:
    """The same on a NumPy array."""
    old = float(array[index].sum())
    if name in ("set", "swap"):
        array[index] = v
    elif name != "get":
        UFUNCS[name].at(array, index, v)
    return old if name in ("get", "swap") else 0.0


UFUNCS = {"add": np.add, "max": np.maximum, "mul": np.multiply}
ACCESSES = ("get", "set", "swap", *UFUNCS)


# where it happens: in a loop it happens several times


Step = Callable[[Any], Any]


def in_for(step: Step, lane: Any) -> Any:
    def body(i: Any, total: Any) -> None:
        total[...] += step(i)

    return for_loop(STEPS, body, fnp.zeros((), np.float64))


def in_scan(step: Step, lane: Any) -> Any:
    def body(total: Any, i: Any) -> Any:
        return total + step(i), None

    return scan(body, fnp.zeros((), np.float64), fnp.arange(STEPS))[0]


def in_while(step: Step, lane: Any, limit: Any = STEPS) -> Any:
    def body(state: Any) -> Any:
        return state[0] + 1, state[1] + step(state[0])

    start = (fnp.zeros((), np.int32), fnp.zeros((), np.float64))
    return while_loop(lambda state: state[0] < limit, body, start)[1]


def in_cond(step: Step, lane: Any, holds: Any = True, how: Any = "select") -> Any:
    nothing = fnp.zeros((), np.float64)
    return cond(fnp.asarray(holds), lambda: nothing + step(0), lambda: nothing, vmap=how)


def in_custom_rule(step: Step, lane: Any) -> Any:
    @custom_jvp
    def run(x: Any) -> Any:
        return x + step(0)

    run.defjvp(lambda primals, dots: (run(*primals), dots[0]))
    return run(fnp.zeros((), np.float64))


def in_loops_and_calls(step: Step, lane: Any) -> Any:
    """In a call in a for in a cond in a scan, each with a total of its own."""
    deep = lambda i: in_cond(lambda _: in_for(lambda k: closed_call(lambda: step(k))(), lane), lane)
    return in_scan(deep, lane)


PLACES: dict[str, Callable[[Step, Any], Any]] = {
    "here": lambda step, lane: step(0),
    "jit": lambda step, lane: jit(lambda: step(0))(),
    "closed_call": lambda step, lane: closed_call(lambda: step(0))(),
    "checkpoint": lambda step, lane: checkpoint(lambda: step(0))(),
    "custom rule": in_custom_rule,
    "for": in_for,
    "scan": in_scan,
    "while": in_while,
    "while by lane": lambda step, lane: in_while(step, lane, lane),
    "cond": in_cond,
    "cond by lane": lambda step, lane: in_cond(step, lane, lane % 2 == 0),
    "cond by lane in series": lambda step, lane: in_cond(step, lane, lane % 2 == 0, "serial"),
    "loops and calls": in_loops_and_calls,
}
COUNTS: dict[str, Callable[[int], list[int]]] = {
    "for": lambda lane: [*range(STEPS)],
    "scan": lambda lane: [*range(STEPS)],
    "while": lambda lane: [*range(STEPS)],
    "while by lane": lambda lane: [*range(lane)],
    "cond by lane": lambda lane: [0] * (lane % 2 == 0),
    "cond by lane in series": lambda lane: [0] * (lane % 2 == 0),
    "loops and calls": lambda lane: [*range(STEPS)] * STEPS,
}
"""With which step numbers it happens in a lane; once with 0 where it is not said."""


def program(place: str, name: str) -> Callable[..., Any]:
    """One lane."""

    def run(ref: Any, index: Any, v: Any, lane: Any) -> Any:
        return PLACES[place](lambda k: touch(name, ref, index, v + k), lane)

    return run


def batched(place: str, name: str, in_axis: Any, dims: tuple[int | None, ...]) -> Any:
    """All lanes."""
    run = program(place, name)
    if in_axis == CLOSED_OVER:
        return lambda ref, *rest: vmap(lambda *xs: run(ref, *xs), in_axes=(*dims, 0))(*rest)
    return vmap(run, in_axes=(in_axis, *dims, 0))


def lane_by_lane(
    place: str, name: str, in_axis: Any, array: Array, index: Array, v: Array
) -> list[Array]:
    """The results of all lanes, one after the other, and what the Ref holds then."""
    held, outs = array.copy(), []
    for lane in range(LANES):
        own = np.moveaxis(held, in_axis, 0)[lane] if isinstance(in_axis, int) else held
        numbers = COUNTS[place](lane) if place in COUNTS else [0]
        outs.append(sum(twin(name, own, index[lane], v[lane] + k) for k in numbers))
    return [np.array(outs, np.float64), held]


def arguments(in_axis: Any) -> tuple[Array, Array, Array]:
    """The Ref's contents, and for each lane an index and a value."""
    rng = np.random.default_rng(0)
    shape = list(SHAPE)
    if isinstance(in_axis, int):
        shape.insert(in_axis % (len(SHAPE) + 1), LANES)
    return rng.uniform(1, 2, shape), np.array([2, 0, 2], np.int32), rng.uniform(1, 2, LANES)


REFUSED = "each lane of a vmap writes its own value|lanes cannot write to one"


def is_refused(place: str, name: str, in_axis: Any, dims: tuple[int | None, ...]) -> bool:
    """Whether lanes would write what may differ to a Ref that they share."""
    shared = not isinstance(in_axis, int)
    return shared and name in ("set", "swap") and (any(d == 0 for d in dims) or "by lane" in place)


def staged(run: Callable[..., Any], args: Sequence[Array]) -> Jaxpr:
    """A function of a Ref and arrays as a jaxpr."""
    ref, *rest = [ShapedArray(x.shape, x.dtype) for x in args]
    return stage_closed(lambda *xs: [run(*xs)], [AbstractRef(ref), *rest])


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("in_axis", IN_AXES)
def test_lanes_are_as_if_alone(in_axis: Any, place: str) -> None:
    array, indices, values = arguments(in_axis)
    for name, dims in product(ACCESSES, product((0, None), repeat=2)):
        if not isinstance(in_axis, int) and name == "swap" and dims == (None, None):
            continue  # all lanes take a step together: see below
        given = [x if d == 0 else x[0] for x, d in zip((indices, values), dims, strict=True)]
        args = [array, *given, np.arange(LANES)]
        run = batched(place, name, in_axis, dims)
        if is_refused(place, name, in_axis, dims):
            with pytest.raises(TypeError, match=REFUSED):
                staged(run, args)
            continue
        jaxpr = staged(run, args)
        typecheck(jaxpr)
        got = run_purely(jaxpr, [Cell(array), *args[1:]])
        each = [np.broadcast_to(x, (LANES,)) for x in given]
        want = lane_by_lane(place, name, in_axis, array, each[0], each[1])
        assert_all_close(got, want, f"{name} {dims}")


@pytest.mark.parametrize("place", PLACES)
def test_compiled_lanes(place: str) -> None:
    names = [n for n in ACCESSES if n not in ("set", "swap")]
    for in_axis in (1, None):
        array, indices, values = arguments(in_axis)
        refs = [new_ref(array) for _ in names]

        def run(
            indices: Any, values: Any, lanes: Any, in_axis: Any = in_axis, refs: Any = refs
        ) -> Any:
            pairs = zip(names, refs, strict=True)
            return [batched(place, n, in_axis, (0, 0))(r, indices, values, lanes) for n, r in pairs]

        outs = jit(run)(indices, values, np.arange(LANES))
        for name, out, ref in zip(names, outs, refs, strict=True):
            want = lane_by_lane(place, name, in_axis, array, indices, values)
            assert_all_close([np.asarray(out), np.asarray(ref[...])], want, name)


def test_lanes_swap_together() -> None:
    ref = new_ref(np.float32(1))
    outs = vmap(lambda x: swap(ref, ..., 5.0) + x)(fnp.zeros(3))
    assert np.asarray(outs).tolist() == [1, 1, 1]
    assert float(ref[...]) == 5.0


# no axis for no reason


def test_a_state_that_is_alike_in_all_lanes_stays_without_lanes() -> None:
    shared = new_ref(np.float32(0))

    def run(x: Any) -> Any:
        def body(i: Any, refs: Any) -> None:
            count, total = refs
            count[...] += 1
            shared[...] += 1.0
            total[...] += x * count[...]

        return for_loop(4, body, (0, x))

    counts, totals = vmap(run, out_axes=(None, 0))(fnp.arange(3.0))
    assert int(counts) == 4
    assert np.asarray(totals).tolist() == [0, 11, 22]
    assert float(shared[...]) == 12.0


def test_a_carry_that_is_alike_in_all_lanes_stays_without_lanes() -> None:
    shared = new_ref(np.float32(0))

    def run(x: Any) -> Any:
        def body(carry: Any, _: Any) -> Any:
            shared[...] += 1.0
            return (carry[0] + 1, carry[1] * x), None

        return scan(body, (0, x), length=3)[0]

    counts, powers = vmap(run, out_axes=(None, 0))(fnp.arange(3.0))
    assert int(counts) == 3
    assert np.asarray(powers).tolist() == [0, 1, 16]
    assert float(shared[...]) == 9.0


def test_vmap_in_vmap() -> None:
    rows, everything = new_ref(np.zeros(2, np.float32)), new_ref(np.float32(0))

    def inner(row: Any, x: Any) -> Any:
        row[...] += 1.0
        everything[...] += 1.0
        return x

    vmap(lambda row, xs: vmap(lambda x: inner(row, x))(xs))(rows, fnp.zeros((2, 3)))
    assert np.asarray(rows[...]).tolist() == [3, 3]
    assert float(everything[...]) == 6.0
