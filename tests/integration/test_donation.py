"""Donated arguments: chosen by place or by name, apart from what shares their memory, and named when they are gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import block_until_ready, grad, jit, vmap
from fiveloop.core.errors import DonatedError
from fiveloop.state import new_ref
from fiveloop.testing.core.misuse import assert_within, raised


def numbers(count: int = 5) -> Any:
    return fnp.arange(float(count)) + 0.0


def is_gone(x: Any) -> bool:
    return "<donated>" in repr(x)


def both(x: Any, y: Any) -> Any:
    return x + 1.0, y * 2.0


@pytest.mark.parametrize(
    ("options", "gone"),
    [
        ({"donate_argnums": -1}, (False, True)),
        ({"donate_argnums": 0}, (True, False)),
        ({"donate_argnums": [0, 1]}, (True, True)),
        ({"donate_argnames": "y"}, (False, True)),
        ({"donate_argnames": ("x", "y")}, (True, True)),
    ],
)
def test_donated_by_place_or_by_name(options: Any, gone: tuple[bool, bool]) -> None:
    f = jit(both, **options)
    for _ in range(3):
        x, y = numbers(), numbers()
        f(x, y)
        assert (is_gone(x), is_gone(y)) == gone
    x, y = numbers(), numbers()
    f(x, y=y)
    assert (is_gone(x), is_gone(y)) == gone


def test_donated_among_static_ones() -> None:
    f = jit(lambda n, x: x * n, static_argnums=0, donate_argnums=1)
    x = numbers()
    assert np.asarray(f(3, x)).tolist() == [0.0, 3.0, 6.0, 9.0, 12.0] and is_gone(x)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"donate_argnums": 2},
            "donate_argnums must name one of its 2 positional arguments, got 2",
        ),
        ({"donate_argnames": "z"}, "donate_argnames names 'z', which is no argument of it"),
        (
            {"donate_argnums": "x"},
            "donate_argnums must be an integer or a tuple of them, got 'x'; names go into donate_argnames",
        ),
    ],
)
def test_what_is_no_argument(options: Any, message: str) -> None:
    text, _, place = str(raised(lambda: jit(both, **options))).partition("\n  at ")
    assert text == f"jit of both: {message}"
    assert_within(test_what_is_no_argument, place)


add_one = jit(lambda x: x + 1.0, donate_argnums=0)
many = jit(lambda xs: [x + 1.0 for x in xs], donate_argnums=0)


@pytest.mark.parametrize(
    "donate",
    [
        add_one,
        lambda x: many([x, *[numbers() for _ in range(9)]])[0],
        add_one.lower(numbers()).compile(),
    ],
)
def test_a_ref_keeps_what_it_shares(donate: Callable[[Any], Any]) -> None:
    for _ in range(3):
        x = numbers()
        one, other = new_ref(x), new_ref(x)
        y = donate(x)
        assert is_gone(x)
        one[0] = 9.0
        assert np.asarray(one[...]).tolist() == [9.0, 1.0, 2.0, 3.0, 4.0]
        assert np.asarray(other[...]).tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
        assert np.asarray(y).tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]
        read = other[...]
        donate(read)
        assert is_gone(read)
        other[1] += 1.0
        assert np.asarray(other[...]).tolist() == [0.0, 2.0, 2.0, 3.0, 4.0]


def test_a_ref_that_shares_nothing_is_not_copied() -> None:
    ref = new_ref(numbers())
    ref[0] = 1.0
    own = ref.array.buffer
    add_one(numbers())
    assert ref.array.buffer is own


USES: list[tuple[Callable[[Any], object], str]] = [
    (
        jit(lambda x: x * 3.0),
        "jit of <lambda>: argument `x` of type f32[5] has been donated, and is gone",
    ),
    (
        lambda x: many([numbers(), x, *[numbers() for _ in range(9)]]),
        "jit of <lambda>: argument `xs`[1] of type f32[5] has been donated, and is gone",
    ),
    (add_one, "jit of <lambda>: argument `x` of type f32[5] has been donated, and is gone"),
    (lambda x: x[0], "index: argument 0, float32[5], was deleted or donated"),
    (lambda x: x.at[0].set(1.0), "update at an index: argument 0, float32[5], was deleted"),
    (lambda x: x + 1.0, "add: argument 0, float32[5], was deleted or donated"),
    (vmap(lambda x: x + 1.0), "add: argument 0, float32[5], was deleted or donated"),
    (grad(lambda x: x.sum()), "reduce_sum: argument 0, float32[5], was deleted or donated"),
    (np.asarray, "expected an array with contents, got one of shape (5,) and dtype float32"),
]


@pytest.mark.parametrize(("use", "message"), USES)
def test_the_use_of_what_is_gone(use: Callable[[Any], object], message: str) -> None:
    use(numbers())
    use(numbers())  # the second call takes the fast path
    x = numbers()
    add_one(x)

    def user() -> None:
        use(x)

    text, _, place = str(raised(user)).partition("\n  at ")
    assert isinstance(raised(user), DonatedError)
    assert text.startswith(message) and "copy it" in text
    assert place


AGAIN = "is in another place of this call too, which donates it; copy it"
CLOSED = "is closed over by the function too, which donates it; copy it"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda x: jit(lambda a, b: a + b, donate_argnums=0)(x, x),
            f"jit of <lambda>: argument `b` of type f32[5] {AGAIN}",
        ),
        (
            lambda x: jit(both, donate_argnums=(0, 1))(x, x),
            f"jit of both: argument `y` of type f32[5] {AGAIN}",
        ),
        (
            lambda x: jit(both, donate_argnums=(0, 1)).lower(x, x).compile()(x, x),
            f"compiled both: argument `y` of type f32[5] {AGAIN}",
        ),
        (
            lambda x: jit(lambda a: a + x, donate_argnums=0)(x),
            f"jit of <lambda>: argument `a` of type f32[5] {CLOSED}",
        ),
    ],
    ids=["one", "both", "compiled", "closed over"],
)
def test_donated_and_given_again(call: Callable[[Any], object], message: str) -> None:
    error = raised(lambda: call(numbers()))
    assert isinstance(error, DonatedError)
    assert str(error).startswith(message)


def test_donated_and_closed_over_by_another() -> None:
    x = numbers()
    f = jit(lambda a: a + x)
    f(numbers())
    add_one(x)
    error = raised(lambda: f(numbers()))
    assert isinstance(error, DonatedError)
    assert "an array of type f32[5] that the function closes over has been donated" in str(error)


def test_errors_of_the_user_stay_theirs() -> None:
    x = numbers()
    add_one(x)

    def fails(_: Any) -> Any:
        calls.append(1)
        raise ValueError("donated to me")

    calls: list[int] = []
    error = raised(lambda: jit(fails)(x))
    assert type(error) is ValueError and str(error) == "donated to me" and len(calls) == 1


def test_waiting_for_a_tree_names_a_donated_array() -> None:
    kept, given = jit(lambda x: (x + 1.0, x + 2.0))(np.ones(3))
    jit(lambda x: x * 2.0, donate_argnums=0)(given)
    assert block_until_ready([kept, 1])[0] is kept
    with pytest.raises(DonatedError, match=r"got one of shape \(3,\)"):
        block_until_ready({"a": kept, "b": given})
