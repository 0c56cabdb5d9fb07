"""The two C++ pytree registries: TREE, in which an array is a leaf, and CALL, which opens arrays.

TREE is what users see. CALL knows the same containers, and besides treats the array class as a node
that holds its buffer, so that the C++ call path unwraps arguments by itself.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, Protocol, TypeAlias, TypeVar

from .native import xla

T = TypeVar("T")
KeyPath: TypeAlias = tuple[Any, ...]
IsLeaf: TypeAlias = Callable[[Any], bool]


class TreeDef(Protocol):
    """The structure of a pytree without its leaves; hashable, and equal if the structures are."""

    @property
    def num_leaves(self) -> int:
        """How many leaves a tree of this structure has."""

    def unflatten(self, leaves: Iterable[Any], /) -> Any:
        """Build a tree of this structure."""

    def flatten_up_to(self, tree: Any, /) -> list[Any]:
        """The subtrees of `tree` at the leaves of this structure."""

    def children(self) -> list["TreeDef"]:
        """The structures one level below."""

    def node_data(self) -> tuple[type, Any] | None:
        """The container class of the root and its auxiliary data; None for a leaf."""

    def compose(self, inner: "TreeDef", /) -> "TreeDef":
        """This structure with each leaf replaced by `inner`."""

    def __hash__(self) -> int:
        """Equal structures have equal hashes."""


class Registry(Protocol):
    """What is used of jaxlib's pytree registry."""

    def flatten(
        self, tree: Any, leaf_predicate: IsLeaf | None = None, /
    ) -> tuple[list[Any], TreeDef]:
        """The leaves of a tree and its structure."""

    def flatten_with_path(
        self, tree: Any, leaf_predicate: Callable[[KeyPath, Any], bool] | None = None, /
    ) -> tuple[list[tuple[KeyPath, Any]], TreeDef]:
        """The same, each leaf with the keys that lead to it."""

    def register_node(
        self,
        cls: type,
        to_iterable: Callable[[Any], tuple[Any, Any]],
        from_iterable: Callable[[Any, Any], Any],
        to_iterable_with_keys: Callable[[Any], tuple[Any, Any]] | None = None,
        /,
    ) -> Any:
        """Make a class a container."""

    def register_dataclass_node(
        self, cls: type, data_fields: Sequence[str], meta_fields: Sequence[str], /
    ) -> Any:
        """Make a class with attributes a container."""


TREE: Registry = xla.pytree.PyTreeRegistry()
CALL: Registry = xla.pytree.PyTreeRegistry()

LEAF: TreeDef = TREE.flatten(0)[1]
"""The structure of a single leaf."""

DictKey: Any = xla.pytree.DictKey
SequenceKey: Any = xla.pytree.SequenceKey
GetAttrKey: Any = xla.pytree.GetAttrKey
FlattenedIndexKey: Any = xla.pytree.FlattenedIndexKey


class Different(Exception):
    """A tree has another structure than the one that it is read as."""


Reader: TypeAlias = Callable[[Any], Iterable[Any]]
"""What gives the leaves of a tree of one structure, and raises `Different` or KeyError of others."""


@lru_cache(maxsize=1024)
def reader(tree: TreeDef) -> Reader:
    """The reader of a structure: where it is made of lists, tuples and dicts, it takes half the time of `flatten`."""
    try:
        return _reader(tree) or _flattening(tree)
    except RecursionError:
        return _flattening(tree)


def _reader(tree: TreeDef) -> Reader | None:
    """The reader of a container, or None of a leaf."""
    cls, keys = tree.node_data() or (None, None)
    if cls is None:
        return None
    if cls not in (list, tuple, dict):
        return _flattening(tree)
    readers = [_reader(child) for child in tree.children()]
    num = len(readers)
    items = _getter(keys) if keys else iter

    def read(x: Any) -> Iterable[Any]:
        if type(x) is not cls or len(x) != num:
            raise Different
        return items(x)

    return _through(read, readers) if any(readers) else read


def _flattening(tree: TreeDef) -> Reader:
    def read(x: Any) -> Iterable[Any]:
        leaves, found = TREE.flatten(x)
        if found != tree:
            raise Different
        return leaves

    return read


def _getter(keys: Sequence[Any]) -> Reader:
    """What gives the values of a dict in the order of these keys."""
    return itemgetter(*keys) if len(keys) > 1 else lambda x: (x[keys[0]],)


def _through(read: Reader, readers: Sequence[Reader | None]) -> Reader:
    """What reads the parts of a container by readers of their own; a leaf has none."""
    only = readers[0]
    if only and len(readers) == 1:
        return lambda x: only(*read(x))

    def read_all(x: Any) -> Iterable[Any]:
        leaves: list[Any] = []
        for child, part in zip(readers, read(x), strict=True):
            leaves += (part,) if child is None else child(part)
        return leaves

    return read_all


def register_container(
    cls: type[T],
    to_iterable: Callable[[T], tuple[Iterable[Any], Hashable]],
    from_iterable: Callable[[Any, tuple[Any, ...]], T],
    to_iterable_with_keys: Callable[[T], tuple[Iterable[tuple[Any, Any]], Hashable]] | None = None,
) -> None:
    """Make a class a container in both registries."""
    for registry in (TREE, CALL):
        registry.register_node(cls, to_iterable, from_iterable, to_iterable_with_keys)


def register_record(cls: type, data_fields: Sequence[str], meta_fields: Sequence[str]) -> None:
    """Make a class with attributes a container in both registries."""
    for registry in (TREE, CALL):
        registry.register_dataclass_node(cls, list(data_fields), list(meta_fields))


def _register_python_containers() -> None:
    """dict, list, tuple, namedtuples and None are native; these two of Python's own are not."""
    register_container(
        OrderedDict,
        lambda d: (tuple(d.values()), tuple(d)),
        lambda keys, values: OrderedDict(zip(keys, values, strict=True)),
        lambda d: (tuple([(DictKey(k), v) for k, v in d.items()]), tuple(d)),
    )
    register_container(
        defaultdict,
        lambda d: (tuple(d.values()), (d.default_factory, tuple(d))),
        lambda aux, values: defaultdict(aux[0], zip(aux[1], values, strict=True)),
        lambda d: (tuple([(DictKey(k), v) for k, v in d.items()]), (d.default_factory, tuple(d))),
    )


_register_python_containers()
