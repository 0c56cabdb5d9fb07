"""Small programs that once came out wrong, found by random ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from fiveloop.core import Value
from fiveloop.core.extend import ShapedArray, stage_closed
from fiveloop.core.primitives.elementwise import exp, mul
from fiveloop.state import new_ref, swap
from fiveloop.state.refs import AbstractRef
from fiveloop.testing.core.laws import check_law_split
from fiveloop.testing.core.oracle import Cell
from fiveloop.testing.core.program_steps import call
from fiveloop.testing.core.samples import Sample
from fiveloop.testing.state.laws import check_function

VECTOR = np.array([0.3, -0.7, 1.1])


def test_a_call_that_reads_and_writes_a_ref_from_outside_does_not_run_again() -> None:
    def fun(x: Value) -> list[Any]:
        ref = new_ref(mul(x, 2.0))

        def body(y: Value) -> list[Any]:
            old = swap(ref, ..., mul(y, 3.0))
            return [exp(mul(old, old))]

        outs = call(body, [x])
        return [*outs, ref[...]]

    assert len(check_function(fun, VECTOR).run()) == 2


def test_an_element_written_twice_at_once_has_the_derivative_of_the_last_writer() -> None:
    where = np.array([1, 1, 0])

    def fun(x: Value, v: Value) -> list[Any]:
        ref = new_ref(x)
        old = swap(ref, where, v)
        ref[where] = mul(v, v)
        ref[where] += old
        return [ref[...], old]

    assert len(check_function(fun, VECTOR, VECTOR + 0.2).run()) == 2


def test_a_late_read_of_a_ref_that_changes_is_not_known() -> None:
    def fun(ref: Value, i: Value) -> list[Any]:
        old = ref[i]
        ref[0] = 7.0
        return [old]

    avals = [AbstractRef(ShapedArray((3,), "float64")), ShapedArray((), "int32")]
    jaxpr = stage_closed(fun, avals)
    s = Sample(jaxpr, (Cell(VECTOR), np.asarray(0, np.int32)))
    for seed in range(4):
        check_law_split(s, seed)
