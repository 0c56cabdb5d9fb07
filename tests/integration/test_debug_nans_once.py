"""`debug_nans` runs a program again to find a nan: calls of Python are made once all the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import NanError, ShapeDtype, debug_nans, jit, vmap
from fiveloop.loops import cond, for_loop, scan, while_loop
from fiveloop.remat import checkpoint
from fiveloop.state import callback, debug_callback, debug_print, new_ref
from fiveloop.testing.core.misuse import raised

X = fnp.asarray(np.array([1.0, 2.0, 3.0], np.float32))
seen: list[str] = []


def look(x: Any) -> Any:
    seen.append(f"look {float(x)}")
    return np.float32(x * 10)


def called(x: Any, ordered: bool = False) -> Any:
    y = callback(look, ShapeDtype((), "float32"), x, ordered=ordered)
    debug_callback(lambda v: seen.append(f"then {float(v)}"), y, ordered=ordered)
    debug_print("printed {}", y)
    return fnp.log(-y)


def in_a_scan(x: Any) -> Any:
    return scan(lambda c, row: (c + called(row), None), 0.0, x)[0]


def in_a_while_loop(x: Any) -> Any:
    return while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, called(x[c[0]])), (0, 0.0))


def in_a_for_loop(x: Any) -> Any:
    return for_loop(3, lambda i, ref: ref.__setitem__(i, called(ref[i])), x)


@pytest.mark.parametrize(
    "fun",
    [
        jit(lambda x: called(x[0])),
        jit(lambda x: called(x[0], ordered=True)),
        jit(lambda x: jit(called)(x[1]) + called(x[0])),
        jit(vmap(called)),
        in_a_scan,
        jit(in_a_scan),
        jit(lambda x: vmap(in_a_scan)(x[None])),
        in_a_while_loop,
        in_a_for_loop,
        lambda x: checkpoint(called)(x[0]),
        lambda x: cond(True, called, lambda y: y, x[0]),
    ],
)
def test_calls_are_made_once(fun: Callable[[Any], Any], capfd: Any) -> None:
    seen.clear()
    fun(X)
    wanted, printed = [*seen], capfd.readouterr().out
    seen.clear()
    with debug_nans():
        message = str(raised(lambda: fun(X)))
    assert message.startswith("`log` made a nan")
    # Calls without an order may come in any.
    assert sorted(seen) == sorted(wanted) and len(seen) >= 2
    assert sorted(capfd.readouterr().out) == sorted(printed) != []


def test_results_are_those_of_the_first_call() -> None:
    rest = iter([4.0, 5.0, 6.0])
    read = lambda: np.float32(next(rest))

    def f(ref: Any) -> Any:
        for k in range(2):
            ref[k] = callback(read, ShapeDtype((), "float32"))
        return fnp.log(-ref[0])

    ref = new_ref(fnp.zeros(2))
    with debug_nans():
        assert isinstance(raised(lambda: jit(f)(ref)), NanError)
    assert np.asarray(ref[...]).tolist() == [4.0, 5.0]
    assert next(rest) == 6.0


def test_a_call_that_fails_is_not_made_again() -> None:
    def fail(x: Any) -> Any:
        seen.append("failed")
        raise LookupError("no such row")

    seen.clear()
    with debug_nans():
        error = raised(lambda: jit(lambda x: callback(fail, ShapeDtype((), "float32"), x))(1.0))
    assert isinstance(error, LookupError) and seen == ["failed"]
