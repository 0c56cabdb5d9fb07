"""`explain`: what it says of each loop, as text and as data."""

from __future__ import annotations

import json
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

from fiveloop.core import ShapeDtype, grad, jit, vmap
from fiveloop.core.primitives.special import tanh
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
    assert_says(
        explain(swaps, H),
        """
        loop 1: fori_loop of `swap`, test_explain.py:37, 40 steps
          carry  f32[40]  Ref, at indices
          + promote: carry: it is only indexed and updated at indices, so it runs as a Ref, test_explain.py:37
          - carry: carry: it is not carried from step to step: a step writes it more than once, test_explain.py:35
          + ranges: carry: indices are in bounds, so they are not checked at run time, test_explain.py:37
          in place: reads are ordered before writes once a step, by `barrier`: no array is copied
        reads are ordered before writes by `barrier`: no copies
        """,
    )


def test_the_gradient_of_a_recurrence() -> None:
    assert_says(
        explain(grad(recurrent), W, {"b": H}),
        """
        loop 1: scan of `step`, forward half of a derivative, test_explain.py:45, 12 steps
          w            f32[40,40]  value, the same in all steps
          params['b']  f32[40]     value, the same in all steps
          carry[0]     f32[40]     carried as a value
          xs           f32[12,40]  Ref that is only read, at indices
          residual     f32[12,40]  Ref, at indices
          - promote: carry[0]: it stays a value: `dot_general` uses it whole, test_explain.py:43
          - promote: carry[1]: it stays a value: it is indexed at fixed places alone, test_explain.py:45
          - constants: w, params['b']: it stays a value: no step reads it at a traced index, test_explain.py:43
          + passthrough: carry[0]: f32[40] of each step is its value after the step before, test_explain.py:45
          - unroll: a turn is one step: a step on 40 elements is more than one kernel: `dot_general`, test_explain.py:43
          + ranges: xs, residual: indices are in bounds, so they are not checked at run time, test_explain.py:45
          keeps f32[40] of each step: 1,920 bytes, test_explain.py:43
          in place: no write uses an element of another array that changes: no order is needed
        loop 2: scan of `step`, backward half of a derivative, test_explain.py:45, 12 steps, counting down
          carry[0]               f32[40]     value, the same in all steps
          w                      f32[40,40]  value, the same in all steps
          residual               f32[12,40]  Ref that is only read, at indices
          cotangent of carry[0]  f32[40]     carried as a value
          factor                 f32[12,40]  Ref, at indices
          factor                 f32[12,40]  Ref, at indices
          + sink: cotangent of w: the factors of its terms are saved, and contracted after the loop, test_explain.py:45
          - unroll: a turn is one step: a step on 40 elements is more than one kernel: `select`, test_explain.py:45
          + ranges: residual, factor: indices are in bounds, so they are not checked at run time, test_explain.py:45
          in place: no write uses an element of another array that changes: no order is needed
        nothing in these loops needs an order
        """,
    )


def test_loops_in_loops_calls_and_branches() -> None:
    assert_says(
        explain(nested, H, H),
        """
        loop 1: for_loop of `outer`, test_explain.py:60, 4 steps
          within call of `nested`
          x              f32[40]     value, the same in all steps
          ref            f32[40]     Ref that is only read, at indices
          state['rows']  f32[12,40]  Ref, at indices
          state['sum']   f32[]       carried as a value
          + fold: state['sum']: a read takes the value that was written there before, test_explain.py:58
          - constants: x: it stays a value: `while` uses it whole, test_explain.py:64
          - unroll: a turn is one step: it runs an inner loop, test_explain.py:57
          + ranges: state['rows']: indices are in bounds, so they are not checked at run time, test_explain.py:60
          in place: no write uses an element of another array that changes: no order is needed
        loop 1.1: fori_loop of `inner`, test_explain.py:57, 3 steps
          ref    f32[40]  Ref that is only read, at indices
          carry  f32[]    carried as a value
          - unroll: a turn is one step: 3 steps are too few for several turns of 4, test_explain.py:57
          + ranges: ref: indices are in bounds, so they are not checked at run time, test_explain.py:57
          in place: no Ref changes at indices
        loop 1.2: while_loop of `<lambda>`, test_explain.py:64, a number of steps known only at run time
          within cond branch 1
          val  f32[40]  carried as a value
          - plan: only `promote` needs no number of steps; `scan(until=)` has one and may end early, test_explain.py:64
          in place: no Ref changes at indices, and each step makes a new array for each array that is carried as a value
        nothing in these loops needs an order
        """,
    )


def test_lines_of_what_is_read_and_added_up() -> None:
    def lines(x: Any) -> Any:
        def step(i: Any, total: Any) -> Any:
            y = (x * total).sum()
            return total + y * x[i]

        return fori_loop(0, 3, step, 0.0)

    (loop,) = explain(lines, H).loops
    read = loop.decision("constants", "x")
    assert (read.done, read.line) == (True, f"test_explain.py:{line_of(lines) + 3}")
    whole = lambda x: fori_loop(0, 3, lambda i, total: total * (x * total).sum() + i, 1.0)
    added = explain(grad(whole), H).loops[-1].decision("sink", "cotangent of x")
    assert (added.done, added.line) == (False, f"test_explain.py:{line_of(whole)}")


def line_of(fun: Any) -> int:
    line: int = fun.__code__.co_firstlineno
    return line


def test_what_the_derivative_reads_from_where() -> None:
    outputs = lambda h: scan(lambda h, x: (tanh(h * x), tanh(h * x)), h, XS)[1].sum()
    told = [d for d in explain(grad(outputs), H).loops[0].decisions if d.step == "passthrough"]
    assert [(d.subject, d.reason) for d in told] == [
        ("ys", f"f32[{N}] of each step is an element of it after the loop"),
    ]
    assert all(d.done for d in told)
    with planning(passthrough=False):
        loop = explain(grad(outputs), H).loops[0]
    assert loop.decision("passthrough").reason == "it is turned off"


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
    with pytest.raises(KeyError, match=r"got 'promote away'"):
        found.loops[0].decision("promote", "away")
    plain = explain(lambda x: for_loop(3, lambda i, r: r.__setitem__((), 0.0), x), 1.0).loops[0]
    with pytest.raises(KeyError, match=r"decision of loop 1, which has none; got 'fuse'"):
        plain.decision("fuse")


def test_a_carry_is_a_value_in_lanes_branches_and_inner_loops_too() -> None:
    def inner(x: Any) -> Any:
        def step(i: Any, y: Any) -> Any:
            return cond(y.sum() > i, lambda: fori_loop(0, 2, lambda j, z: tanh(z), y), lambda: y)

        return fori_loop(0, 3, step, x)

    for f, x in ((inner, H), (vmap(inner), XS)):
        loop = explain(f, x).loops[0]
        assert loop.operands[-1].use == "carried as a value"
        assert loop.in_place.startswith(
            "no Ref changes at indices, and each step makes a new array"
        )

    def at_an_index(i: Any, ref: Any) -> None:
        cond(ref[0] > i, lambda: ref.__setitem__(i, 1.0), lambda: None)

    for f, x in ((lambda x: for_loop(3, at_an_index, x), H),):
        assert explain(f, x).loops[0].operands[0].use == "Ref, at indices"
        assert explain(vmap(f), XS).loops[0].operands[0].use == "Ref, at indices"


def test_a_batched_function_and_types_alone() -> None:
    found = explain(vmap(swaps), ShapeDtype((3, N), np.float32))
    assert [loop.operands[0].type for loop in found.loops] == [f"f32[3,{N}]"]
    assert len(found) == 1
    assert found.loops[0].copies == found.copies


def test_without_loops() -> None:
    assert str(explain(lambda x: x + 1.0, H)) == "there are no loops"


def test_unrolled_loops() -> None:
    unrolled = explain(lambda x: fori_loop(0, 100, lambda i, s: s * 2 + i, x), 1.0)
    assert "unroll: 4 steps are compiled into one iteration" in str(unrolled)


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


def test_arrays_that_a_while_carries() -> None:
    """One that is only indexed is a Ref, unless that is off; then it is updated in place all the same."""

    def swapped(x: Any) -> Any:
        def body(val: Any) -> Any:
            i, y = val
            j = (7 * i) % N
            return i + 1, y.at[i].set(y[j]).at[j].set(y[i])

        return while_loop(lambda val: val[0] < N, body, (0, x))[1]

    def squares(x: Any) -> Any:
        body = lambda val: (val[0] + 1, val[1].at[val[0]].set(val[0] * 2.0))
        return while_loop(lambda val: val[0] < N, body, (0, x))[1]

    for f, place in ((swapped, "reads are ordered"), (squares, "no write uses an element")):
        (loop,) = explain(f, H).loops
        assert [(o.name, o.use) for o in loop.operands][:2] == [
            ("val[0]", "carried as a value"),
            ("val[1]", "Ref, at indices"),
        ]
        assert loop.decision("promote", "val[1]").done
        assert loop.in_place.startswith(place)
        with planning(promote=False):
            (left,) = explain(f, H).loops
        assert [o.use for o in left.operands][:2] == ["carried as a value"] * 2
        assert all(d.step != "promote" or not d.done for d in left.decisions)
        assert ("makes a new array" in left.in_place) == (f is swapped)


def test_branches_that_loop_are_no_loops() -> None:
    def body(i: Any, y: Any) -> None:
        def looping() -> None:
            for_loop(3, lambda j, _: y.__setitem__((i + j) % N, y[j] * 0.5), ())

        cond(y[i] > 0, looping, lambda: y.__setitem__(i, 1.0))

    found = explain(lambda x: for_loop(N, body, x), H)
    assert [(loop.number, loop.call, loop.within) for loop in found.loops] == [
        ("1", "for_loop", ()),
        ("1.1", "for_loop", ("cond branch 1",)),
    ]


def test_a_function_that_returns_a_ref_it_made_is_explained() -> None:
    def made(x: Any) -> Any:
        return new_ref(for_loop(N, lambda i, r: r.__setitem__(i, r[i] * 2.0), x))

    (loop,) = explain(made, H).loops
    assert loop.call == "for_loop"
