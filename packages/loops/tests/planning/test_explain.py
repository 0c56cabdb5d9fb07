"""`explain`: what it says of each loop, as text and as data."""

from __future__ import annotations

import json
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

from fiveloop.core import ShapeDtype, grad, jit, vmap
from fiveloop.core.primitives.elementwise import tanh
from fiveloop.loops import (
    Explanation,
    cond,
    explain,
    for_loop,
    fori_loop,
    planning,
    scan,
    while_loop,
)
from fiveloop.state import new_ref

N, STEPS = 40, 12
W = np.eye(N, dtype=np.float32)
H = np.ones(N, np.float32)
XS = np.ones((STEPS, N), np.float32)


def swaps(x: Any) -> Any:
    def swap(i: Any, x: Any) -> Any:
        j = (7 * i) % N
        return x.at[i].set(x[j]).at[j].set(x[i])

    return fori_loop(0, N, swap, x)


def recurrent(w: Any, params: Any) -> Any:
    def step(carry: Any, x: Any) -> Any:
        h, seen = carry
        return (tanh(w @ h + x + params["b"]), seen.at[0].add(1.0)), h[0]

    (h, _), _ = scan(step, (H, H), XS)
    return (h * h).sum()


@jit
def nested(x: Any, table: Any) -> Any:
    ref = new_ref(table)

    def outer(i: Any, state: Any) -> None:
        def inner(j: Any, total: Any) -> Any:
            return total + ref[j]

        state["sum"][...] = fori_loop(0, 3, inner, state["sum"][...])
        state["rows"][i] = cond(state["sum"][...] > 0, lambda: doubled(x), lambda: x)

    return for_loop(4, outer, {"sum": np.float32(0), "rows": XS})


def doubled(x: Any) -> Any:
    return while_loop(lambda y: y[0] < 9, lambda y: y * 2, x)


def assert_says(found: Explanation, expected: str) -> None:
    """The text, whichever way `order` is written with this jaxlib."""
    got = str(found).replace("scalar_if", "barrier")
    assert got.splitlines() == dedent(expected).strip().splitlines(), got


def test_a_loop_that_swaps() -> None:
    assert_says(explain(swaps, H), """""")


def test_the_gradient_of_a_recurrence() -> None:
    assert_says(explain(grad(recurrent), W, {"b": H}), """""")


def test_loops_in_loops_calls_and_branches() -> None:
    assert_says(explain(nested, H, H), """""")


def test_steps_that_are_off() -> None:
    with planning(promote=False, ranges=False):
        found = explain(swaps, H)
    (loop,) = found.loops
    assert not loop.decision("promote").done
    assert loop.decision("ranges").reason == "it is turned off"
    assert loop.operands[0].use == "carried as a value"


def test_the_data() -> None:
    found = explain(jit(grad(recurrent)), W, {"b": H})
    data = json.loads(json.dumps(found.to_dict()))
    forward, backward = data["loops"]
    assert forward["residual_bytes"] == sum(s["bytes"] for s in forward["saved"]) > 0
    assert forward["steps"] == backward["steps"] == STEPS
    assert (forward["reverse"], backward["reverse"]) == (False, True)
    assert found.loops[1].decision("sink", "cotangent of w").done
    with pytest.raises(KeyError, match=r"expected a decision of loop 1, one of .*; got 'fly'"):
        found.loops[0].decision("fly")


def test_a_batched_function_and_types_alone() -> None:
    found = explain(vmap(swaps), ShapeDtype((3, N), np.float32))
    assert [loop.operands[0].type for loop in found.loops] == [f"f32[3,{N}]"]
    assert len(found) == 1
    assert found.loops[0].copies == found.copies


def test_without_loops() -> None:
    assert str(explain(lambda x: x + 1.0, H)) == "there are no loops"


def test_unrolled_loops() -> None:
    unrolled = explain(lambda x: fori_loop(0, 100, lambda i, s: s * 2 + i, x, unroll="auto"), 1.0)
    assert "unroll: 8 steps are compiled into one turn" in str(unrolled)


def test_what_is_explained_is_traced_apart() -> None:
    traces: list[None] = []

    @jit
    def counted(x: Any) -> Any:
        traces.append(None)
        return swaps(x)

    want = np.asarray(counted(H))
    explain(counted, H)
    np.testing.assert_array_equal(np.asarray(counted(H)), want)
    assert len(traces) == 2


def test_something_that_is_no_function() -> None:
    with pytest.raises(TypeError, match="explain: expected a function, got"):
        explain(3, H)  # type: ignore[arg-type]
