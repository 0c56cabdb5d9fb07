"""Trees: the containers, structure, prefixes, paths, and errors that name the place."""

import doctest
from collections import OrderedDict, defaultdict, namedtuple
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fiveloop.core import pytree
from fiveloop.core.backend.tree import CALL
from fiveloop.core.pytree import (
    broadcast_prefix,
    keystr,
    register_dataclass,
    register_node,
    tree_all,
    tree_flatten,
    tree_flatten_with_path,
    tree_leaves,
    tree_map,
    tree_map_with_path,
    tree_reduce,
    tree_structure,
    tree_transpose,
    tree_unflatten,
)

Point = namedtuple("Point", ["x", "y"])


@dataclass
class Layer:
    w: Any
    b: Any
    name: str = "layer"


register_dataclass(Layer, ["w", "b"], ["name"])


class Bag:
    """A container without names for its children."""

    def __init__(self, *items: Any) -> None:
        self.items = items

    def __repr__(self) -> str:
        return f"Bag{self.items}"


register_node(Bag, lambda bag: (bag.items, len(bag.items)), lambda _, items: Bag(*items))

CONTAINERS: list[tuple[Any, list[int], list[str]]] = [
    ([1, [2]], [1, 2], ["[0]", "[1][0]"]),
    ((1, (), 2), [1, 2], ["[0]", "[2]"]),
    ({"b": 1, "a": 2}, [2, 1], ["['a']", "['b']"]),
    (OrderedDict(b=1, a=2), [1, 2], ["['b']", "['a']"]),
    (defaultdict(int, {"k": 1}), [1], ["['k']"]),
    (Point(1, [2]), [1, 2], [".x", ".y[0]"]),
    (Layer(1, {"c": 2}), [1, 2], [".w", ".b['c']"]),
    (Bag(1, 2), [1, 2], ["[<child 0>]", "[<child 1>]"]),
    (None, [], []),
    ([None, 1], [1], ["[1]"]),
    (7, [7], [""]),
]


@pytest.mark.parametrize(("tree", "leaves", "paths"), CONTAINERS, ids=str)
def test_containers_flatten_and_come_back(tree: Any, leaves: list[int], paths: list[str]) -> None:
    found, treedef = tree_flatten(tree)
    assert found == leaves
    assert treedef.num_leaves == len(leaves)
    again = tree_unflatten(treedef, found)
    assert type(again) is type(tree)
    assert tree_flatten(again) == (leaves, treedef)
    named, same = tree_flatten_with_path(tree)
    assert [keystr(path) for path, _ in named] == paths
    assert [leaf for _, leaf in named] == leaves
    assert same == treedef
    assert CALL.flatten(tree)[0] == leaves, "containers are known on the call path too"


def test_details_of_containers_survive() -> None:
    tree: defaultdict[str, Any] = defaultdict(list, {"k": 1})
    assert tree_map(lambda x: x, tree).default_factory is list
    assert list(tree_map(lambda x: x, OrderedDict(b=1, a=2))) == ["b", "a"]
    assert tree_map(lambda x: x + 1, Layer(1, 2, "deep")) == Layer(2, 3, "deep")
    assert tree_structure(Layer(1, 2, "a")) != tree_structure(Layer(1, 2, "b"))


def trees() -> st.SearchStrategy[Any]:
    leaves = st.integers() | st.none()
    return st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.text("abc", min_size=1, max_size=2), inner, max_size=3)
            | st.tuples(inner, inner)
            | st.builds(Point, inner, inner)
            | st.builds(Layer, inner, inner)
        ),
        max_leaves=12,
    )


@given(trees())
def test_map_keeps_structure_and_order(tree: Any) -> None:
    leaves, treedef = tree_flatten(tree)
    doubled = tree_map(lambda x, y: x + y, tree, tree)
    assert tree_flatten(doubled) == ([2 * x for x in leaves], treedef)
    assert tree_reduce(lambda x, y: x + y, tree, 0) == sum(leaves)
    assert hash(treedef) == hash(tree_structure(doubled))
    assert broadcast_prefix(0, tree) == [0] * len(leaves)
    assert broadcast_prefix(tree, tree) == leaves


@given(trees(), trees())
def test_transpose_turns_inside_out(outer: Any, inner: Any) -> None:
    rows, columns = tree_structure(outer), tree_structure(inner)
    cells = [f"{x}, {y}" for x in range(rows.num_leaves) for y in range(columns.num_leaves)]
    turned = tree_transpose(rows, columns, tree_unflatten(rows.compose(columns), cells))
    down = [f"{x}, {y}" for y in range(columns.num_leaves) for x in range(rows.num_leaves)]
    assert tree_flatten(turned) == (down, columns.compose(rows))


def test_leaves_may_be_chosen() -> None:
    tree = {"a": [1, 2], "b": None}
    assert tree_leaves(tree, is_leaf=lambda x: isinstance(x, list)) == [[1, 2]]
    assert tree_leaves(tree, is_leaf=lambda x: x is None) == [1, 2, None]
    lengths: Any = tree_map(len, tree, is_leaf=lambda x: isinstance(x, list))
    assert lengths == {"a": 2, "b": None}
    named, _ = tree_flatten_with_path(tree, is_leaf=lambda x: isinstance(x, list))
    assert [keystr(path) for path, _ in named] == ["['a']"]


def test_prefixes_reach_their_subtrees() -> None:
    full = ({"a": 1, "b": [2, 3]}, 4, Layer(5, None))
    assert broadcast_prefix((0, 1, 2), full) == [0, 0, 0, 1, 2]
    none = broadcast_prefix((0, None, None), full, is_leaf=lambda x: x is None)
    assert none == [0, 0, 0, None, None]
    assert broadcast_prefix(({"a": 0, "b": 1}, 2, 3), full) == [0, 1, 1, 2, 3]


MISFITS: list[tuple[Any, Any, str]] = [
    ((0, 1), (1, 2, 3), ": expected tuple of length 2, got tuple of length 3"),
    (
        {"a": (0, {"b": 1})},
        {"a": (0, {"c": 1})},
        " at ['a'][1]: expected dict with keys ['b'], got",
    ),
    ([0, [1]], [0, 1], " at [1]: expected list of length 1, got a leaf of type int"),
    ((0, None), (0, 1), " at [1]: expected None, got a leaf of type int"),
    ([0], (0,), ": expected list of length 1, got tuple of length 1"),
    (Layer([0], 1), Layer((0,), 1), " at .w: expected list of length 1, got tuple of length 1"),
    (Layer(0, 1, "a"), Layer(0, 1, "b"), "fit"),
    (Point(0, (1,)), Point(0, {}), " at .y: expected tuple of length 1, got dict with keys none"),
]


@pytest.mark.parametrize(("prefix", "full", "message"), MISFITS, ids=str)
def test_a_prefix_that_does_not_fit_names_the_place(prefix: Any, full: Any, message: str) -> None:
    for call, what in (
        (lambda: broadcast_prefix(prefix, full), "the tree"),
        (lambda: tree_map(lambda *xs: xs, prefix, prefix, full), "tree_map: tree 3"),
    ):
        with pytest.raises(ValueError) as caught:
            call()
        assert str(caught.value).startswith(f"{what} does not fit")
        assert message in str(caught.value)


def test_a_transpose_of_another_structure_is_refused() -> None:
    with pytest.raises(ValueError, match=r"tree_transpose: expected a tree .*, got "):
        tree_transpose(tree_structure([0]), tree_structure((0,)), [[1]])


def test_a_dataclass_declares_every_field_once() -> None:
    @dataclass
    class Some:
        x: int
        y: int

    with pytest.raises(ValueError, match=r"each field of Some once .x, y., got x"):
        register_dataclass(Some, ["x"])

    class Other:
        pass

    with pytest.raises(TypeError, match=r"expected a dataclass, got .*; put `@register_dataclass`"):
        register_dataclass(Other)


def test_a_dataclass_is_registered_by_a_decorator() -> None:
    @register_dataclass
    @dataclass
    class Bare:
        x: int
        name: str = field(default="a", metadata={"static": True})

    @register_dataclass(data_fields=["x"], meta_fields=["name"])
    @dataclass
    class Named:
        x: int
        name: str = "a"

    @register_dataclass(meta_fields=["name"])
    @dataclass
    class Rest:
        x: int
        name: str = "a"

    for cls in (Bare, Named, Rest):
        assert tree_leaves(cls(1, "b")) == [1]
        assert tree_map(lambda x: x + 1, cls(1, "b")) == cls(2, "b")


def test_paths_come_before_the_leaves_of_all_trees() -> None:
    tree: Any = {"w": [1, 2], "b": None}
    others = {"w": [30, 40], "b": None}
    named = tree_map_with_path(lambda path, x, y: (keystr(path), x + y), tree, others)
    assert named == {"w": [("['w'][0]", 31), ("['w'][1]", 42)], "b": None}
    whole = tree_map_with_path(lambda path, x: keystr(path), [tree], is_leaf=lambda x: "w" in x)
    assert whole == ["[0]"]
    assert tree_all({"a": [True, 1], "b": ()})
    assert not tree_all([1, None, 0])


def test_reducing_nothing_needs_a_start() -> None:
    assert tree_reduce(lambda x, y: x + y, [], 5) == 5
    with pytest.raises(TypeError, match="empty"):
        tree_reduce(lambda x, y: x + y, [])


def test_the_examples_in_the_documentation_run() -> None:
    result = doctest.testmod(pytree)
    assert result.failed == 0
    assert result.attempted >= 15
