"""The call path: from a user's call to XLA with as little Python as possible.

With few leaves jaxlib's C++ callable is fastest: it flattens by the CALL registry, which unwraps
arrays, looks up the signature, runs, and builds the user's result. With many leaves a dictionary on
identity-hashed avals is faster. Either way a `miss` function is asked once for each signature: it
gets the user's arguments and gives the result and, where later calls may go fast, a `Fast`.
"""

import itertools
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from itertools import compress
from typing import Any, NamedTuple, Protocol, Self, TypeAlias

from fiveloop.core.util import free_after_fork

from .client import AFTER_FORK, AvalLike, Buffer, Executable, aval_of, default_client, require_alive
from .native import xla
from .tree import CALL, LEAF, TREE, Different, Reader, TreeDef, reader

MANY_LEAVES = 8
"""From this many leaves on, the dictionary path is faster (measured)."""


class Fast(NamedTuple):
    """The data that the C++ path keeps for a signature; jaxlib reads these names."""

    xla_executable: Any
    out_pytree_def: Any
    in_shardings: Sequence[Any]
    out_shardings: Sequence[Any]
    out_avals: Sequence[AvalLike]
    out_committed: Sequence[bool]
    kept_var_bitvec: Sequence[bool]
    in_device_local_layouts: Sequence[Any]
    const_args: Sequence[Buffer]
    # The rest is read by the dictionary path only.
    direct: "Direct"


Take: TypeAlias = Callable[[Sequence[Buffer]], None]
"""What is done with the results that are not the user's, at every call; what it raises, the call raises."""
Build: TypeAlias = Callable[[Sequence[Buffer]], Any]
"""What makes the user's result of all raw ones."""
Miss: TypeAlias = Callable[..., tuple[Any, Fast | None] | tuple[Any, Fast | None, bool]]


class FastFunction(Protocol):
    """jaxlib's C++ callable."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function."""

    def _cache_size(self) -> int:
        """How many signatures it knows."""

    def _clear_cache(self) -> None:
        """Forget all of them."""


class _Out:
    """Stands in C++ for one array of the user's result."""

    __slots__ = ("leaves",)

    def __init__(self, leaf: object) -> None:
        self.leaves = (leaf,)


class _OutWhole:
    """The whole result as one node, with its structure as auxiliary data: all its arrays are made at once."""

    __slots__ = ("leaves", "tree")

    def __init__(self, tree: TreeDef, leaves: Sequence[int]) -> None:
        self.tree = tree
        self.leaves = leaves


class _OutAndMore:
    """The user's result, and after it what `take` gets at every call."""

    __slots__ = ("children", "take")

    def __init__(self, result: Any, more: Sequence[int], take: "Take") -> None:
        self.children = (result, *more)
        self.take = take


Wrap: TypeAlias = Callable[[Buffer], Any]
WrapAll: TypeAlias = Callable[[Sequence[Buffer]], list[Any]]
FromNode: TypeAlias = Callable[[None, tuple[Buffer]], Any]


class _ArrayClass:
    """The class that users hold, told by `register_array_class`."""

    __slots__ = ("cls", "wrap", "wrap_all")

    def __init__(self) -> None:
        self.cls: Any = None
        self.wrap: Wrap = lambda buf: buf
        self.wrap_all: WrapAll = list


_array = _ArrayClass()


def register_array_class(
    cls: type, wrap: Wrap, wrap_all: WrapAll | None = None, from_node: FromNode | None = None
) -> None:
    """Say which class users hold: its slot `_a` has the buffer, `wrap` makes one of a buffer, and `wrap_all` many.

    `from_node` does what `wrap` does for C++, without a call of Python within.
    """
    if _array.cls is not None:
        raise RuntimeError(f"the array class is {_array.cls.__name__} already")
    _array.cls, _array.wrap = cls, wrap
    _array.wrap_all = wrap_all or (lambda bufs: [wrap(buf) for buf in bufs])
    CALL.register_dataclass_node(cls, ["_a"], [])
    from_node = from_node or (lambda _, leaves: wrap(leaves[0]))
    CALL.register_node(_Out, lambda out: (out.leaves, None), from_node)
    CALL.register_node(_OutWhole, lambda out: (out.leaves, out.tree), wrap_outputs)
    CALL.register_node(_OutAndMore, lambda out: (out.children, out.take), _taken)


def _taken(take: "Take", children: Sequence[Any]) -> Any:
    result, *more = children
    take(more)
    return result


def array_class() -> Any:
    """The class that was registered, or None."""
    return _array.cls


def wrap_outputs(out_treedef: TreeDef, outs: Sequence[Buffer]) -> Any:
    """Raw results as the user's result."""
    return out_treedef.unflatten(_array.wrap_all(outs))


def _builder(out_treedef: TreeDef, take: Take | None) -> Build | None:
    wrap_all, unflatten = _array.wrap_all, out_treedef.unflatten
    if take is None:
        return None if out_treedef == LEAF else lambda outs: unflatten(wrap_all(outs))
    num, hand_on = out_treedef.num_leaves, take

    def taking(outs: Sequence[Buffer]) -> Any:
        hand_on(outs[num:])
        return unflatten(wrap_all(outs[:num]))

    return taking


Direct: TypeAlias = tuple[Callable[[list[Buffer]], Any], list[Any], Build | None]
"""A program that is run without C++'s look-up: what runs it, the handlers that take the raw results from what that
gives, and what makes the user's of these, unless it is one array. No named tuple, as that takes longer to unpack."""


def make_direct(
    executable: Executable,
    out_treedef: TreeDef,
    *,
    consts: Sequence[Buffer] = (),
    kept: Sequence[bool] = (),
    take: Take | None = None,
) -> Direct:
    """A program as its caller in Python needs it; `consts` come first, and `kept` says which of all it takes."""
    execute = executable.raw.execute_sharded

    def run(buffers: list[Buffer]) -> Any:
        return execute([*compress([*consts, *buffers], kept)])

    plain = not consts and all(kept)
    return (execute if plain else run), executable.handlers, _builder(out_treedef, take)


def make_fast(
    executable: Executable,
    num_leaves: int,
    out_treedef: TreeDef,
    *,
    consts: Sequence[Buffer] = (),
    kept: Sequence[bool] | None = None,
    take: Take | None = None,
) -> Fast:
    """The fast path of one signature.

    `consts` are hidden leading arguments. `kept` says which of `(*consts, *leaves)` the program
    takes: all, if it is not given. The program's results are the leaves of `out_treedef`,
    followed by the results for `take`.
    """
    outs = range(len(executable.out_avals))
    own = outs[: out_treedef.num_leaves]
    if len(own) >= MANY_LEAVES:
        node: Any = _OutWhole(out_treedef, own)
    else:
        node = out_treedef.unflatten(map(_Out, own))
    if take is not None:
        node = _OutAndMore(node, outs[len(own) :], take)
    sharding = default_client().sharding
    num_args = len(consts) + num_leaves
    mask = [True] * num_args if kept is None else list(kept)
    if len(mask) != num_args:
        raise ValueError(f"kept: expected {num_args} flags, got {len(mask)}")
    num_kept, num_outs = sum(mask), len(outs)
    return Fast(
        xla_executable=executable.raw,
        out_pytree_def=CALL.flatten(node)[1],
        in_shardings=[sharding] * num_kept,
        out_shardings=[sharding] * num_outs,
        out_avals=executable.out_avals,
        out_committed=[True] * num_outs,
        kept_var_bitvec=mask,
        in_device_local_layouts=[None] * num_kept,
        const_args=list(consts),
        direct=make_direct(executable, out_treedef, consts=consts, kept=mask, take=take),
    )


_CACHE: Any = xla.PjitFunctionCache(8192)
_serial = itertools.count()


def forget_signatures() -> None:
    """Let the C++ path forget all programs, and ask for each again."""
    _CACHE.clear()


AFTER_FORK.append(forget_signatures)


def fast_function(
    name: str,
    fun: Callable[..., Any],
    miss: Miss,
    static_argnums: Sequence[int] = (),
    static_argnames: Sequence[str] = (),
) -> FastFunction:
    """The C++ callable over trees of arrays; `fun` is what runs where jax has disabled its jit."""
    _install_hooks()
    # Entries are shared by equal (fun, key); a serial number keeps functions apart.
    key = ("fiveloop", next(_serial))
    function: FastFunction = xla.pjit(
        name,
        fun,
        miss,
        list(static_argnums),
        list(static_argnames),
        key,
        CALL,
        _shard_arg_fallback,
        _CACHE,
    )
    return function


def _shard_arg_fallback(arg: Any, sharding: Any, layout: Any) -> Any:
    raise TypeError(f"expected a buffer on the default device, got {type(arg).__name__}")


_hooks: list[Any] = []
_hooks_lock = free_after_fork(threading.Lock())


def _install_hooks() -> None:
    """Give jaxlib the three process-wide settings that its call path reads, before any thread goes on to a call.

    jax installs its own when it is imported, before or after this, and then its values rule; nothing
    here depends on them, since only buffers reach the C++ path.
    """
    with _hooks_lock:
        if _hooks:
            return
        config = xla.config.Config
        _hooks.extend(
            config(f"fiveloop_{n}", v)
            for n, v in (("disable", False), ("x64", False), ("hook", None))
        )
        if _config_of_jax() is None:
            xla.jax_jit.set_disable_jit_state(_hooks[0])
            xla.jax_jit.set_enable_x64_state(_hooks[1])
            xla.jax_jit.set_post_hook_state(_hooks[2])


def _config_of_jax() -> Any:
    """The part of jax that has set jaxlib's settings, or None; modules may go by its names and be none of jax's."""
    config = sys.modules.get("jax._src.config")
    return config if hasattr(config, "enable_x64") else None


def reads_numbers_wide() -> bool:
    """Whether C++ makes 64 bits of Python's numbers in this thread: only where jax has been told to."""
    config = _config_of_jax()
    return config is not None and bool(config.enable_x64.value)


Guard: TypeAlias = Callable[[Exception], None]


def _no_guard(error: Exception) -> None:
    """Errors go on as they are."""


class Retargetable(partial[Any]):
    """A callable that hands its call to another one at C speed, and may be given another one later.

    A Python `__call__` costs a tenth of a call with one leaf; `partial` does the same in C.
    """

    def __new__(cls, target: Callable[..., Any], /) -> Self:
        """Start out with the given target."""
        return super().__new__(cls, target)

    def retarget(self, target: Callable[..., Any]) -> None:
        """Hand calls to another callable from now on."""
        state: Any = self  # the stubs leave out what pickling calls
        state.__setstate__((target, (), {}, self.__dict__))


_UNLIKE = (Different, KeyError, AttributeError, TypeError, ValueError, RecursionError)
"""What is raised where a tree is read as one of another structure."""


class DictCall:
    """A call by a dictionary on (structure, *avals), for functions of many leaves.

    Avals must be hashed by identity. `miss` is asked as on the C++ path. No class of leaves but the
    array class may have an attribute `_a`. `guard` gets each error, before it goes on.
    """

    __slots__ = ("_guard", "_last", "_miss", "_read", "_static", "_table")

    def __init__(
        self,
        miss: Miss,
        static_argnums: Sequence[int] = (),
        static_argnames: Sequence[str] = (),
        guard: Guard = _no_guard,
    ) -> None:
        self._miss = miss
        self._guard = guard
        chosen = frozenset(static_argnums), frozenset(static_argnames)
        self._static = chosen if any(chosen) else None
        self._table: dict[Any, Direct] = {}
        self._last: tuple[Any, Any] = (None, None)
        self._read: tuple[TreeDef, Reader] = (LEAF, reader(LEAF))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function."""
        try:
            # A list tells named arguments from a dict that is the second of two.
            given: Any = [args, kwargs] if kwargs else args
            static = None
            if self._static:
                given, static = _part_static(args, kwargs, *self._static)
            # Mostly a call is like the one before, and comparing is cheaper than flattening and hashing.
            tree, read = self._read
            try:
                buffers = [leaf._a for leaf in read(given)]
                key = (tree, static, *map(aval_of, buffers))
            except _UNLIKE:
                known = self._flattened(given, static)
                if known is None:
                    return self._miss(*args, **kwargs)[0]
                buffers, key = known
            last_key, direct = self._last
            if key != last_key:
                direct = self._table.get(key)
                if direct is None:
                    return self._first_call(key, args, kwargs)
                self._last = (key, direct)
            run, handlers, build = direct
            try:
                results = run(buffers)
            except xla.JaxRuntimeError:
                require_alive(buffers)
                raise
            outs = results.consume_with_handlers(handlers)
            return _array.wrap(outs[0]) if build is None else build(outs)
        except Exception as error:
            self._guard(error)
            raise

    def _flattened(self, given: Any, static: Any) -> tuple[list[Buffer], Any] | None:
        """The buffers and the key of a call that is not like the one before; None if there are others than arrays."""
        try:
            leaves, tree = TREE.flatten(given)
            buffers = [leaf._a for leaf in leaves]
        except (AttributeError, ValueError):  # other leaves than arrays, dict keys without an order
            return None
        self._read = (tree, reader(tree))
        return buffers, (tree, static, *map(aval_of, buffers))

    def _first_call(self, key: Any, args: Any, kwargs: Any) -> Any:
        result, fast = self._miss(*args, **kwargs)[:2]
        if fast is not None:
            self._table[key] = fast.direct
        return result


def _part_static(
    args: tuple[Any, ...], kwargs: dict[str, Any], nums: frozenset[int], names: frozenset[str]
) -> tuple[Any, Any]:
    """The arguments without static arguments, and a key of the static arguments, which tells 1, 1.0 and True apart."""
    at = {n % len(args) if n < 0 else n for n in nums} if args else set()
    by_place = [(i, type(x), x) for i, x in enumerate(args) if i in at]
    by_name = [(k, type(x), x) for k, x in sorted(kwargs.items()) if k in names]
    dynamic = tuple([x for i, x in enumerate(args) if i not in at])
    named = {k: x for k, x in kwargs.items() if k not in names}
    return (dynamic, named), (*by_place, *by_name)
