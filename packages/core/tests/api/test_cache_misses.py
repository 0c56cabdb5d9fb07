"""Why a jitted function is traced again, in words."""

from __future__ import annotations

from typing import Any

import numpy as np

from fiveloop.core import explain_cache_misses, jit, make_user_context
from fiveloop.core.arrays import device_put


def told(*calls: Any) -> list[str]:
    """What is told of each call, which comes as (function, arguments, named arguments)."""
    lines: list[str] = []
    with explain_cache_misses(lines.append):
        for fun, args, kwargs in calls:
            fun(*args, **kwargs)
    return [line.partition("is traced: ")[2].partition("; at ")[0] for line in lines]


def test_the_argument_that_changed_is_named() -> None:
    x = device_put(np.ones(3, "f4"))
    f = jit(lambda x, tree, n=1: x * tree["w"], static_argnames="n")
    calls = [
        (f, (x, {"w": x}), {}),
        (f, (x, {"w": x}), {}),
        (f, (x, {"w": np.ones(3)}), {}),
        (f, (x, {"w": 1.5}), {}),
        (f, (x, {"w": np.float32(1.5)}), {}),
        (f, (x, {"w": x, "b": x}), {}),
        (f, (x, {"w": x}), {"n": 2}),
        (f, (x, {"w": x}), {"n": 2}),
        (f, (x, {"w": x}), {"n": True}),
    ]
    lines = told(*calls)
    assert lines[0] == "it has not been called before"
    assert lines[1] == "argument `tree`['w'] is f64[3] now, and was f32[3]"
    assert lines[2].startswith("argument `tree`['w'] is f32*[] now, and was f64[3]")
    assert lines[3] == (
        "argument `tree`['w'] is f32[] now, and was f32*[] (the other is weakly typed, as a Python number is)"
    )
    assert lines[4].startswith("the arguments have the structure PyTreeDef(")
    assert lines[5:] == ["static argument `n` has another value"] * 2


def test_a_call_is_compared_with_the_nearest_before() -> None:
    f = jit(lambda x, n=2: x * n)
    lines = told((f, (np.ones(3, "f4"),), {}), (f, (1.0, 2), {}), (f, (np.ones(3),), {}))
    assert lines[2] == "argument `x` is f64[3] now, and was f32[3]"


def test_the_context_and_a_function_made_anew_are_told() -> None:
    mode = make_user_context("a", name="mode")
    f = jit(lambda x: x * 2)
    f(1.0)
    with mode("b"):
        (line,) = told((f, (1.0,), {}), (f, (1.0,), {}))
    assert line.startswith("the context has changed: mode #")
    held: list[Any] = []

    def fresh() -> Any:
        return jit(lambda x: x * len([*held, 1]))

    first, again = told((fresh(), (1.0,), {}), (fresh(), (1.0,), {}))
    assert first == "it has not been called before"
    assert again.startswith("`jit` was called anew, on a function made anew")
    assert told((f, (1.0,), {})) == []


def test_the_line_of_the_call_is_told() -> None:
    lines: list[str] = []
    with explain_cache_misses(lines.append):
        jit(lambda x: x)(1.0)
    assert lines[0].startswith("jit of <lambda> is traced: it has not been called before; at ")
    assert "test_cache_misses.py" in lines[0]
