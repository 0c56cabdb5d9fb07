"""Where two structures differ first: the path, and what each has there."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from typing import Any

import pytest

from fiveloop.core import register_node, tree_flatten
from fiveloop.core.structure import Difference, LeafText, differences

Pair = namedtuple("Pair", "x y")  # a container of the kind that users make
Other = namedtuple("Pair", "x y")  # type: ignore[name-match]  # of the same name


class Tagged:
    """A container with something beside its parts."""

    def __init__(self, parts: Any, tag: str) -> None:
        self.parts, self.tag = parts, tag


register_node(Tagged, lambda t: (t.parts, t.tag), lambda tag, parts: Tagged(parts, tag))


def found(one: Any, two: Any) -> list[Difference]:
    """The differences, with leaves that are their own texts; those of the second were made on lines 0, 1, ..."""
    (xs, a), (ys, b) = tree_flatten(one), tree_flatten(two)
    made = [LeafText(str(y), f", made at {k}") for k, y in enumerate(ys)]
    return differences(a, b, [LeafText(str(x)) for x in xs], made)


@pytest.mark.parametrize(
    ("one", "two", "places"),
    [
        (1, (2, 3), [("", "1", "a tuple of 2, made at 0")]),
        ((1, 2), [1, 2], [("", "a tuple of 2", "a list of 2, made at 0")]),
        ([1, [2]], [1, [2, 3]], [("[1]", "a list of 1", "a list of 2, made at 1")]),
        ({"a": 1, "b": 2}, {"a": 1, "b": {"c": 2}}, [("['b']", "2", "a dict {'c'}, made at 1")]),
        ({"a": 1}, {"a": None}, [("['a']", "1", "None")]),
        ({"a": None}, {"a": 7}, [("['a']", "None", "7, made at 0")]),
        ({"a": 1, "b": 2}, {"a": 1}, [("['b']", "2", None)]),
        ({"a": 1}, {"a": 1, "b": [2]}, [("['b']", None, "a list of 1, made at 1")]),
        (
            {"a": 1, "b": 2},
            {"a": 1, "c": 3},
            [("['b']", "2", None), ("['c']", None, "3, made at 1")],
        ),
        (
            OrderedDict(a=1, b=2),
            OrderedDict(b=1, a=2),
            [("", "an OrderedDict {'a', 'b'}", "an OrderedDict {'b', 'a'}, made at 0")],
        ),
        (
            dict.fromkeys("abcdefg", 1),
            [1],
            [("", "a dict {'a', 'b', 'c', 'd', 'e', ...}", "a list of 1, made at 0")],
        ),
        (Pair(1, 2), Pair(1, (2,)), [(".y", "2", "a tuple of 1, made at 1")]),
        (
            Pair(1, 2),
            Other(1, 2),
            [("", "a Pair", "a Pair, which is another class of that name, made at 0")],
        ),
        (
            Tagged([1], "a"),
            Tagged([1], "b"),
            [("", "a Tagged with 'a'", "a Tagged with 'b', made at 0")],
        ),
        (
            [Tagged([1], "a")],
            [Tagged([(1, 2)], "a")],
            [("[0][<child 0>]", "1", "a tuple of 2, made at 0")],
        ),
        ((1, [2]), (1, [2]), []),
    ],
)
def test_the_first_difference(one: Any, two: Any, places: list[Any]) -> None:
    assert found(one, two) == [Difference(*place) for place in places]
