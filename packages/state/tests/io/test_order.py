"""Ordered calls are made in the order of the program; a token that each hands on sees to that."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fiveloop.core import (
    ShapeDtype,
    closed_call,
    custom_jvp,
    grad,
    jit,
    make_jaxpr,
    stop_gradient,
    vmap,
)
from fiveloop.core.lower.dispatch import prepared
from fiveloop.core.lower.module import Emission, lower_jaxpr
from fiveloop.state import callback, debug_callback

FLOAT = ShapeDtype((), "float32")
X = np.float32(0.5)


class Log:
    """A list that functions append to."""

    def __init__(self) -> None:
        self.lines: list[Any] = []

    def say(self, line: str, x: Any) -> Any:
        """The same value, after asking for a line, in order."""
        debug_callback(lambda x: self.lines.append(line), x, ordered=True)
        return x


def test_many_calls_in_a_row() -> None:
    log = Log()

    @jit
    def fun(x: Any) -> None:
        for k in range(30):
            log.say(f"{k}", x if k % 2 else x * x)

    fun(X)
    fun(X)
    assert log.lines == [str(k) for k in range(30)] * 2


def test_calls_with_results_and_calls_without() -> None:
    log = Log()

    def give(x: Any) -> Any:
        log.lines.append("give")
        return x + 1

    @jit
    def fun(x: Any) -> Any:
        log.say("before", x)
        y = callback(give, FLOAT, x, ordered=True)
        log.say("after", x)  # it does not depend on y
        return y * callback(give, FLOAT, x, ordered=True)

    assert fun(X) == 2.25
    assert log.lines == ["before", "give", "after", "give"]


def test_within_calls_and_rules() -> None:
    log = Log()

    @custom_jvp
    def ruled(x: Any) -> Any:
        log.say("ruled", x)
        return x * x

    ruled.defjvp(lambda primals, dots: (ruled(primals[0]), 2 * primals[0] * dots[0]))

    def fun(x: Any) -> Any:
        log.say("start", x)
        y = jit(lambda x: ruled(log.say("inner", x)))(x)
        log.say("middle", x)
        z = closed_call(lambda x: log.say("closed", x))(x)
        log.say("end", x)
        return y * z

    lines = ["start", "inner", "ruled", "middle", "closed", "end"]
    for run in (fun, jit(fun), grad(fun), jit(grad(fun)), grad(jit(fun))):
        log.lines.clear()
        run(X)
        assert log.lines == lines


def test_across_programs() -> None:
    log = Log()
    one = jit(lambda x: log.say("one", x))
    two = jit(lambda x: log.say("two", x))
    for _ in range(5):
        two(one(X))
    assert log.lines == ["one", "two"] * 5


def test_each_call_makes_those_of_all_lanes() -> None:
    lines: list[float] = []

    @jit
    @vmap
    def fun(x: Any) -> Any:
        debug_callback(lambda x: lines.append(float(x)), x, ordered=True)
        debug_callback(lambda x: lines.append(float(x)), -x, ordered=True)
        return x

    fun(np.array([1.0, 2.0, 3.0], "float32"))
    assert lines == [1.0, 2.0, 3.0, -1.0, -2.0, -3.0]


def test_the_token_is_a_value_of_the_program() -> None:
    jaxpr = make_jaxpr(lambda x: Log().say("x", x))(X)
    assert "OrderedIO" in str(jaxpr)
    ready = str(prepared(jaxpr).ready())
    assert "kind=ordered" not in ready
    assert "has_token=True" in ready


def test_an_ordered_call_that_was_not_handled_is_not_lowered() -> None:
    with pytest.raises(TypeError, match="thread its token first"):
        lower_without_passes(lambda x: Log().say("x", stop_gradient(x)))


def lower_without_passes(fun: Any) -> None:
    """The module of a function as it was traced."""
    lower_jaxpr(make_jaxpr(fun)(X), "cpu", Emission.PLAIN)
