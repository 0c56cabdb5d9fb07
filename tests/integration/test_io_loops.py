"""Calls of Python in loops, branches and checkpoints: each is made once for each step that is taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import (
    RuleError,
    ShapeDtype,
    custom_vjp,
    disable_jit,
    grad,
    hessian,
    jacfwd,
    jit,
    jvp,
    linearize,
    make_jaxpr,
    vmap,
)
from fiveloop.core.extend import dce
from fiveloop.loops import cond, fori_loop, map, scan, switch, while_loop
from fiveloop.remat import checkpoint
from fiveloop.state import callback, debug_callback
from fiveloop.testing.core.misuse import assert_misuse

FLOAT = ShapeDtype((), "float32")
X = np.float32(0.5)

seen: list[Any] = []


def note(x: Any, name: str = "") -> Any:
    """The sine of a value, which is noted."""
    debug_callback(lambda y: seen.append((name, round(float(y), 4)) if name else float(y)), x)
    return fnp.sin(x)


def answer(*args: Any) -> Any:
    """Notes what it is asked, and gives a number."""
    seen.append(args)
    return np.float32(0.9)


def asked(x: Any) -> Any:
    """A value times what Python gives, asked with nothing that has a derivative."""
    return fnp.sin(x) * callback(answer, FLOAT)


def looped(step: Any) -> Any:
    """Three steps of a loop that is a scan."""
    return lambda x: scan(lambda c, _: (step(c), None), x, None, length=3)[0]


def counted(step: Any) -> Any:
    """Three steps of a `fori_loop`."""
    return lambda x: fori_loop(0, 3, lambda i, c: step(c), x)


def chosen(x: Any) -> Any:
    """Two calls on one branch, one on the other."""
    return cond(x > 0, note, lambda x: note(note(x)), x)


def whiled(x: Any) -> Any:
    """Three steps of a while loop."""
    return while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, note(s[1])), (0, x))[1]


def asking(x: Any) -> Any:
    """A while loop whose condition calls: before each step, and at the end."""

    def holds(state: Any) -> Any:
        note(state[1])
        return state[0] < 3

    return while_loop(holds, lambda s: (s[0] + 1, fnp.sin(s[1])), (0, x))[1]


FUNCTIONS: dict[str, tuple[Callable[[Any], Any], int]] = {
    "scan": (looped(note), 3),
    "scan for results": (looped(asked), 3),
    "fori_loop": (counted(note), 3),
    "fori_loop for results": (counted(asked), 3),
    "scan of scan": (looped(looped(note)), 9),
    "checkpoint of scan of checkpoint": (checkpoint(looped(checkpoint(asked))), 3),
    "checkpoint in checkpoint": (checkpoint(lambda x: checkpoint(note)(fnp.sin(x))), 1),
    "cond": (chosen, 1),
    "scan of cond": (looped(chosen), 3),
    "switch": (lambda x: switch(1, [note, asked, note], x), 1),
    "scan of jit": (looped(jit(asked)), 3),
}
FORWARD: dict[str, tuple[Callable[[Any], Any], int]] = {
    "while": (whiled, 3),
    "condition of while": (asking, 4),
    "checkpoint of while": (checkpoint(whiled), 3),
    "scan of while": (looped(whiled), 9),
}
REVERSE_MODE: dict[str, Callable[[Any], Any]] = {
    "grad": lambda f: grad(f)(X),
    "grad of grad": lambda f: grad(grad(f))(X),
    "grad of checkpoint": lambda f: grad(checkpoint(f))(X),
    "hessian": lambda f: hessian(lambda v: f(v[0]) * v[1])(np.full(2, X)),
}
FORWARD_MODE: dict[str, Callable[[Any], Any]] = {
    "call": lambda f: f(X),
    "jvp": lambda f: jvp(f, (X,), (X,)),
    "linearize": lambda f: linearize(f, X)[1](X),
    "jacfwd": lambda f: jacfwd(lambda v: f(v[0]) * v)(np.full(2, X)),
}
ALL_MODES = {**FORWARD_MODE, **REVERSE_MODE}


def check_once(run: Callable[[Any], Any], fun: Callable[[Any], Any], count: int) -> None:
    """A function makes as many calls as it should, transformed, and jitted after that."""
    seen.clear()
    run(fun)
    assert len(seen) == count
    seen.clear()
    jit(lambda: run(fun))()
    assert len(seen) == count


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("transform", ALL_MODES)
def test_once_a_step(name: str, transform: str) -> None:
    check_once(ALL_MODES[transform], *FUNCTIONS[name])


@pytest.mark.parametrize("name", FORWARD)
@pytest.mark.parametrize("transform", FORWARD_MODE)
def test_once_a_step_of_while(name: str, transform: str) -> None:
    check_once(FORWARD_MODE[transform], *FORWARD[name])


@pytest.mark.parametrize("name", [*FUNCTIONS, *FORWARD])
def test_as_python(name: str) -> None:
    fun, count = {**FUNCTIONS, **FORWARD}[name]
    seen.clear()
    with disable_jit():
        fun(X)
    assert len(seen) == count


def test_in_map() -> None:
    seen.clear()
    map(note, np.arange(4.0, dtype="float32"))
    assert seen == [0.0, 1.0, 2.0, 3.0]


def test_a_while_loop_does_not_ask_twice() -> None:
    def fun(x: Any) -> Any:
        return while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, asked(s[1])), (0, x))[1]

    seen.clear()
    jvp(fun, (X,), (X,))
    assert len(seen) == 3
    assert_misuse(
        lambda: linearize(fun, X),
        RuleError,
        "`while` cannot run a second time for its derivative: what a call in it gives, which must be made once, would "
        "be needed again, and how many steps there are to keep it for is not known; use `for_loop`, `scan` or "
        "`fori_loop`",
        within=fun,
    )


def test_a_while_loop_may_ask_for_what_its_derivative_does_not_need() -> None:
    def body(state: Any) -> Any:
        i, x, _ = state
        return i + 1, fnp.sin(x), callback(answer, FLOAT, i)

    def fun(x: Any) -> Any:
        return while_loop(lambda s: s[0] < 3, body, (0, x, X))[1:]

    seen.clear()
    linearize(fun, X)[1](X)
    assert len(seen) == 3


LANES = np.array([0.5, -1.5, 0.9, -0.3], "float32")


def branches(x: Any) -> Any:
    """Another call on each branch."""
    return cond(x > 0, lambda x: note(x, "+"), lambda x: note(x, "-"), x)


def nested(x: Any) -> Any:
    """Loops and checkpoints on one branch, a branch on the other."""

    def noted(x: Any) -> Any:
        return note(x, "deep")

    deep = looped(checkpoint(noted))
    return cond(x > 0, deep, lambda x: cond(x < -1, lambda x: note(x, "low"), fnp.sin, x), x)


def uneven(x: Any) -> Any:
    """As many steps as the lane asks for, with a branch in each."""

    def holds(state: Any) -> Any:
        note(state[1], "asked")
        return state[0] < 3 * fnp.abs(x)

    return while_loop(holds, lambda s: (s[0] + 1, branches(s[1])), (0, x))[1]


def reply(x: Any) -> Any:
    """Notes a value, and gives twice that."""
    seen.append(("reply", round(float(x), 4)))
    return 2 * x


def replied(x: Any) -> Any:
    """A result on one branch."""
    return cond(x > 0, lambda x: callback(reply, FLOAT, x), lambda x: x, x)


@pytest.mark.parametrize("fun", [branches, nested, uneven, replied])
def test_lanes_that_go_their_own_ways(fun: Callable[[Any], Any]) -> None:
    seen.clear()
    values = [float(fun(x)) for x in LANES]
    want = sorted(seen)
    square = LANES.reshape(2, 2)
    for way in (vmap(fun), jit(vmap(fun)), lambda x: vmap(vmap(fun))(square).reshape(4)):
        seen.clear()
        assert np.allclose(way(LANES), values, rtol=1e-5)
        assert sorted(seen) == want


@pytest.mark.parametrize("fun", [branches, nested])
def test_gradients_of_lanes_that_go_their_own_ways(fun: Callable[[Any], Any]) -> None:
    seen.clear()
    want = [float(grad(fun)(x)) for x in LANES]
    calls = sorted(seen)
    total = lambda xs: vmap(fun)(xs).sum()
    for way in (vmap(grad(fun)), jit(vmap(grad(checkpoint(fun)))), grad(total), jit(grad(total))):
        seen.clear()
        assert np.allclose(way(LANES), want, rtol=1e-5)
        assert sorted(seen) == calls


def test_a_stack_has_the_lanes_that_take_the_branch() -> None:
    stacks: list[Any] = []

    def double(x: Any) -> Any:
        stacks.append(x.tolist())
        return 2 * x

    def fun(x: Any) -> Any:
        return cond(x > 0, lambda x: callback(double, FLOAT, x, vmap="stacked"), lambda x: x, x)

    xs = np.array([1.0, -2.0, 3.0], "float32")
    assert np.array_equal(vmap(fun)(xs), [2.0, -2.0, 6.0])
    assert np.array_equal(jit(vmap(fun))(-np.abs(xs)), -np.abs(xs))
    assert stacks == [[1.0, 3.0]]


def test_order_through_loops_and_branches() -> None:
    lines: list[str] = []

    def say(line: str, x: Any) -> Any:
        debug_callback(lambda x: lines.append(line), x, ordered=True)
        return x

    def step(c: Any, i: Any) -> Any:
        say("start", c)
        c = cond(i % 2 == 0, lambda c: say("even", c), lambda c: say("odd", c), c)
        c = while_loop(lambda c: c > 1, lambda c: say("shrink", c / 2), c)
        return say("end", c) + 1.5, None

    fun = lambda x: say("last", scan(step, say("first", x), np.arange(2))[0])
    want = "first start even shrink end start odd shrink shrink end last".split()
    for way in (fun, jit(fun), lambda x: jvp(fun, (x,), (x,)), jit(checkpoint(fun))):
        lines.clear()
        way(np.float32(1.5))
        assert lines == want


def test_an_error_ends_a_loop() -> None:
    def fails(i: Any) -> None:
        seen.append(int(i))
        if i == 2:
            raise KeyError("two")

    def body(i: Any, x: Any) -> Any:
        debug_callback(fails, i)
        return x + 1

    for way in (lambda f: f, jit, grad):
        seen.clear()
        with pytest.raises(KeyError, match="two"):
            way(lambda x: fori_loop(0, 5, body, x))(X)
        assert seen == [0, 1, 2]


def test_dead_code_leaves_calls_in_loops() -> None:
    def fun(x: Any) -> Any:
        return fori_loop(0, 2, lambda i, c: fori_loop(0, 3, lambda j, d: asked(d), c), x)

    smaller, _ = dce(make_jaxpr(fun)(X), [False])
    assert str(smaller).count("callback") == 1


def test_a_backward_rule_calls_in_each_step() -> None:
    @custom_vjp
    def f(x: Any) -> Any:
        return fnp.sin(x)

    f.defvjp(lambda x: (fnp.sin(x), x), lambda x, ct: (note(x) * 0 + ct * fnp.cos(x),))
    for way in (grad, lambda f: jit(grad(f)), lambda f: grad(checkpoint(f))):
        seen.clear()
        way(looped(f))(X)
        assert len(seen) == 3
        assert seen == sorted(seen)


def said(x: Any) -> Any:
    """The same value, of which Python is told nothing."""
    debug_callback(lambda: seen.append(None))
    return x


ALIKE: dict[str, tuple[Callable[[Any], Any], int]] = {
    "a call": (lambda x: x * x + said(X), 1),
    "jit": (lambda x: x * jit(said)(X), 1),
    "checkpoint": (lambda x: x * checkpoint(said)(X), 1),
    "a loop": (lambda x: fori_loop(0, 4, lambda i, y: said(y), x), 4),
    "a loop that lanes share": (lambda x: x * fori_loop(0, 4, lambda i, y: said(y), X), 4),
    "a branch": (lambda x: cond(x > 0, said, lambda x: x, x), 1),
    "a branch that lanes share": (lambda x: x * cond(np.bool_(True), said, lambda x: x, X), 1),
    "while": (lambda x: while_loop(lambda y: y < 3, lambda y: said(y) + 1, x), 3),
    "while that lanes share": (
        lambda x: x + while_loop(lambda y: y < 3, lambda y: said(y) + 1, X),
        3,
    ),
}


@pytest.mark.parametrize("name", ALIKE)
def test_each_lane_makes_calls_that_are_alike(name: str) -> None:
    fun, steps = ALIKE[name]
    xs = np.full(5, X)
    ways: list[Callable[[], Any]] = [
        lambda: vmap(fun)(xs),
        lambda: jit(vmap(fun))(xs),
        lambda: jvp(vmap(fun), (xs,), (xs,)),
    ]
    if "while" not in name:
        ways += [lambda: vmap(grad(fun))(xs), lambda: jit(vmap(grad(fun)))(xs)]
    for way in ways:
        seen.clear()
        way()
        assert len(seen) == 5 * steps
