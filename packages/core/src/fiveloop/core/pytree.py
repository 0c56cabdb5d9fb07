"""Trees of containers: flatten them to leaves, rebuild them, map over them, add container types.

dict, OrderedDict, defaultdict, list, tuple and namedtuples are containers, and None is an empty one.
Everything else is a leaf until its class is registered with `register_node` or `register_dataclass`.
"""

import dataclasses
import functools
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeAlias, TypeVar, overload

from fiveloop.core import errors
from fiveloop.core.backend import tree as registry
from fiveloop.core.backend.tree import LEAF as LEAF
from fiveloop.core.backend.tree import TREE, DictKey, GetAttrKey, SequenceKey
from fiveloop.core.backend.tree import IsLeaf as IsLeaf
from fiveloop.core.backend.tree import KeyPath as KeyPath
from fiveloop.core.backend.tree import TreeDef as TreeDef

Pytree: TypeAlias = object
"""A tree of arrays of which the type checker cannot know the structure; `typing.cast` tells it."""

T = TypeVar("T")
C = TypeVar("C", bound=type)

_MISSING: Any = object()


def unordered(tree: Any, is_leaf: IsLeaf | None = None) -> tuple[KeyPath, str] | None:
    """Where a tree first has a dict whose keys cannot be put in order, and these keys; None if it has none.

    >>> unordered([{"a": 1}, {1: 2, "b": 3}])
    ((SequenceKey(idx=1),), "1, 'b'")
    """

    def is_end(x: Any) -> bool:
        return _is_unordered(x) or (is_leaf is not None and is_leaf(x))

    for path, x in tree_flatten_with_path(tree, is_end)[0]:
        if _is_unordered(x):
            return path, ", ".join(map(repr, x)) if isinstance(x, dict) else "others"
    return None


def _is_unordered(x: Any) -> bool:
    try:
        TREE.flatten(x, lambda y: y is not x)
    except ValueError as error:
        return isinstance(error.__cause__, TypeError)
    return False


def tree_flatten(tree: Any, is_leaf: IsLeaf | None = None) -> tuple[list[Any], TreeDef]:
    """Take a tree apart into its leaves, in order, and its structure.

    >>> leaves, treedef = tree_flatten({"w": [1, 2], "b": None})
    >>> leaves
    [1, 2]
    >>> tree_unflatten(treedef, [10, 20])
    {'b': None, 'w': [10, 20]}
    """
    try:
        return TREE.flatten(tree, is_leaf)
    except ValueError as error:
        found = unordered(tree, is_leaf) if isinstance(error.__cause__, TypeError) else None
        if found is None:
            raise
        path, keys = found
        raise TypeError(
            f"a tree{keystr(path)}: expected dict keys that can be put in order, got {keys}; {error.__cause__}"
        ) from None


def tree_unflatten(treedef: TreeDef, leaves: Iterable[Any]) -> Any:
    """Build a tree of the given structure from leaves.

    >>> tree_unflatten(tree_structure((0, [0])), "ab")
    ('a', ['b'])
    """
    return treedef.unflatten(leaves)


def tree_leaves(tree: Any, is_leaf: IsLeaf | None = None) -> list[Any]:
    """The leaves of a tree, in order.

    >>> tree_leaves({"b": 2, "a": (0, 1)})
    [0, 1, 2]
    """
    return tree_flatten(tree, is_leaf)[0]


def tree_structure(tree: Any, is_leaf: IsLeaf | None = None) -> TreeDef:
    """The structure of a tree: equal for trees that differ in their leaves only.

    >>> tree_structure([1, 2]) == tree_structure([3, 4])
    True
    """
    return tree_flatten(tree, is_leaf)[1]


def tree_map(fun: Callable[..., Any], tree: T, *rest: Any, is_leaf: IsLeaf | None = None) -> T:
    """Apply a function to each leaf; further trees must begin with the structure of the first, else ValueError.

    To type checkers the result is of the first tree's type, as it is where leaves stay arrays.

    >>> tree_map(lambda x, y: x + y, {"a": 1, "b": [2]}, {"a": 10, "b": [20]})
    {'a': 11, 'b': [22]}
    """
    if not callable(fun):
        raise errors.no_function("tree_map", fun)
    leaves, treedef = tree_flatten(tree, is_leaf)
    columns = [leaves]
    for k, other in enumerate(rest):
        columns.append(_flatten_up_to(treedef, tree, other, is_leaf, f"tree_map: tree {k + 2}"))
    out: T = treedef.unflatten([fun(*row) for row in zip(*columns, strict=True)])
    return out


def tree_map_with_path(
    fun: Callable[..., Any], tree: Any, *rest: Any, is_leaf: IsLeaf | None = None
) -> Any:
    """`tree_map` of a function that also takes the path of the leaf, as its first argument; `keystr` prints it.

    >>> tree_map_with_path(lambda path, x: x if keystr(path) == "['b']" else 0, {"a": 1, "b": 2})
    {'a': 0, 'b': 2}
    """
    paths = iter([path for path, _ in tree_flatten_with_path(tree, is_leaf)[0]])
    return tree_map(lambda *leaves: fun(next(paths), *leaves), tree, *rest, is_leaf=is_leaf)


def tree_all(tree: Any, is_leaf: IsLeaf | None = None) -> bool:
    """Whether all leaves are true.

    >>> tree_all({"a": True, "b": [True, 0]})
    False
    """
    return all(tree_leaves(tree, is_leaf))


def tree_reduce(
    fun: Callable[[Any, Any], Any],
    tree: Any,
    initializer: Any = _MISSING,
    is_leaf: IsLeaf | None = None,
) -> Any:
    """Combine the leaves of a tree from left to right.

    >>> tree_reduce(lambda x, y: x + y, [1, (2, {"c": 3})])
    6
    """
    leaves = tree_leaves(tree, is_leaf)
    return functools.reduce(fun, leaves, *([] if initializer is _MISSING else [initializer]))


def tree_transpose(outer: TreeDef, inner: TreeDef, tree: Any) -> Any:
    """Turn a tree of trees inside out: `outer` of `inner` becomes `inner` of `outer`.

    >>> pairs = {"a": (1, 2), "b": (3, 4)}
    >>> tree_transpose(tree_structure({"a": 0, "b": 0}), tree_structure((0, 0)), pairs)
    ({'a': 1, 'b': 3}, {'a': 2, 'b': 4})
    """
    leaves, treedef = tree_flatten(tree)
    if treedef != outer.compose(inner):
        expected = outer.compose(inner)
        raise ValueError(f"tree_transpose: expected a tree {expected}, got {treedef}")
    width = inner.num_leaves
    columns = [leaves[k::width] for k in range(width)]
    return inner.unflatten([outer.unflatten(column) for column in columns])


def register_node(
    cls: type[T],
    to_iterable: Callable[[T], tuple[Iterable[Any], Hashable]],
    from_iterable: Callable[[Any, tuple[Any, ...]], T],
    names: Sequence[str] = (),
) -> type[T]:
    """Register a class as a pytree node, by functions that flatten it into (children, aux) and rebuild it.

    `names` are the attribute names of the children, for messages: without them a child is identified by its number.

    >>> class Pair:
    ...     def __init__(self, x, y):
    ...         self.x, self.y = x, y
    >>> _ = register_node(Pair, lambda p: ((p.x, p.y), None), lambda aux, xy: Pair(*xy))
    >>> tree_leaves([Pair(1, 2), 3])
    [1, 2, 3]
    """

    def with_keys(x: T) -> tuple[Iterable[tuple[Any, Any]], Hashable]:
        children, aux = to_iterable(x)
        return [(GetAttrKey(n), child) for n, child in zip(names, children, strict=True)], aux

    registry.register_container(cls, to_iterable, from_iterable, with_keys if names else None)
    return cls


@overload
def register_dataclass(
    cls: C, data_fields: Sequence[str] | None = None, meta_fields: Sequence[str] | None = None
) -> C: ...
@overload
def register_dataclass(
    *, data_fields: Sequence[str] | None = None, meta_fields: Sequence[str] | None = None
) -> Callable[[C], C]: ...
def register_dataclass(
    cls: Any = None,
    data_fields: Sequence[str] | None = None,
    meta_fields: Sequence[str] | None = None,
) -> Any:
    """Make a dataclass a container of its data fields; meta fields belong to the structure.

    Used as a decorator, or called. Meta fields that are not named are those made with
    `dataclasses.field(metadata={"static": True})`; data fields that are not named are the others.

    >>> import dataclasses
    >>> @register_dataclass
    ... @dataclasses.dataclass
    ... class Layer:
    ...     w: object
    ...     name: str = dataclasses.field(metadata={"static": True})
    >>> tree_map(lambda x: x + 1, Layer(1, "dense"))
    Layer(w=2, name='dense')
    """
    if cls is None:
        return functools.partial(
            register_dataclass, data_fields=data_fields, meta_fields=meta_fields
        )
    name = cls.__name__
    if dataclasses.is_dataclass(cls):
        fields = [f for f in dataclasses.fields(cls) if f.init]
        if meta_fields is None:
            static = [f.name for f in fields if f.metadata.get("static")]
            meta_fields = static if data_fields is None else []
        if data_fields is None:
            data_fields = [f.name for f in fields if f.name not in meta_fields]
        expected, given = sorted(f.name for f in fields), sorted([*data_fields, *meta_fields])
        if given != expected:
            raise ValueError(
                f"register_dataclass: expected each field of {name} once ({', '.join(expected)}), got "
                f"{', '.join(given)}"
            )
    elif data_fields is None:
        raise TypeError(
            f"register_dataclass: expected a dataclass, got {cls!r}; put `@register_dataclass` above `@dataclass`, or "
            "name its `data_fields`"
        )
    registry.register_record(cls, data_fields, meta_fields or ())
    return cls


def tree_flatten_with_path(
    tree: Any, is_leaf: IsLeaf | None = None
) -> tuple[list[tuple[KeyPath, Any]], TreeDef]:
    """Flatten a tree, each leaf with the keys that lead to it; `keystr` prints them.

    >>> found, _ = tree_flatten_with_path({"layers": [1, 2]})
    >>> [keystr(path) for path, _ in found]
    ["['layers'][0]", "['layers'][1]"]
    """
    if is_leaf is None:
        return TREE.flatten_with_path(tree)
    return TREE.flatten_with_path(tree, lambda _, node: is_leaf(node))


def keystr(path: KeyPath) -> str:
    """A path as text, as it is written in Python: `['layers'][0].w`.

    >>> keystr(tree_flatten_with_path([{"w": 1}])[0][0][0])
    "[0]['w']"
    """
    return "".join([_key_text(key) for key in path])


def leaf_paths(treedef: TreeDef) -> list[str]:
    """The paths of the leaves of a structure, as `keystr` prints them.

    >>> leaf_paths(tree_structure({"w": [1, 2]}))
    ["['w'][0]", "['w'][1]"]
    """
    tree = treedef.unflatten(range(treedef.num_leaves))
    return [keystr(path) for path, _ in TREE.flatten_with_path(tree)[0]]


def broadcast_prefix(prefix: Any, full_tree: Any, is_leaf: IsLeaf | None = None) -> list[Any]:
    """Repeat each leaf of a prefix for every leaf of the subtree of `full_tree` at its place.

    >>> broadcast_prefix((0, 1), ({"a": "x", "b": "y"}, "z"))
    [0, 0, 1]
    """
    leaves, treedef = tree_flatten(prefix, is_leaf)
    subtrees = _flatten_up_to(treedef, prefix, full_tree, is_leaf, "the tree")
    out = []
    for leaf, subtree in zip(leaves, subtrees, strict=True):
        out.extend([leaf] * tree_structure(subtree).num_leaves)
    return out


def _flatten_up_to(
    treedef: TreeDef, prefix: Any, tree: Any, is_leaf: IsLeaf | None, what: str
) -> list[Any]:
    try:
        return treedef.flatten_up_to(tree)
    except (ValueError, TypeError) as error:
        found = mismatch(prefix, tree, is_leaf)
        raise ValueError(f"{what} does not fit{found or f': {error}'}") from None


def mismatch(
    prefix: Any, tree: Any, is_leaf: IsLeaf | None = None, path: KeyPath = ()
) -> str | None:
    """Where and how a tree first differs from its prefix."""
    if tree_structure(prefix, is_leaf) == LEAF:
        return None
    expected, found = children_by_key(prefix), children_by_key(tree)
    keys = [key for key, _ in expected]
    if type(prefix) is not type(tree) or keys != [key for key, _ in found]:
        where = f" at {keystr(path)}" if path else ""
        return f"{where}: expected {_describe(prefix, expected)}, got {_describe(tree, found)}"
    for (key, child), (_, other) in zip(expected, found, strict=True):
        message = mismatch(child, other, is_leaf, (*path, key))
        if message is not None:
            return message
    return None


def children_by_key(tree: Any) -> list[tuple[Any, Any]]:
    """The children of the root, each with its key; none for a leaf."""
    pairs, _ = TREE.flatten_with_path(tree, lambda path, _: len(path) > 0)
    return [(path[0], child) for path, child in pairs if path]


def _describe(tree: Any, children: list[tuple[Any, Any]]) -> str:
    name = type(tree).__name__
    if tree is None:
        return "None"
    if tree_structure(tree) == LEAF:
        return f"a leaf of type {name}"
    if children and isinstance(children[0][0], SequenceKey):
        return f"{name} of length {len(children)}"
    return f"{name} with keys {', '.join([_key_text(key) for key, _ in children]) or 'none'}"


def _key_text(key: Any) -> str:
    if isinstance(key, DictKey):
        return f"[{key.key!r}]"
    if isinstance(key, SequenceKey):
        return f"[{key.idx}]"
    if isinstance(key, GetAttrKey):
        return f".{key.name}"
    return f"[<child {key.key}>]"
