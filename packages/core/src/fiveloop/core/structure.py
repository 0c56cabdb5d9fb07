"""The first difference between two pytree structures, in words, for error messages."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from fiveloop.core.backend.tree import LEAF, TREE, DictKey, KeyPath, TreeDef
from fiveloop.core.pytree import children_by_key, keystr


class LeafText(NamedTuple):
    """The text of a leaf in a message: its type, and the line that made it, if known."""

    type: str
    made: str = ""


class Difference(NamedTuple):
    """A place where two trees differ: its path, and what each has there; None where there is no such place."""

    path: str
    first: str | None
    second: str | None


def differences(
    one: TreeDef, two: TreeDef, leaves_of_one: Sequence[LeafText], leaves_of_two: Sequence[LeafText]
) -> list[Difference]:
    """The first place where two structures differ; two places, if each is a dict that has a key more.

    >>> trees = {"a": 1, "b": 2}, {"a": (3, 4), "b": 5}
    >>> differences(*map(tree_structure, trees), [LeafText("int")] * 2, [LeafText("int")] * 3)
    [Difference(path="['a']", first='int', second='a tuple of 2')]
    """
    # The leaves of the trees are their own numbers.
    trees = one.unflatten(range(one.num_leaves)), two.unflatten(range(two.num_leaves))
    leaves = leaves_of_one, leaves_of_two
    found = _first_places(*trees, ())
    return [Difference(keystr(path), *_described(a, b, *leaves)) for path, a, b in found]


_NOTHING = object()
"""Stands where a tree has no such place."""
_Place = tuple[KeyPath, Any, Any]


def _first_places(a: Any, b: Any, path: KeyPath) -> list[_Place]:
    if _structure(a) == _structure(b):
        return []
    ones, twos = children_by_key(a), children_by_key(b)
    if type(a) is not type(b):
        return [(path, a, b)]
    keys, others = [k for k, _ in ones], [k for k, _ in twos]
    if set(keys) != set(others) and all(isinstance(k, DictKey) for k in (*keys, *others)):
        gone = [((*path, k), x, _NOTHING) for k, x in ones if k not in others]
        new = [((*path, k), _NOTHING, x) for k, x in twos if k not in keys]
        return gone[:1] + new[:1]
    if keys == others:
        for (key, x), (_, y) in zip(ones, twos, strict=True):
            if places := _first_places(x, y, (*path, key)):
                return places
    return [(path, a, b)]


def _described(
    a: Any, b: Any, leaves_of_one: Sequence[LeafText], leaves_of_two: Sequence[LeafText]
) -> tuple[str | None, str | None]:
    """Both in words, with what tells them apart where their kinds do not."""
    first, second = _text(a, leaves_of_one), _text(b, leaves_of_two)
    if first is not None and first == second:
        if type(a) is not type(b):
            second = f"{second}, which is another class of that name"
        else:
            first, second = f"{first} with {_extra(a)}", f"{second} with {_extra(b)}"
    if second is not None:
        # Of a tree, the line that made the first part of which one is known.
        made = (leaves_of_two[k].made for k in TREE.flatten(b)[0])
        second += next(filter(None, made), "")
    return first, second


def _text(x: Any, leaves: Sequence[LeafText]) -> str | None:
    if x is _NOTHING:
        return None
    if x is None:
        return "None"
    if _structure(x) == LEAF:
        leaf: LeafText = leaves[x]
        return leaf.type
    name, keys = type(x).__name__, [k for k, _ in children_by_key(x)]
    article = "an" if name[0] in "AEIOUaeiou" else "a"
    if isinstance(x, list) or type(x) is tuple:
        return f"{article} {name} of {len(keys)}"
    if isinstance(x, dict):
        shown = [repr(k.key) for k in keys[:_SHOWN]] + ["..."] * (len(keys) > _SHOWN)
        return f"{article} {name} {{{', '.join(shown)}}}"
    return f"{article} {name}"


_SHOWN = 5
"""How many keys of a dict a message lists."""


def _extra(x: Any) -> str:
    """What belongs to a container beside the classes and names of its parts."""
    data = _structure(x).node_data()
    return f"{len(children_by_key(x))} parts" if data is None or data[1] is None else repr(data[1])


def _structure(x: Any) -> TreeDef:
    return TREE.flatten(x)[1]
