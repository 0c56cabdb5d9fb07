"""`explain`: why a step did nothing about something, with the line that decides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiveloop.core import ds, grad
from fiveloop.core.primitives.elementwise import exp
from fiveloop.core.primitives.special import sin
from fiveloop.loops import LoopReport, cond, explain, for_loop, fori_loop, planning, scan
from fiveloop.loops.options import STEPS
from fiveloop.state import accumulate

N = 40
X = np.ones(N, np.float32)
ROWS = np.ones((12, N), np.float32)
TABLE = np.ones((N, N), np.float32)
PICKS = np.arange(N)


def only_loop(fun: Callable[..., Any], *args: Any) -> LoopReport:
    (loop,) = explain(fun, *args).loops
    return loop


def told(loop: LoopReport, step: str, subject: str = "") -> list[tuple[bool, str]]:
    """What a step did, or did not, with something."""
    return [
        (d.done, d.reason)
        for d in loop.decisions
        if d.step == step and (not subject or d.subject == subject)
    ]


# carry: an element that one step writes and a later one reads


def far(i: Any, r: Any, picks: Any) -> None:
    r[i + 9] = r[i] * 2.0


def from_data(i: Any, r: Any, picks: Any) -> None:
    r[i] = r[picks[i]] * 2.0


def to_data(i: Any, r: Any, picks: Any) -> None:
    r[picks[i]] = r[i] * 2.0


def strides(i: Any, r: Any, picks: Any) -> None:
    r[2 * i] = r[i] * 2.0


def one_place(i: Any, r: Any, picks: Any) -> None:
    r[i] = r[5] * 2.0


def the_same_place(i: Any, r: Any, picks: Any) -> None:
    r[3] = r[3] * 2.0


def whole(i: Any, r: Any, picks: Any) -> None:
    r[i] = r[...].sum()


def in_a_branch(i: Any, r: Any, picks: Any) -> None:
    cond(r[i] > 0.0, lambda: r.__setitem__(i + 1, r[i]), lambda: None)


def in_an_inner_loop(i: Any, r: Any, picks: Any) -> None:
    for_loop(3, lambda j, q: q.__setitem__(i + 1, q[i] + q[j]), r)


def past_the_end(i: Any, r: Any, picks: Any) -> None:
    r[i + 25] = r[i + 24] * 2.0


def before_the_start(i: Any, r: Any, picks: Any) -> None:
    r[i] = r[i - 1] * 2.0


def twice(i: Any, r: Any, picks: Any) -> None:
    (r.__setitem__(i, r[i + 2]), r.__setitem__(i + 1, r[i] * 2.0))


def slices(i: Any, r: Any, picks: Any) -> None:
    r[ds(2 * i, 2)] = r[ds(i, 2)] * 2.0


def greatest(i: Any, r: Any, picks: Any) -> None:
    accumulate(r, i + 1, r[i], "max")


NOT_CARRIED: dict[Callable[[Any, Any, Any], None], str] = {
    far: "it is read 9 steps later, and is carried over at most 4 steps",
    from_data: "it is read at an index that is not `a * i + b` in the counter `i`",
    to_data: "it is written at an index that is not `a * i + b` in the counter `i`",
    strides: "the places read move by 1 a step, those written by 2",
    one_place: "it is read at one place in all steps",
    the_same_place: "it is read and written at one place in all steps",
    whole: "it is read whole, too",
    in_a_branch: "`cond` reads or writes it",
    in_an_inner_loop: "an inner loop reads or writes it",
    past_the_end: "it is written from 25 to 44, and places are from 0 to 39",
    before_the_start: "it is read from -1 to 18, and places are from 0 to 39",
    twice: "a step writes it more than once",
    slices: "it is written a slice at a time",
    greatest: "`max` accumulates there",
}


@pytest.mark.parametrize("body", NOT_CARRIED, ids=lambda body: body.__name__)
def test_what_is_not_carried(body: Any) -> None:
    run = lambda x, picks: for_loop(20, lambda i, r: body(i, r, picks), x)
    found = explain(run, X, PICKS).loops[0].decision("carry", "state")
    want = f"it is not carried from step to step: {NOT_CARRIED[body]}"
    assert (found.done, found.reason) == (False, want)
    assert found.line == f"test_explain_why.py:{body.__code__.co_firstlineno + 1}"


def test_what_is_carried_but_for_another_read() -> None:
    def body(i: Any, r: Any) -> None:
        r[i + 9] = r[i + 8] + r[i]

    done, left = told(only_loop(lambda x: for_loop(20, body, x), X), "carry")
    assert done == (True, "the element that a step writes is carried to the step that reads it")
    why = "it is read 9 steps later, and is carried over at most 4 steps"
    assert left == (False, f"another read of it stays a read: {why}")


def test_rows_are_read_again() -> None:
    loop = only_loop(lambda x: fori_loop(1, N, lambda i, y: y.at[i].add(y[i - 1]), x), TABLE)
    why = "40 elements are read as fast as they are carried"
    assert told(loop, "carry") == [(False, f"it is not carried from step to step: {why}")]


def test_a_loop_that_may_end_early_carries_nothing_on() -> None:
    def step(carry: Any, i: Any) -> Any:
        return (carry[0].at[i].set(carry[0][i - 1] * 2.0), carry[1] + 1), None

    run = lambda x: scan(step, (x, 0), PICKS[1:], until=lambda carry: carry[1] > 10)
    loop = only_loop(run, X)
    want = "it is not carried from step to step: the loop may end early"
    assert told(loop, "carry") == [(False, want)]
    assert told(loop, "unroll") == [(False, "a turn is one step: it may end after any")]
    assert loop.may_end
    assert "at most 39 steps" in str(loop)


@pytest.mark.parametrize(
    "body",
    [
        lambda i, r: r.__setitem__(i, r[i] * 2.0),
        lambda i, r: r.__setitem__(i, r[i + 1] * 2.0),
        lambda i, r: r.__setitem__(2 * i, r[2 * i + 1] * 2.0),
        lambda i, r: r.__setitem__(i, 1.0),
        lambda i, r: r.__setitem__(..., r[...] * 2.0),
    ],
    ids=["its own place", "a later place", "between", "only written", "as a value"],
)
def test_what_no_earlier_step_wrote_is_not_told(body: Any) -> None:
    assert told(only_loop(lambda x: for_loop(19, body, x), X), "carry") == []


# ranges: indices that the counter shows to be in range


def test_indices_in_range_are_told_once_an_array() -> None:
    loop = only_loop(lambda xs: scan(lambda c, x: (c + x, (c, x[0])), X, xs), ROWS)
    reason = "indices are in bounds, so they are not checked at run time"
    assert [(d.subject, d.reason) for d in loop.decisions if d.step == "ranges"] == [
        (name, reason) for name in ("xs", "ys[0]", "ys[1]")
    ]
    assert f"+ ranges: xs, ys[0], ys[1]: {reason}, " in str(loop)


def test_indices_that_may_be_out_of_range() -> None:
    why: dict[str, Callable[[Any, Any, Any], None]] = {
        "it is read from `picks`": from_data,
        "it may be from -1 to 18, and places are from 0 to 39": before_the_start,
        "it may be from 24 to 43, and places are from 0 to 39": past_the_end,
    }
    for reason, body in why.items():
        run = lambda x, picks, body=body: for_loop(20, lambda i, r: body(i, r, picks), x)
        found = only_loop(run, X, PICKS).decision("ranges", "state")
        assert (found.done, found.reason) == (False, f"an index is resolved: {reason}")
        assert found.line == f"test_explain_why.py:{body.__code__.co_firstlineno + 1}"


def test_indices_in_branches() -> None:
    run = lambda x, t: fori_loop(0, 9, lambda i, s: cond(s > i, lambda: t[i], lambda: s), x)
    found = only_loop(run, 0.0, X).decision("ranges", "t")
    why = "the range of the counter is not followed into branches and calls"
    assert (found.done, found.reason) == (False, f"an index is resolved: {why}")


# the others


def test_reads_after_writes_that_stay_reads() -> None:
    def unknown(i: Any, r: Any) -> None:
        r[i] = 1.0
        r[i + 1] = r[(3 * i) % 7] * 2.0

    def added(i: Any, r: Any) -> None:
        r[i] += 1.0
        r[i + 1] = r[i] * 2.0

    def between(i: Any, r: Any) -> None:
        r[i] = 1.0
        cond(r[0] > 0.0, lambda: r.__setitem__(0, 2.0), lambda: None)
        r[i + 1] = r[i] * 2.0

    for body, why in (
        (unknown, "whether it is of the place written before (line {}) is not known"),
        (added, "what was there before the write (line {}) is not known"),
        (between, "`cond` may change it in between"),
    ):
        run = lambda x, body=body: for_loop(9, body, x)
        loop = only_loop(run, X)
        last = told(loop, "fold")[-1]
        line = body.__code__.co_firstlineno + 1
        want = (False, f"a read after a write stays a read: {why.format(line)}")
        assert last == want or body is between
    apart = lambda i, r: (r.__setitem__(i + 1, 1.0), r.__setitem__(i + 2, r[i] * 2.0))[0]
    assert told(only_loop(lambda x: for_loop(9, apart, x), X), "fold") == []


def test_turns_of_one_step() -> None:
    counts = lambda x: fori_loop(0, 99, lambda i, s: s + i, 0)
    few: Any = lambda x: fori_loop(0, 5, lambda i, y: y * 2.0, x)
    large = lambda x: fori_loop(0, 99, lambda i, y: y * 2.0, TABLE)
    inner = lambda x: fori_loop(0, 99, lambda i, y: few(y * 2.0), x)
    branch = lambda x: fori_loop(0, 99, lambda i, y: cond(y[0] > i, sin, exp, y), x)
    for run, why in (
        (counts, "it depends on the step before by int32, and not by a floating-point number"),
        (few, "5 steps are too few for several turns of 2"),
        (large, "it computes an array of 1,600 elements, more than 40"),
        (inner, "it runs an inner loop"),
        (branch, "it runs `cond`"),
    ):
        loop = explain(run, X).loops[0]
        assert told(loop, "unroll") == [(False, f"a turn is one step: {why}")]
    for run in (
        lambda x: fori_loop(0, 9, lambda i, y: y * 2.0, x, unroll=3),
        lambda x: for_loop(9, lambda i, r: r.__setitem__(i, 1.0), x),
    ):
        assert told(only_loop(run, X), "unroll") == []


def test_sums_that_a_step_reads() -> None:
    def body(i: Any, r: Any) -> None:
        x = ROWS[0] * i
        r["sum"][...] += x[:, None] @ x[None, :]
        r["first"][i] = r["sum"][0, 0]

    found = only_loop(lambda s: for_loop(N, body, {"sum": s, "first": X}), TABLE)
    reading = found.decision("sink", "state['sum']")
    want = "it is added up in the loop: a step uses it for something else, too"
    assert (reading.done, reading.reason) == (False, want)
    assert reading.line == f"test_explain_why.py:{body.__code__.co_firstlineno + 3}"
    carried = lambda s: scan(lambda s, x: (s + x[:, None] @ x[None, :], None), s, ROWS)
    why = "it is carried as a value; only what is added to a Ref, `r[...] += x`, is contracted"
    found = only_loop(carried, TABLE)
    assert told(found, "sink") == [(False, f"it is added up in the loop: {why}")]


def test_residuals_that_an_array_holds_only_for_a_while() -> None:
    def loss(body: Any) -> Any:
        return lambda x, picks: for_loop(20, lambda i, r: body(i, r, picks), x).sum()

    def at_data(i: Any, r: Any, picks: Any) -> None:
        r[picks[i]] = r[i] * r[picks[i]]

    forward = explain(grad(loss(at_data)), X, PICKS).loops[0]
    why = "it is read at an index that is not `a * i + b` in the counter `i`"
    kept = forward.decision("passthrough", "state")
    assert not kept.done
    assert kept.reason.startswith("f32[] of each step is kept once more: it is ")
    assert why.partition("at an index")[2] in kept.reason


def test_constants_that_branches_use_whole() -> None:
    def body(i: Any, s: Any, table: Any) -> Any:
        return cond(s > i, lambda: s + table[i, 0], lambda: table.sum())

    run = lambda t: fori_loop(0, 9, lambda i, s: body(i, s, t), 0.0)
    found = only_loop(run, TABLE).decision("constants", "t")
    assert (found.done, found.reason) == (False, "it stays a value: `reduce_sum` uses it whole")
    assert found.line == f"test_explain_why.py:{body.__code__.co_firstlineno + 1}"


def test_what_is_handed_on_in_place_of_an_update() -> None:
    def older(i: Any, y: Any) -> Any:
        new = y.at[i].set(1.0)
        return y.at[i + 1].set(new[i])

    def other(i: Any, y: Any) -> Any:
        return y[i] * ROWS[0]

    def behind(y: Any, i: Any) -> Any:
        new = y.at[i].set(1.0)
        newer = new.at[i + 1].set(2.0)
        return new, newer[i]

    def swapped(i: Any, pair: Any) -> Any:
        return pair[1], pair[0].at[i].set(pair[1][i])

    found = only_loop(lambda y: scan(behind, y, PICKS), X).decision("promote")
    assert found.reason == (
        "it stays a value: the body updates it here, and returns an older version"
    )
    assert found.line == f"test_explain_why.py:{behind.__code__.co_firstlineno + 2}"
    line = older.__code__.co_firstlineno
    for body, init, why, offset in (
        (
            older,
            X,
            f"this updates the same version of it as another update, on line {line + 1}: update the result of that one",
            2,
        ),
        (
            other,
            X,
            "the body returns the result of `mul` in its place, which is no update of it",
            1,
        ),
        (swapped, (X, X), "it is written whole to `carry[1]`", None),
    ):
        run = lambda init, body=body: fori_loop(0, 9, body, init)
        found = only_loop(run, init).decision("promote")
        assert (found.done, found.reason) == (False, f"it stays a value: {why}")
        if offset is not None:
            at = body.__code__.co_firstlineno + offset
            assert found.line == f"test_explain_why.py:{at}"


# steps that are off


def both_halves(x: Any) -> Any:
    return grad(lambda x: (fori_loop(0, 9, lambda i, y: sin(y) * x, x) ** 2).sum())(x)


@pytest.mark.parametrize("step", STEPS)
def test_a_step_that_is_off_says_so_in_every_loop(step: str) -> None:
    with planning(**{step: False}):
        found = explain(both_halves, X)
    assert len(found) == 2
    for loop in found.loops:
        assert told(loop, step) == [(False, "it is turned off")]
        assert f"- {step}: it is turned off" in str(loop)


def test_all_steps_off_are_one_line() -> None:
    with planning(False):
        found = explain(both_halves, X)
    for loop in found.loops:
        assert [d.step for d in loop.decisions] == list(STEPS)
        assert f"- {', '.join(STEPS)}: they are turned off" in str(loop)
