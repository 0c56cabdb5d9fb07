"""The types of what loops give: they do not depend on the number of steps, nor on where a loop runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiveloop.core import Array, disable_jit, jit, make_jaxpr, tree_leaves
from fiveloop.core.extend import Aval
from fiveloop.loops import associative_scan, for_loop, fori_loop, scan

NUMBERS = (1.0, 2, True, 1j)
STRONG = ["f32[]", "i32[]", "bool[]", "c64[]"]


def types(tree: Any) -> list[str]:
    """The types of leaves, all of which are arrays."""
    leaves = tree_leaves(tree)
    assert all(isinstance(x, Array) for x in leaves)
    return [str(x.aval) for x in leaves]


def same(i: Any, c: Any) -> Any:
    return c


def do_nothing(i: Any, refs: Any) -> None:
    """A body that leaves its Refs as they are."""


LOOPS: dict[str, Callable[[Any], Any]] = {
    "for_loop": lambda n: for_loop(n, do_nothing, NUMBERS),
    "fori_loop": lambda n: fori_loop(0, n, same, NUMBERS),
    "scan": lambda n: scan(lambda c, _: (c, None), NUMBERS, length=n)[0],
    "until": lambda n: scan(lambda c, _: (c, None), NUMBERS, length=n, until=lambda c: c[0] > 5)[0],
}


@pytest.mark.parametrize("steps", [0, 1, 3])
@pytest.mark.parametrize("name", LOOPS)
def test_numbers_come_out_strong_after_any_number_of_steps(name: str, steps: int) -> None:
    loop = LOOPS[name]
    assert types(loop(steps)) == STRONG
    assert types(jit(lambda: loop(steps))()) == STRONG
    if name in ("for_loop", "fori_loop"):
        assert types(jit(loop)(steps)) == STRONG
    with disable_jit():
        assert types(loop(steps)) == STRONG


@pytest.mark.parametrize("init", [1.5, np.float32(1.5)], ids=["a number", "an array"])
def test_a_number_takes_the_type_of_the_carry_that_it_replaces(init: Any) -> None:
    loops: list[Callable[[], Any]] = [
        lambda: scan(lambda c, _: (0, None), init, length=2)[0],
        lambda: fori_loop(0, 2, lambda i, c: 0, init),
        lambda: jit(lambda n: fori_loop(0, n, lambda i, c: 0, init))(2),
    ]
    for loop in loops:
        with disable_jit():
            assert types(loop()) == ["f32[]"]
        assert types(loop()) == ["f32[]"]
        assert float(loop()) == 0.0


@pytest.mark.parametrize("steps", [0, 1])
def test_a_program_gives_the_types_that_were_traced(steps: int) -> None:
    """Also of a state that no step changes, which the compiled program hands through."""

    def run(x: Any) -> Any:
        return for_loop(steps, do_nothing, x)

    traced: list[Aval] = make_jaxpr(run)(1.0).out_avals
    assert [str(a) for a in traced] == types(run(1.0)) == types(jit(run)(1.0)) == ["f32[]"]


@pytest.mark.parametrize("size", [0, 1, 2])
def test_an_associative_scan_gives_arrays(size: int) -> None:
    got = associative_scan(lambda a, b: {"a": a["a"] + b["a"]}, {"a": np.ones(size, np.float32)})
    assert types(got) == [f"f32[{size}]"]
    np.testing.assert_array_equal(np.asarray(got["a"]), np.arange(1, size + 1))
