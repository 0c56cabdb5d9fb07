"""Arrays that a loop alone uses, a slot in each step, are made slot by slot in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiveloop.core import grad, jit, make_jaxpr, vmap
from fiveloop.core.extend import broadcast_in_dim, select
from fiveloop.core.inspect import recomputes_in_branches
from fiveloop.core.primitives.elementwise import exp
from fiveloop.core.primitives.shape import concatenate
from fiveloop.core.primitives.special import sin, tanh
from fiveloop.loops import explain, planning, scan
from fiveloop.loops.plan.passes import plan

STEPS = 6
RNG = np.random.default_rng(0)
ROWS: Any = RNG.normal(size=(STEPS, 4))
ROW: Any = RNG.normal(size=4)
COLUMN: Any = RNG.normal(size=STEPS)
C64: Any = (ROWS + 1j * ROWS[::-1]).astype(np.complex64)

Program = tuple[Callable[..., Any], tuple[Any, ...]]


def summed(xs: Any, **options: Any) -> Any:
    """A loop that reads a slot of its input in each step."""
    return scan(lambda s, x: (s + tanh(x), s * x), ROW, xs, **options)


def spread(x: Any, *dims: int) -> Any:
    return broadcast_in_dim(x, (STEPS, 4), dims)


MADE_IN_THE_LOOP: dict[str, Program] = {
    "arithmetic": (lambda x, y: summed(2.0 * x - x * y), (ROWS, ROWS[::-1])),
    "backward": (lambda x: summed(x * x, reverse=True), (ROWS,)),
    "of a value": (lambda x, a: summed(x * sin(a)), (ROWS, 0.3)),
    "of a row": (lambda x, r: summed(x + spread(r, 1)), (ROWS, ROW)),
    "of a column": (lambda x, c: summed(x - spread(c, 0)), (ROWS, COLUMN)),
    "of a value alone": (lambda a: summed(spread(a)), (0.7,)),
    "a choice": (lambda x: summed(select(x > 0.0, x, -x)), (ROWS,)),
    "another type": (lambda x: summed((x * 2.0).astype(np.float64)), (ROWS.astype(np.float32),)),
    "complex": (lambda x: scan(lambda s, x: (s + x, s), C64[0], -x), (C64,)),
    "a column": (lambda c: scan(lambda s, x: (s + x, s), 0.0, c * 3.0), (COLUMN,)),
    "made by another loop": (lambda x: summed(summed(x)[1] * 2.0), (ROWS,)),
    "twice": (
        lambda x, y: scan(lambda s, p: (s + p[0] * p[1], s), ROW, (x * 2.0, y + x)),
        (ROWS, ROWS),
    ),
}

LANES: Any = RNG.normal(size=(3, STEPS, 4))
SECOND: Any = LANES.transpose(1, 0, 2)
BEHIND: Any = LANES.transpose(1, 2, 0)

OF_LANES: dict[str, Program] = {
    "lanes in front": (lambda x: vmap(lambda x: summed(2.0 * x - x * x))(x), (LANES,)),
    "lanes second": (lambda x: vmap(lambda x: summed(2.0 * x), in_axes=1)(x), (SECOND,)),
    "lanes behind": (lambda x: vmap(lambda x: summed(2.0 * x), in_axes=2)(x), (BEHIND,)),
    "a row of each lane": (
        lambda x, r: vmap(lambda x, r: summed(x + spread(r, 1)))(x, r),
        (LANES, LANES[:, 0]),
    ),
    "a column of each lane": (
        lambda x, c: vmap(lambda x, c: summed(x * spread(c, 0)))(x, c),
        (LANES, LANES[:, :, 0]),
    ),
    "a row of all": (lambda x, r: vmap(lambda x: summed(x + spread(r, 1)))(x), (LANES, ROW)),
    "a column of all": (lambda x, c: vmap(lambda x: summed(x + spread(c, 0)))(x), (LANES, COLUMN)),
    "as many lanes as steps": (
        lambda x: vmap(lambda x: summed(2.0 * x))(x),
        (RNG.normal(size=(6, 6, 4)),),
    ),
    "twice": (lambda x: vmap(vmap(lambda x: summed(2.0 * x)))(x), (RNG.normal(size=(2, 3, 6, 4)),)),
    "cotangents": (
        lambda x: grad(lambda x: (vmap(summed)(x)[1] ** 2).sum())(x),
        (LANES,),
    ),
}

MADE_BEFORE: dict[str, Program] = {
    "not cheap": (lambda x: summed(exp(x)), (ROWS,)),
    "used elsewhere": (lambda x: (summed(2.0 * x), (2.0 * x)[0]), (ROWS,)),
    "a result": (lambda x: (lambda y: (summed(y), y))(2.0 * x), (ROWS,)),
    "joined": (lambda x: summed(concatenate([x, x])[:STEPS]), (ROWS,)),
    "of more room": (lambda x, y: summed(summed(x)[1] + summed(y)[1]), (ROWS, ROWS)),
}


def arrays(fun: Callable[..., Any], args: tuple[Any, ...]) -> int:
    """How many equations outside of loops make an array of rows."""
    jaxpr = plan(make_jaxpr(fun)(*args))
    found = [e for e in jaxpr.eqns if e.primitive.name not in ("for", "broadcast_in_dim")]
    return sum(v.aval.shape[:1] == (STEPS,) for e in found for v in e.outvars)


@pytest.mark.parametrize("name", MADE_IN_THE_LOOP)
def test_it_is_made_in_the_loop(name: str) -> None:
    fun, args = MADE_IN_THE_LOOP[name]
    assert arrays(fun, args) == 0
    with planning(fuse=False):
        assert arrays(fun, args) > 0 or name == "of a value alone"


@pytest.mark.parametrize("name", MADE_BEFORE)
def test_it_is_made_before_the_loop(name: str) -> None:
    fun, args = MADE_BEFORE[name]
    assert arrays(fun, args) > 0


@pytest.mark.parametrize("name", OF_LANES)
def test_slots_of_lanes_are_made_in_the_loop(name: str) -> None:
    fun, args = OF_LANES[name]
    told = [d for loop in explain(fun, *args).loops for d in loop.decisions if d.step == "fuse"]
    assert any(d.done for d in told) == (name != "lanes behind")


@pytest.mark.parametrize("programs", [MADE_IN_THE_LOOP, MADE_BEFORE, OF_LANES])
def test_all_results_are_the_same(programs: dict[str, Program]) -> None:
    for fun, args in programs.values():
        check_results(fun, args)


def check_results(fun: Callable[..., Any], args: tuple[Any, ...]) -> None:
    got = jit(lambda *args: fun(*args))(*args)
    with planning(False):
        want = jit(lambda *args: fun(*args))(*args)
    for x, y in zip(_leaves(got), _leaves(want), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-6)


def test_an_array_that_the_loop_changes_is_read_before() -> None:
    def program(x: Any) -> Any:
        def step(y: Any, z: Any) -> Any:
            i, row = z
            return y.at[i].set(y[i] * row + 1.0), None

        return scan(step, x, (np.arange(STEPS), x * 2.0))[0]

    np.testing.assert_allclose(np.asarray(jit(program)(ROWS)), ROWS * (2.0 * ROWS) + 1.0)


def test_cotangents_of_outputs_are_never_there_as_a_whole() -> None:
    def loss(x: Any, w: Any) -> Any:
        return (summed(x)[1] ** 2 * w).sum()

    of_rows = (np.zeros((1024, 64), np.float32), np.zeros((1024, 64), np.float32))

    def small(x: Any, w: Any) -> Any:
        return (scan(lambda s, x: (s + tanh(x), s), x[0], x)[1] ** 2 * w).sum()

    fused = jit(grad(small)).lower(*of_rows).compile().memory_analysis().temp
    with planning(fuse=False):
        unfused = (
            jit(grad(lambda *args: small(*args))).lower(*of_rows).compile().memory_analysis().temp
        )
    assert fused < 2.1 * of_rows[0].nbytes
    # Where arrays to be written over are made when they are needed, the cotangents have room in one of those.
    less = 0.9 * of_rows[0].nbytes if recomputes_in_branches() else 0
    assert fused <= unfused - less + 64
    step = 1e-5 * RNG.normal(size=ROWS.shape)
    slope = (float(loss(ROWS + step, ROWS)) - float(loss(ROWS - step, ROWS))) / 2.0
    found = np.asarray(jit(grad(loss))(ROWS, ROWS))
    np.testing.assert_allclose((found * step).sum(), slope, rtol=1e-6)


def test_it_is_told() -> None:
    found = explain(lambda x: summed(2.0 * x), ROWS).loops[-1].decision("fuse", "xs")
    assert found.done
    made = "each step computes its slot, so the whole array never exists"
    assert found.reason == f"{made}; its operands stay: f64[{STEPS},4]"
    of_a_value = explain(lambda a: summed(spread(a)), 0.7).loops[-1].decision("fuse", "xs")
    assert of_a_value.reason == made


def test_why_not_is_told() -> None:
    def shared(x: Any) -> Any:
        y = 2.0 * x
        return summed(y), y[0]

    left = explain(shared, ROWS).loops[-1].decision("fuse", "xs")
    assert not left.done
    assert left.reason == "it is made before the loop: something else uses it, too"
    dear = explain(lambda x: summed(summed(x)[1] + summed(x * x)[1]), ROWS).loops[-1]
    left = dear.decision("fuse", "xs")
    assert not left.done
    assert "its operands take more memory" in left.reason
    uncheap = explain(lambda x: summed(exp(x)), ROWS).loops[-1].decision("fuse", "xs")
    assert "`exp` is not cheap enough" in uncheap.reason


def _leaves(x: Any) -> list[Any]:
    if isinstance(x, tuple):
        return [leaf for part in x for leaf in _leaves(part)]
    return [np.asarray(x)]
