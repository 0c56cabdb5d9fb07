"""The two C++ pytree registries: TREE, in which an array is a leaf, and CALL, which opens arrays.

TREE is what users see. CALL knows the same containers, and besides treats the array class as a node
that holds its buffer, so that the C++ call path unwraps arguments by itself.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
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

    @property
    def num_nodes(self) -> int:
        """How many nodes it has, leaves included."""

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

    def flatten_one_level(self, tree: Any, /) -> tuple[Iterable[Any], Any] | None:
        """The children of the root; None if it is a leaf."""

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
