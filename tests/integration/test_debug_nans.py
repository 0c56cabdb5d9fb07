"""`debug_nans`: the operation that made a nan is named, with the user's line, also within compiled bodies."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop import random
from fiveloop.core import NanError, debug_nans, grad, jit, make_jaxpr
from fiveloop.core.extend import to_array
from fiveloop.loops import cond, for_loop, scan, while_loop
from fiveloop.remat import checkpoint
from fiveloop.state import KeyStream, new_ref, swap
from fiveloop.testing.core.misuse import assert_within, raised

X = fnp.asarray(np.array([1.0, 0.0, -1.0], np.float32))


def logs(x: Any) -> Any:
    return fnp.log(x) * 2.0


def in_a_scan(x: Any) -> Any:
    return scan(lambda c, row: (c + logs(row), None), 0.0, x)[0]


def in_a_for_loop(x: Any) -> Any:
    def body(i: Any, refs: Any) -> None:
        refs[i] = logs(refs[i])

    return for_loop(3, body, x)


def in_a_while_loop(x: Any) -> Any:
    return while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, logs(x[c[0]])), (0, 0.0 * x[0]))[1]


def in_a_branch(x: Any) -> Any:
    return cond(x[0] > 0, logs, lambda y: y, x)


def in_a_checkpoint(x: Any) -> Any:
    return checkpoint(logs)(x)


PLACES = [logs, in_a_scan, in_a_for_loop, in_a_while_loop, in_a_branch, in_a_checkpoint]


def error_of(call: Callable[[], object]) -> str:
    with debug_nans():
        error = raised(call)
    assert type(error) is NanError
    return str(error)


@pytest.mark.parametrize("wrap", [lambda f: f, jit, lambda f: jit(jit(f))])
@pytest.mark.parametrize("f", PLACES)
def test_the_operation_and_its_line(f: Any, wrap: Any) -> None:
    message, _, place = error_of(lambda: wrap(f)(X)).partition("\n  at ")
    assert message.startswith("`log` made a nan")
    assert_within(logs, place)


def test_the_message() -> None:
    message, _, _ = error_of(lambda: logs(X)).partition("\n  at ")
    assert message == (
        "`log` made a nan at [2] of f32[3] from operands (f32[3]): its operands hold none; keep the operands where the "
        "operation is defined, also in the part that `where` does not choose, or leave `debug_nans`"
    )


def test_a_nan_that_comes_in() -> None:
    nan = fnp.asarray(np.array([np.nan], np.float32))
    assert "its operand 0 holds one already" in error_of(lambda: nan + 1.0)


@pytest.mark.parametrize(
    "use",
    [
        lambda nan: new_ref(nan)[...],
        lambda nan: new_ref(nan).at[1:][...],
        lambda nan: jit(lambda: nan * 2.0)(),
        lambda nan: jit(lambda ref: ref[0] + ref[1])(new_ref(nan)),
    ],
)
def test_a_nan_that_a_ref_or_a_constant_holds(use: Callable[[Any], Any]) -> None:
    nan = fnp.asarray(np.array([1.0, np.nan], np.float32))
    assert "its operand 0 holds one already" in error_of(lambda: use(nan))


def test_a_nan_that_python_knows() -> None:
    assert "its operand 1 holds one already" in error_of(lambda: X + float("nan"))
    swapped = error_of(lambda: swap(new_ref(np.array([np.nan])), 0, 1.0))
    assert "none after it, and operand 0 may have held one before" in swapped


def test_a_nan_of_a_derivative() -> None:
    def f(x: Any) -> Any:
        return fnp.where(x > 0.0, fnp.sqrt(x), 0.0).sum()

    for slope in (grad(f), jit(grad(f)), jit(jit(grad(f)))):
        text = error_of(partial(slope, X[:2]))
        assert "made a nan" in text
        assert_within(f, text.partition("\n  at ")[2])


def test_what_is_fine_is_left_alone() -> None:
    with debug_nans():
        assert jit(in_a_scan)(X[:1]).shape == ()
        assert "log" in str(make_jaxpr(logs)(X))
        ref = new_ref(X)
        ref[0] = 3.0
        assert float(np.asarray(ref[0])) == 3.0
        infinite = np.asarray(logs(X[:2]))
    assert infinite[1] == -np.inf
    assert np.isnan(np.asarray(jit(logs)(X))[2])


def test_it_is_not_entered_while_tracing() -> None:
    def f(x: Any) -> Any:
        with debug_nans():
            return x

    message = str(raised(lambda: jit(f)(1.0)))
    assert message.startswith("debug_nans: it must be entered outside of traced functions")
    assert_within(f, message.partition("\n  at ")[2])


def test_a_compiled_call_that_was_fast_is_looked_at() -> None:
    f = jit(logs)
    for _ in range(3):
        f(X)
    assert "`log` made a nan" in error_of(lambda: f(X))
    assert to_array(f(X)).shape == (3,)


def advance(ref: Any) -> Any:
    ref[0] += 1.0
    return fnp.log(ref[0] - 5.0)


def write_nan(ref: Any) -> None:
    ref[1] = fnp.log(ref[0] - 5.0)


def write_nan_in_a_loop(ref: Any) -> None:
    for_loop(2, lambda i, _: ref.__setitem__(i, fnp.log(ref[i] - 5.0)), ())


@pytest.mark.parametrize(
    ("fun", "after"),
    [
        (jit(advance), [2.0, 1.0]),
        (jit(write_nan), [1.0, 1.0]),
        (write_nan_in_a_loop, [1.0, 1.0]),
        (jit(write_nan_in_a_loop), [1.0, 1.0]),
    ],
)
def test_refs_change_once_up_to_the_operation(
    fun: Callable[[Any], Any], after: list[float]
) -> None:
    ref = new_ref(fnp.ones(2))
    assert error_of(lambda: fun(ref)).startswith("`log` made a nan")
    np.testing.assert_array_equal(np.asarray(ref[...]), after)


def test_a_ref_may_hold_a_nan_that_was_there() -> None:
    ref = new_ref(np.asarray([np.nan, 1.0]))

    @jit
    def double(ref: Any) -> None:
        ref[1] *= 2.0

    with debug_nans():
        double(ref)
    np.testing.assert_array_equal(np.asarray(ref[...]), [np.nan, 2.0])


def test_a_stream_counts_once() -> None:
    stream = KeyStream(0)
    draw = jit(lambda x: fnp.log(random.normal(stream.key()) * 0.0 - x))
    assert error_of(lambda: draw(1.0)).startswith("`log` made a nan")
    other = KeyStream(0)
    other.key()
    np.testing.assert_array_equal(np.asarray(stream.key()), np.asarray(other.key()))
