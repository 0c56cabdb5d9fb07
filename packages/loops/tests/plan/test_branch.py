"""What a branch alone reads and writes is read and written for that branch alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiveloop.core import Jaxpr, grad, jit, make_jaxpr, vmap
from fiveloop.core.extend import broadcast_in_dim, jaxprs_in
from fiveloop.core.primitives.special import sin, tanh
from fiveloop.loops import cond, explain, for_loop, planning, scan, switch
from fiveloop.loops.plan import branch
from fiveloop.loops.plan.passes import plan

STEPS, WIDTH = 6, 5000
RNG = np.random.default_rng(0)
ROWS: Any = RNG.normal(size=(STEPS, WIDTH)).astype(np.float32)
ROW: Any = RNG.normal(size=WIDTH).astype(np.float32)
FLAGS: Any = np.array([True, False, False, True, False, True])
PLACES: Any = np.array([0, 1, 2, 1, 0, 2], np.int32)

Program = tuple[Callable[..., Any], tuple[Any, ...]]


def zeros(x: Any) -> Any:
    return broadcast_in_dim(np.zeros((), x.dtype), x.shape, ())


def outputs(x: Any, row: Any) -> Any:
    """A scan that gives rows, zeros where a flag is off."""
    return scan(lambda s, f: (s, cond(f, lambda: tanh(s * row), lambda: zeros(row))), x, FLAGS)[1]


def inputs(xs: Any) -> Any:
    """A scan that uses a row where a flag is on."""

    def step(s: Any, row: Any) -> Any:
        x, flag = row
        return cond(flag, lambda s, x: s + tanh(x).sum(), lambda s, x: s, s, x), None

    return scan(step, 0.0, (xs, FLAGS))[0]


def kept(x: Any) -> Any:
    """A scan whose derivative keeps rows, where a flag is on."""

    def step(s: Any, flag: Any) -> Any:
        return cond(flag, lambda s: tanh(sin(s) * 1.1), lambda s: 0.5 * s, s), None

    return scan(step, x, FLAGS)[0].sum()


def added(row: Any) -> Any:
    """A loop that adds to a Ref as a whole, or nothing."""

    def body(i: Any, refs: Any) -> None:
        total, flags = refs
        total[...] += cond(flags[i], lambda: row * 2.0, lambda: zeros(row))

    return for_loop(STEPS, body, (row, FLAGS))[0]


def chosen(x: Any, row: Any) -> Any:
    """Of three branches two give zeros."""

    def step(s: Any, k: Any) -> Any:
        return s + 1.0, switch(k, [lambda: zeros(row), lambda: row * s, lambda: zeros(row)])

    return scan(step, x, PLACES)[1]


def grouped(xs: Any) -> Any:
    """Lanes in groups, of which one keeps what it makes."""

    def dear(x: Any) -> Any:
        return scan(lambda s, _: (tanh(s * 1.1), None), x, length=40)[0]

    return vmap(lambda x: cond(x[0] > 0, dear, lambda x: 0.5 * x, x, vmap="group"))(xs)


def nested(x: Any) -> Any:
    """A branch in a branch."""

    def inner(s: Any, flag: Any) -> Any:
        return cond(flag, lambda s: tanh(sin(s) * 1.1), lambda s: s, s)

    def step(s: Any, z: Any) -> Any:
        flag, k = z
        return cond(k > 0, lambda s: inner(s, flag), lambda s: 0.5 * s, s), None

    return scan(step, x, (FLAGS, PLACES))[0].sum()


def total(fun: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: (fun(*args) ** 2).sum()


WRITTEN: dict[str, Program] = {
    "outputs": (outputs, (0.3, ROW)),
    "added": (added, (ROW,)),
    "chosen": (chosen, (0.3, ROW)),
    "used elsewhere": (
        lambda x: scan(
            lambda s, f: (lambda y: (s + y.sum(), y))(cond(f, lambda: x * s, lambda: zeros(x))),
            np.float32(0.5),
            FLAGS,
        ),
        (ROW,),
    ),
    "kept": (grad(kept), (ROW,)),
    "grouped": (grad(total(grouped)), (ROWS[:, :600],)),
}
READ: dict[str, Program] = {
    "inputs": (inputs, (ROWS,)),
    "of inputs": (grad(inputs), (ROWS,)),
    "kept": (grad(kept), (ROW,)),
    "of outputs": (grad(total(outputs)), (np.float32(0.3), ROW)),
    "grouped": (grad(total(grouped)), (ROWS[:, :600],)),
    "nested": (grad(nested), (ROW,)),
}
LEFT: dict[str, Program] = {
    "small": (outputs, (0.3, ROW[:9])),
    "all branches give": (
        lambda x: scan(lambda s, f: (s, cond(f, lambda: x * 2.0, lambda: x)), 0.0, FLAGS)[1],
        (ROW,),
    ),
    "over what was there": (
        lambda x, y: for_loop(
            STEPS,
            lambda i, r: r.__setitem__(i, cond(i > 2, lambda: x * 2.0, lambda: zeros(x))),
            y,
        ),
        (ROW, ROWS),
    ),
}
ALL = {
    **{f"written {name}": program for name, program in WRITTEN.items()},
    **{f"read {name}": program for name, program in READ.items()},
    **{f"left {name}": program for name, program in LEFT.items()},
}


def decisions(fun: Callable[..., Any], args: tuple[Any, ...]) -> list[str]:
    """What the step tells of all loops of a program."""
    return [
        d.reason for loop in explain(fun, *args).loops for d in loop.decisions if d.step == "branch"
    ]


@pytest.mark.parametrize("name", WRITTEN)
def test_a_write_is_guarded(name: str) -> None:
    fun, args = WRITTEN[name]
    assert branch.WRITTEN in decisions(fun, args)
    assert guards(plan(make_jaxpr(fun)(*args)))
    with planning(branch=False):
        assert not guards(plan(make_jaxpr(lambda *args: fun(*args))(*args)))


@pytest.mark.parametrize("name", READ)
def test_a_read_is_in_its_branch(name: str) -> None:
    fun, args = READ[name]
    assert branch.READ in decisions(fun, args)


@pytest.mark.parametrize("name", LEFT)
def test_it_is_left_where_it_is(name: str) -> None:
    fun, args = LEFT[name]
    assert decisions(fun, args) == ([branch.NOT_ZERO] if name == "over what was there" else [])


@pytest.mark.parametrize("name", ALL)
def test_results_are_the_same(name: str) -> None:
    fun, args = ALL[name]
    got = jit(lambda *args: fun(*args))(*args)
    with planning(False):
        want = jit(lambda *args: fun(*args))(*args)
    for x, y in zip(_leaves(got), _leaves(want), strict=True):
        np.testing.assert_allclose(x, y, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("name", ALL)
def test_no_array_is_copied(name: str) -> None:
    fun, args = ALL[name]
    assert explain(fun, *args).copies == 0


def test_loops_that_guard_writes_are_not_told_of() -> None:
    assert [loop.number for loop in explain(outputs, 0.3, ROW).loops] == ["1"]


def guards(jaxpr: Jaxpr) -> int:
    """How many writes wait for their branch."""
    count = 0
    for eqn in jaxpr.eqns:
        count += eqn.primitive.name == "while"
        count += sum(map(guards, jaxprs_in(eqn.params)))
    return count


def _leaves(x: Any) -> list[Any]:
    if isinstance(x, tuple):
        return [leaf for part in x for leaf in _leaves(part)]
    return [np.asarray(x)]
