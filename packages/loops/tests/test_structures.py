"""Carries and results that differ in structure: the first place, what was there, what came, and from where."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiveloop.core import disable_jit, jit
from fiveloop.core.ir.source import function_source
from fiveloop.loops import associative_scan, cond, fori_loop, scan, switch, while_loop
from fiveloop.state import new_ref
from fiveloop.testing.core.misuse import assert_misuse, place_in

X = np.arange(4, dtype=np.float32)
INIT = {"a": X, "b": [X, X]}


def nested(carry: Any) -> Any:
    return {"a": carry["a"], "b": [carry["a"], (2 * carry["a"], 1)]}


def renamed(carry: Any) -> Any:
    return {"a": carry["a"], "c": 3}


def nothing(carry: Any) -> None:
    """A body that forgets to return."""


def shorter(carry: Any) -> Any:
    return {"a": carry["a"], "b": carry["b"][:1]}


def same(x: Any) -> Any:
    return x


NESTED = "['b'][1] goes in as f32[4] and comes out as a tuple of 2"
RENAMED = "['b'] goes in as a list of 2 and does not come out, and carry['c'] does not go in and comes out as i32*[]"
CHANGES: list[tuple[Any, str, str]] = [
    (nested, NESTED, f", made at {place_in(nested)}"),
    (renamed, RENAMED, ""),
    (nothing, " goes in as a dict {'a', 'b'} and comes out as None; does the function return?", ""),
    (shorter, "['b'] goes in as a list of 2 and comes out as a list of 1", ""),
]


def kinds(body: Callable[[Any], Any]) -> dict[str, tuple[Callable[[], object], str, object]]:
    """The loops that carry what a body changes: the call, how its message begins, and the function it names."""

    def step(carry: Any, x: Any) -> Any:
        return body(carry), x

    def counted(i: Any, carry: Any) -> Any:
        return body(carry)

    def small(carry: Any) -> Any:
        return carry["a"][0] < 3

    kept = "the carry must keep its structure, but in"
    value = "while_loop: the body must keep the structure of the value, but in"
    return {
        "scan": (lambda: scan(step, INIT, X), f"scan: {kept}", step),
        "fori": (lambda: fori_loop(0, 3, counted, INIT), f"fori_loop: {kept}", counted),
        "traced fori": (
            lambda: jit(lambda n: fori_loop(0, n, counted, INIT))(3),
            f"fori_loop: {kept}",
            counted,
        ),
        "while": (lambda: while_loop(small, body, INIT), value, body),
    }


@pytest.mark.parametrize("kind", ["scan", "fori", "traced fori", "while"])
@pytest.mark.parametrize(("body", "place", "made"), CHANGES)
def test_a_carry_that_changes_its_structure(
    kind: str, body: Callable[[Any], Any], place: str, made: str
) -> None:
    call, begin, fun = kinds(body)[kind]
    name = "val" if kind == "while" else "carry"
    place = place.replace("carry", name)
    message = f"{begin} `{function_source(fun)}` {name}{place}"
    assert_misuse(call, TypeError, f"{message}{made}", within=kinds)
    if kind != "traced fori":
        with disable_jit():
            assert_misuse(call, TypeError, message, within=kinds)


def test_a_carry_with_a_ref_that_changes_its_structure() -> None:
    def step(carry: Any, x: Any) -> Any:
        return (carry[0], [carry[1]]), x

    def second(val: Any) -> Any:
        return val[1]

    ref = new_ref(X)
    assert_misuse(
        lambda: scan(step, (ref, 1.0), X),
        TypeError,
        f"scan: the carry must keep its structure, but in `{function_source(step)}` carry[1] goes in as f32*[] and "
        "comes out as a list of 1",
    )
    assert_misuse(
        lambda: while_loop(lambda v: v[1] < 3, second, (ref, 1.0)),
        TypeError,
        f"while_loop: val must keep its structure, but in `{function_source(second)}` val goes in as a tuple of 2 and "
        "comes out as f32*[]",
    )


@pytest.mark.parametrize(
    ("other", "place"),
    [
        (nested, f"['b'][1] is f32[4] and a tuple of 2, made at {place_in(nested)}"),
        (renamed, "['b'] is a list of 2 and missing; result['c'] is missing and i32*[]"),
        (nothing, " is a dict {'a', 'b'} and None; does the function return?"),
        (shorter, "['b'] is a list of 2 and a list of 1"),
    ],
)
def test_branches_whose_results_differ_in_structure(other: Any, place: str) -> None:
    said = "the branches must return the same structure, but from"
    one, two = function_source(same), function_source(other)
    assert_misuse(
        lambda: cond(True, same, other, INIT),
        TypeError,
        f"cond: {said} true_fun `{one}` and false_fun `{two}`, result{place}",
    )
    assert_misuse(
        lambda: switch(0, [same, same, other], INIT),
        TypeError,
        f"switch: {said} branches[0] `{one}` and branches[2] `{two}`, result{place}",
    )


def test_an_associative_function_that_returns_nothing() -> None:
    def forgets(a: Any, b: Any) -> None:
        """It forgets to return."""

    assert_misuse(
        lambda: associative_scan(forgets, {"a": X}),  # type: ignore[arg-type]  # what is tested
        TypeError,
        f"associative_scan: fn must keep the structure of its arguments, but in `{function_source(forgets)}` elems "
        "goes in as a dict {'a'} and comes out as None; does the function return?",
    )
