"""Small programs with loops that once came out wrong, found by random ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fiveloop.core import Value, ds
from fiveloop.core.testing.cube import check_chain
from fiveloop.core.testing.samples import sample
from fiveloop.loops import for_loop
from fiveloop.loops.testing.laws import check_function
from fiveloop.state import freeze, new_ref
from fiveloop.state.testing.laws import check_law_discharge

VECTOR = np.array([0.3, -0.7, 1.1])


def test_what_a_ref_made_in_a_body_held_may_be_written_to_a_state() -> None:
    def fun(x: Value) -> Any:
        def body(i: Value, refs: list[Any]) -> None:
            kept, state = refs
            inner = new_ref(VECTOR)
            inner[i] += 2.0
            state[...] = freeze(inner)
            kept[i] = x[i] * x[i]

        return for_loop(2, body, [x, VECTOR])

    s = check_function(fun, VECTOR)
    np.testing.assert_allclose(s.run()[1], [0.3, 1.3, 1.1])


def test_what_is_read_after_writing_an_element_twice_is_the_last_value() -> None:
    where = np.array([1, 1, 0])

    def fun(x: Value) -> Any:
        def body(i: Value, refs: list[Any]) -> None:
            state, read = refs
            state[where] = x + i
            read[...] = state[where]

        return for_loop(1, body, [VECTOR, VECTOR])

    s = check_function(fun, VECTOR)
    np.testing.assert_array_equal(s.run()[1], [-0.7, -0.7, 1.1])


def test_the_derivative_of_writing_an_element_twice_in_a_loop() -> None:
    where = np.array([1, 1, 0])

    def fun(x: Value, y: Value) -> Any:
        def body(i: Value, refs: list[Any]) -> None:
            refs[0][where] = x * y

        return for_loop(2, body, [y])

    s = sample(fun, VECTOR, VECTOR)
    check_law_discharge(check_chain(s, ["vjp"]))
    check_law_discharge(check_chain(s, ["batch", "vjp"]))


@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize(("written", "read"), [(2, 1), (1, 3), (3, 2)])
def test_a_part_of_one_element_is_the_same_whatever_its_stride(
    written: int, read: int, static: bool
) -> None:
    def body(i: Value, ref: Any) -> None:
        k = 1 if static else i
        ref[ds(k, 1, written)] = 2.0 * ref[0:1]
        ref[3:4] = ref[ds(k, 1, read)] + 1.0

    def fun(x: Value) -> list[Any]:
        return [for_loop(3, body, x)]

    x = np.array([1.0, 2.0, 3.0, 4.0])
    want = x.copy()
    for i in range(3):
        want[1 if static else i] = 2.0 * want[0]
        want[3] = want[1 if static else i] + 1.0
    (got,) = check_function(fun, x).run()
    np.testing.assert_allclose(got, want)
