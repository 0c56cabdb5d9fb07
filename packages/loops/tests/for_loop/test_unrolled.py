"""Several steps a turn: an array that is filled from itself stays in place, forward and in its derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fiveloop.core import grad, inspect, jit, vmap
from fiveloop.loops import for_loop, fori_loop, planning, scan

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
        ordered = [" order[" in str(inspect.stages(prefix(u), X)["discharge"]) for u in (1, 2)]
    assert ordered == [False, True]


def counts(dtype: Any, unroll: Any) -> dict[str, Callable[[Any], Any]]:
    """Loops that add one to a number, at which the sum of each step rounds down to what it was."""
    one = dtype(1)

    def write(i: Any, r: Any) -> None:
        r[...] += one

    def nested(i: Any, c: Any) -> Any:
        return fori_loop(0, 3, lambda j, d: d + one, c, unroll=unroll)

    return {
        "fori_loop": lambda c: fori_loop(0, 18, lambda i, c: c + one, c, unroll=unroll),
        "scan": lambda c: scan(lambda c, _: (c + one, c), c, None, 18, unroll=unroll)[0],
        "for_loop": lambda c: for_loop(18, write, c, unroll=unroll),
        "nested": lambda c: fori_loop(0, 18, nested, c, unroll=unroll),
        "vmap": vmap(lambda c: fori_loop(0, 18, lambda i, c: c + one, c, unroll=unroll)),
    }


@pytest.mark.parametrize("unroll", ["auto", 4, True])
@pytest.mark.parametrize(
    ("dtype", "last"), [(np.float16, 2.0**11), (ml_dtypes.bfloat16, 2.0**8), (np.float32, 2.0**24)]
)
def test_each_step_of_a_turn_rounds_its_carry(dtype: Any, last: float, unroll: Any) -> None:
    """XLA before jaxlib 0.12 makes x + 1 + 1 into x + 2 where nothing stands between the steps."""
    start = np.full(2, last, dtype)
    programs = counts(dtype, unroll)
    found = jit(lambda c: {name: fun(c) for name, fun in programs.items()})(start)
    assert {name: np.asarray(x).tolist() for name, x in found.items()} == {
        name: [last, last] for name in programs
    }
