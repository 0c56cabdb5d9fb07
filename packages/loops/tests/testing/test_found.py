"""Small programs with loops that once came out wrong, found by random ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from fiveloop.core import Value
from fiveloop.loops import for_loop
from fiveloop.loops.testing.laws import check_function
from fiveloop.state import freeze, new_ref

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
