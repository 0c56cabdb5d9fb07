"""Writes that no later step reads, where nobody wants what a loop leaves behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiveloop.core import grad
from fiveloop.core.extend import dce
from fiveloop.loops import for_loop
from fiveloop.testing.core.laws import check_law_dce
from fiveloop.testing.core.samples import sample
from fiveloop.testing.loops import references

N = 6
X = np.linspace(-1.0, 1.0, N)
Body = Callable[[Any, Any, Any], None]


def writes(fun: Callable[[Any], Any], number: int = 0) -> list[str]:
    """The equations of a loop's body that change a Ref, when all results of the function are wanted."""
    assert references.__name__, "unreachable: with it the oracle knows loops and Refs"
    s = sample(fun, X)
    check_law_dce(s)
    needed = dce(s.jaxpr, [True] * len(s.jaxpr.outvars))[0]
    loop = [e for e in needed.eqns if e.primitive.name == "for"][number]
    changing = [e for e in loop.params.body.eqns if any("Read" not in str(f) for f in e.effects)]
    return [e.primitive.name for e in changing]


def filled(body: Body, *, reverse: bool = False) -> Callable[[Any], Any]:
    """A loop on `y` and `out`, of which only `out` is wanted."""

    def fun(x: Any) -> Any:
        step = lambda i, refs: body(i, *refs)
        return for_loop(N - 2, step, (x, x * 0.0), reverse=reverse)[1]

    return fun


def zeroed_ahead(i: Any, y: Any, out: Any) -> None:
    out[i] = y[i + 1] + y[i]
    y[i + 1] = 0.0


def zeroed_twice(i: Any, y: Any, out: Any) -> None:
    out[i] = y[i + 2]
    y[i + 1] = 0.0
    y[i] += 1.0


@pytest.mark.parametrize(
    ("body", "reverse", "count"),
    [
        (zeroed_ahead, False, 2),  # the next step reads it
        (zeroed_ahead, True, 1),  # the step before has read it
        (zeroed_twice, False, 1),
        (zeroed_twice, True, 3),  # later steps read what is set to zero and added to
    ],
)
def test_a_write_stays_where_a_later_step_reads_it(body: Body, reverse: bool, count: int) -> None:
    assert len(writes(filled(body, reverse=reverse))) == count


def test_a_place_that_is_not_affine_keeps_all_writes() -> None:
    def body(i: Any, y: Any, out: Any) -> None:
        out[i] = y[(i * i) % N]
        y[i] = 0.0

    assert len(writes(filled(body))) == 2


def test_an_index_from_the_end_keeps_all_writes() -> None:
    def body(i: Any, y: Any, out: Any) -> None:
        out[i] = y[i - 1]
        y[i - 2] = 0.0

    assert len(writes(filled(body))) == 2


def test_what_is_added_to_a_place_that_nothing_reads_is_not_added() -> None:
    def body(i: Any, y: Any, out: Any) -> None:
        out[i] = y[i + 2]
        y[i + 1] += 1.0

    assert len(writes(filled(body))) == 1


def test_the_cotangent_of_what_is_filled_from_itself_is_not_set_to_zero() -> None:
    """y[i + 1] = y[i] + x[i]: going backward, slot i + 1 is read once, and then never again."""

    def prefix(x: Any) -> Any:
        def body(i: Any, y: Any) -> None:
            y[i + 1] = y[i] + x[i]

        y = for_loop(N, body, np.zeros(N + 1))
        return (y * y).sum()

    assert writes(grad(prefix), 1) == ["swap", "addupdate"]
