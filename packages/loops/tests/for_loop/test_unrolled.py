"""Several steps a turn: an array that is filled from itself stays in place, forward and in its derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiveloop.core import grad, inspect, jit
from fiveloop.loops import for_loop, planning

N = 1000
X = np.linspace(-1.0, 1.0, N)


def prefix(unroll: int) -> Callable[[Any], Any]:
    """y[i + 1] = y[i] + x[i]: one write a step, which the next step of the turn reads."""

    def fun(x: Any) -> Any:
        def body(i: Any, y: Any) -> None:
            y[i + 1] = y[i] + x[i]

        return for_loop(N, body, np.zeros(N + 1), unroll=unroll)

    return fun


FORMS: dict[str, Callable[[Any], Any]] = {
    "value": lambda f: f,
    "gradient": lambda f: grad(lambda x: (f(x) ** 2).sum()),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("unroll", [2, 3])
def test_unrolled_steps_are_in_place(unroll: int, form: str) -> None:
    program = jit(FORMS[form](prefix(unroll)))
    assert program.lower(X).compile().copies == 0
    want = np.asarray(jit(FORMS[form](prefix(1)))(X))
    np.testing.assert_allclose(np.asarray(program(X)), want, rtol=1e-12)


def test_only_unrolled_steps_that_write_once_need_an_order() -> None:
    with planning(carry=False):
        ordered = [" order " in str(inspect.stages(prefix(u), X)["discharge"]) for u in (1, 2)]
    assert ordered == [False, True]
