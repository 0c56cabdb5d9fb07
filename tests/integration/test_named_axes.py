"""Named axes through loops, branches, checkpoints and Refs, against lanes that are programs of their own."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, reject, settings

import fiveloop.numpy as fnp
import fiveloop.testing.loops
import fiveloop.testing.remat
import fiveloop.testing.state
from fiveloop import loops, random
from fiveloop.core import (
    all_gather,
    all_to_all,
    axis_index,
    axis_size,
    closed_call,
    grad,
    jit,
    jvp,
    make_jaxpr,
    pmax,
    pmean,
    ppermute,
    psum,
    psum_scatter,
    vmap,
)
from fiveloop.core.extend import axes_of, rename_axes
from fiveloop.core.ir.axes import NamedAxis
from fiveloop.loops import cond, for_loop, fori_loop, scan, switch, while_loop
from fiveloop.remat import checkpoint
from fiveloop.state import freeze, new_ref
from fiveloop.testing.core.compare import assert_all_close, assert_close
from fiveloop.testing.core.lane_steps import AXIS, lane_sample, lane_twin, with_collectives
from fiveloop.testing.core.lanes import LanesError, lanes
from fiveloop.testing.core.laws import (
    check_law_dce,
    check_law_eval,
    check_law_jvp,
    check_law_lanes,
    check_law_linearize,
    check_law_split,
    check_law_transpose,
    check_law_type,
)
from fiveloop.testing.core.oracle import run_jaxpr
from fiveloop.testing.core.programs import Program, programs
from fiveloop.testing.loops.program_steps import LOOP_KINDS
from fiveloop.testing.remat.program_steps import with_checkpoints
from fiveloop.testing.state.program_steps import read_all

# The oracle knows the primitives of each package from its `testing`.
TESTING = (fiveloop.testing.loops, fiveloop.testing.remat, fiveloop.testing.state)

HostArray = np.ndarray[Any, Any]
Function = Callable[..., Any]
HALVES = [[0, 2], [3, 1]]
I4: tuple[tuple[Hashable, int], ...] = (("i", 4),)
I2J2: tuple[tuple[Hashable, int], ...] = (("i", 2), ("j", 2))
IJ = ("i", "j")

# Each maps [4] to [4], smoothly.
COLLECTIVES: dict[str, tuple[Function, Any]] = {
    "psum": (lambda x: psum(fnp.sin(x), "i"), I4),
    "psum groups": (lambda x: psum(fnp.sin(x), "i", axis_index_groups=HALVES), I4),
    "psum several": (lambda x: psum(fnp.sin(x), IJ), I2J2),
    "pmean": (lambda x: x - pmean(x * x, "j"), I2J2),
    "pmax": (lambda x: x + pmax(x, "i"), I4),
    "all_gather": (lambda x: all_gather(x, "i")[:, 1] * x, I4),
    "all_gather tiled": (lambda x: all_gather(x * x, IJ, tiled=True)[::4], I2J2),
    "psum_scatter": (lambda x: psum_scatter(x, "i") + fnp.cos(x), I4),
    "psum_scatter tiled": (
        lambda x: psum_scatter(x, "i", tiled=True, axis_index_groups=HALVES).sum() + x * x,
        I4,
    ),
    "all_to_all": (lambda x: all_to_all(x * x, "i", 0, 0), I4),
    "all_to_all tiled": (lambda x: all_to_all(x, IJ, 0, 0, tiled=True) * x, I2J2),
    "ppermute": (lambda x: ppermute(x, "i", [(0, 1), (1, 3), (3, 0)]) * x, I4),
    "axis_index": (lambda x: x * axis_index(IJ), I2J2),
}


def in_scan(f: Function) -> Function:
    def step(carry: Any, row: Any) -> Any:
        carry = 0.3 * f(carry) + row
        return carry, f(row)

    return lambda x: scan(step, x, fnp.stack([x, 0.5 * x, fnp.sin(x)]))


def in_for(f: Function) -> Function:
    def run(x: Any) -> Any:
        ref = new_ref(x)
        total = new_ref(fnp.zeros_like(x))

        def body(i: Any, carry: Any) -> Any:
            ref[i] = f(ref[...])[i] * 0.3
            total[...] += f(ref[...]) * (i + 1.0)
            return carry

        fori_loop(0, 3, body, 0.0)
        return freeze(ref), freeze(total)

    return run


def in_while(f: Function) -> Function:
    def keep_on(state: Any) -> Any:
        return state[0] < 3

    return lambda x: while_loop(keep_on, lambda s: (s[0] + 1, fnp.sin(f(s[1]))), (0, x))[1]


def in_while_together(f: Function) -> Function:
    """The lanes decide together when to end."""

    def keep_on(state: Any) -> Any:
        k, x = state
        return (psum(x.sum(), "i") > -1e9) & (psum(k, "i") < 3 * axis_size("i"))

    step = lambda s: (s[0] + 1, fnp.sin(f(s[1])))
    return lambda x: while_loop(keep_on, step, (0, x))[1]


def in_cond(f: Function) -> Function:
    """All lanes take the same branch."""
    return lambda x: cond(psum(x[0], "i") > -1e9, lambda y: f(y) * 2.0, lambda y: y, x)


def in_switch_of_one_choice(f: Function) -> Function:
    return lambda x: switch(1, [lambda y: y, f, lambda y: 2.0 * f(y)], x)


def in_checkpoint(f: Function) -> Function:
    return checkpoint(lambda x: fnp.sin(f(fnp.sin(x))))


def in_checkpointed_scan(f: Function) -> Function:
    body = checkpoint(lambda c, x: (fnp.sin(f(c)) + x, f(x)))
    return jit(lambda x: scan(body, x, fnp.stack([x, 0.5 * x])))


BODIES: dict[str, Callable[[Function], Function]] = {
    "scan": in_scan,
    "for with Refs": in_for,
    "while": in_while,
    "while together": in_while_together,
    "cond": in_cond,
    "switch": in_switch_of_one_choice,
    "checkpoint": in_checkpoint,
    "checkpointed scan": in_checkpointed_scan,
}


def over(fun: Function, axes: Any) -> Function:
    for name, _ in reversed(axes):
        fun = vmap(fun, axis_name=name)
    return fun


def arguments(axes: Any) -> HostArray:
    sizes = [size for _, size in axes]
    return np.random.default_rng(4).uniform(-1.0, 1.0, (*sizes, 4))


def in_lanes(fun: Function, x: HostArray, axes: Any) -> list[HostArray]:
    """The results of a function of one lane by the oracle, lanes in front."""
    count = len(axes)
    jaxpr = make_jaxpr(fun, axis_env=axes)(x[(0,) * count])
    with lanes(*[NamedAxis(*axis) for axis in axes]):
        outs = run_jaxpr(jaxpr, [np.moveaxis(x, range(count), range(1, 1 + count))])
    return [np.moveaxis(y, range(y.ndim - count, y.ndim), range(count)) for y in outs]


def mapped(fun: Function, x: HostArray, axes: Any) -> list[HostArray]:
    """The results of the function mapped over the axes, by the oracle."""
    return run_jaxpr(make_jaxpr(over(fun, axes))(x), [x])


def total(fun: Function) -> Function:
    """A number made of all results."""

    def run(x: Any) -> Any:
        outs = fun(x)
        outs = outs if isinstance(outs, tuple) else (outs,)
        return sum((fnp.sin(y) * (k + 1.0)).sum() for k, y in enumerate(outs))

    return run


@pytest.mark.parametrize("name", COLLECTIVES)
@pytest.mark.parametrize("place", BODIES)
def test_values(place: str, name: str) -> None:
    f, axes = COLLECTIVES[name]
    fun, x = BODIES[place](f), arguments(axes)
    assert_all_close(mapped(fun, x, axes), in_lanes(fun, x, axes), place, scale=100.0)


@pytest.mark.parametrize("name", COLLECTIVES)
@pytest.mark.parametrize("place", BODIES)
def test_derivatives(place: str, name: str) -> None:
    f, axes = COLLECTIVES[name]
    fun, x = BODIES[place](f), arguments(axes)
    along = lambda a: jvp(fun, (a,), (fnp.cos(a),))[1]
    assert_all_close(mapped(along, x, axes), in_lanes(along, x, axes), "jvp", scale=100.0)
    back = grad(total(fun))
    want = in_lanes(back, x, axes)
    assert_all_close(mapped(back, x, axes), want, "grad inside", scale=100.0)
    outside = make_jaxpr(grad(lambda a: over(total(fun), axes)(a).sum()))(x)
    assert_all_close(run_jaxpr(outside, [x]), want, "grad outside", scale=100.0)


@pytest.mark.parametrize("place", BODIES)
def test_compiled(place: str) -> None:
    for name in ("psum", "all_gather tiled"):
        f, axes = COLLECTIVES[name]
        fun, x = BODIES[place](f), arguments(axes)
        want = in_lanes(total(fun), x, axes)[0]
        assert_close(jit(over(total(fun), axes))(x), want, scale=100.0)


@pytest.mark.parametrize("place", BODIES)
def test_renaming_reaches_bodies(place: str) -> None:
    f, axes = COLLECTIVES["psum several"]
    fun, x = BODIES[place](f), arguments(axes)
    jaxpr = make_jaxpr(fun, axis_env=axes)(x[0, 0])
    renamed = rename_axes(jaxpr, {"i": "j", "j": "i"})
    assert " i=" in repr(renamed) or "i=2" in repr(renamed)
    assert axes_of(renamed.effects) == axes_of(jaxpr.effects)
    with lanes(NamedAxis("j", 2), NamedAxis("i", 2)):
        got = run_jaxpr(renamed, [np.moveaxis(x, 2, 0)])
    with lanes(NamedAxis("i", 2), NamedAxis("j", 2)):
        want = run_jaxpr(jaxpr, [np.moveaxis(x, 2, 0)])
    assert_all_close(got, want)


# random programs of one lane


@settings(max_examples=8)
@given(programs(with_collectives(with_checkpoints(LOOP_KINDS))).map(read_all))
def test_random_programs(program: Program) -> None:
    s = lane_sample(program)
    try:
        want = lane_twin(program)
    except LanesError:  # lanes choose different branches, of which one talks to all
        reject()
    with lanes(AXIS):
        check_law_eval(s, want)
        for law in (
            check_law_type,
            check_law_dce,
            check_law_jvp,
            check_law_linearize,
            check_law_transpose,
            check_law_split,
        ):
            law(s)
    check_law_lanes(s, [AXIS])


# what only lanes can do


def test_a_predicate_that_is_the_same_for_all_lanes_is_not_masked() -> None:
    fun = vmap(
        lambda x: while_loop(lambda c: psum(c, "i") < 20.0, lambda c: c * 1.5, x), axis_name="i"
    )
    x = np.array([1.0, 2.0, 0.5])
    jaxpr = make_jaxpr(fun)(x)
    assert "select" not in repr(jaxpr)
    want = x.copy()
    while want.sum() < 20:
        want = want * 1.5
    assert_close(fun(x), want)


def test_a_lane_that_is_done_still_takes_part() -> None:
    # Each lane ends by itself; its last value goes on counting in the sum.
    fun = vmap(
        lambda x: while_loop(lambda c: c < 10.0, lambda c: c + psum(c, "i"), x), axis_name="i"
    )
    want = np.array([1.0, 2.0])
    while (want < 10).any():
        want = np.where(want < 10, want + want.sum(), want)
    assert_close(fun(np.array([1.0, 2.0])), want)


def test_lanes_of_both_branches_are_in_the_sum() -> None:
    fun = lambda x: cond(x > 0, lambda y: psum(y, "i"), lambda y: 0.0 * y, x)
    x = np.array([1.0, -2.0, 3.0])
    assert_close(vmap(fun, axis_name="i")(x), np.array([2.0, 0.0, 2.0]))


def test_a_carry_that_only_the_index_makes_different() -> None:
    def fun(x: Any) -> Any:
        return scan(lambda c, _: (c + axis_index("i"), psum(c, "i")), 0, length=3)

    last, sums = vmap(fun, axis_name="i")(np.zeros(4))
    assert_close(last, np.arange(4, dtype=np.int32) * 3)
    assert_close(sums, np.stack([np.array([0, 6, 12], np.int32)] * 4))


def test_a_loop_without_batched_operands_writes_to_a_ref_of_each_lane() -> None:
    def fun(x: Any) -> Any:
        ref = new_ref(np.zeros(3))

        def outer(i: Any, carry: Any) -> Any:
            def inner(k: Any, c: Any) -> Any:
                ref[k] += 1.0 * axis_index("i") * i
                return c

            return fori_loop(0, 3, inner, carry)

        fori_loop(0, 4, outer, 0)
        return freeze(ref)

    want = np.arange(5.0)[:, None] * 6.0 * np.ones(3)
    assert_close(vmap(fun, axis_name="i")(np.zeros(5)), want)
    assert_close(jit(vmap(fun, axis_name="i"))(np.zeros(5)), want)


def test_a_ref_that_lanes_share_cannot_take_what_differs() -> None:
    ref = new_ref(np.zeros(()))

    def fun(x: Any) -> Any:
        ref[...] = axis_index("i") * 1.0
        return x

    message = "swap: each lane of a vmap writes its own value to a Ref that all lanes share"
    with pytest.raises(TypeError, match=message):
        vmap(fun, axis_name="i")(np.zeros(3))
    vmap(lambda x: ref.__setitem__(..., psum(x, "i")), axis_name="i")(np.arange(3.0))
    assert_close(ref[...], np.float64(3.0))


def test_a_ref_that_lanes_share_adds_up_what_differs() -> None:
    ref = new_ref(np.zeros(()))

    def add(i: Any, carry: Any) -> Any:
        ref[...] += axis_index("i") * 1.0
        return carry

    jit(vmap(lambda: fori_loop(0, 2, add, 0), axis_name="i", axis_size=3))()
    assert_close(ref[...], np.float64(6.0))


def test_keys_folded_by_the_index_are_those_of_a_loop() -> None:
    key = random.key(7)

    def draw(x: Any) -> Any:
        mine = random.fold_in(key, axis_index("i"))
        return x + random.normal(mine, (3,))

    got = vmap(draw, axis_name="i")(np.zeros(4, np.float32))
    want = np.stack([np.asarray(random.normal(random.fold_in(key, k), (3,))) for k in range(4)])
    assert_close(got, want)
    assert len(np.unique(np.asarray(got))) == got.size
    both = lambda x: random.bits(random.fold_in(key, axis_index(("i", "j"))))
    nested = over(both, (("i", 2), ("j", 3)))(np.zeros((2, 3)))
    flat = [np.asarray(random.bits(random.fold_in(key, k))) for k in range(6)]
    assert_close(nested, np.stack(flat).reshape(2, 3))


def test_normalising_over_the_batch_in_a_training_step() -> None:
    rng = np.random.default_rng(5)
    w, xs = rng.normal(size=(3, 2)), rng.normal(size=(6, 3))

    def of_one(w: Any, x: Any) -> Any:
        h = x @ w
        h = (h - pmean(h, "batch")) / fnp.sqrt(pmean((h - pmean(h, "batch")) ** 2, "batch") + 1e-3)
        return (fnp.sin(h) ** 2).sum()

    def of_all(w: Any) -> Any:
        h = xs @ w
        h = (h - h.mean(0)) / fnp.sqrt(((h - h.mean(0)) ** 2).mean(0) + 1e-3)
        return (fnp.sin(h) ** 2).sum()

    loss = lambda w: vmap(of_one, (None, 0), axis_name="batch")(w, xs).sum()
    assert_close(jit(grad(loss))(w), grad(of_all)(w), scale=100.0)


def added(step: Any) -> Any:
    """A sum over the steps of a loop."""
    return lambda x: fori_loop(0, 3, lambda i, s: s + step(i, s, x), np.float64(0.0))


def written(x: Any) -> Any:
    def body(i: Any, r: Any) -> None:
        r[i] = psum(x, "i") * i

    return for_loop(3, body, np.zeros(3)).sum()


SHARED: dict[str, tuple[Any, float]] = {
    "a sum in a fori_loop": (added(lambda i, s, x: psum(x, "i")), 30.0),
    "other collectives": (added(lambda i, s, x: pmax(x, "i") + all_gather(x, "i")[i]), 18.0),
    "results of a scan": (lambda x: scan(lambda s, _: (s + 1, psum(s, "i")), x, None, 3)[1], 42.0),
    "a map": (lambda x: loops.map(lambda y: psum(x * y, "i"), np.arange(3.0)), 30.0),
    "writes": (written, 30.0),
    "a loop in a loop": (added(lambda i, s, x: added(lambda j, t, x: psum(x, "i"))(x)), 90.0),
    "a branch": (added(lambda i, s, x: cond(i > 0, lambda: psum(x, "i"), lambda: s)), 20.0),
    "a call": (added(lambda i, s, x: closed_call(lambda x: psum(x, "i"))(x)), 30.0),
}


@pytest.mark.parametrize("name", SHARED)
def test_what_the_lanes_of_a_loop_share_needs_no_axis(name: str) -> None:
    fun, want = SHARED[name]
    total: Any = lambda x: vmap(fun, out_axes=None, axis_name="i")(x).sum()
    x = np.arange(1.0, 5.0)
    assert_close(total(x), want)
    each = lambda x: vmap(fun, axis_name="i")(x).sum() / 4
    assert_close(jit(grad(total))(x), jit(grad(each))(x))


def test_what_lanes_have_of_their_own_keeps_its_axis_in_a_loop() -> None:
    for step in (lambda i, s, x: axis_index("i"), lambda i, s, x: psum(x, "i") + x):
        with pytest.raises(ValueError, match="out_axes is None for a result that depends"):
            vmap(added(step), out_axes=None, axis_name="i")(np.arange(4.0))
