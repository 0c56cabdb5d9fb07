"""Small list tools of the engines: strict zips, splits, masks and the fixpoint."""

from __future__ import annotations

import gc
import os
import struct
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from numbers import Number
from types import ModuleType, NoneType
from typing import Any, Generic, ParamSpec, TypeVar, cast

import numpy as np

from fiveloop.core.dataclass import fields, is_dataclass
from fiveloop.core.errors import CoreError

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
T = TypeVar("T")
U = TypeVar("U")
Mask = tuple[bool, ...]
Fun = Callable[..., Any]
"""A function of any arguments, such as one of the user's."""

PLAIN = frozenset([int, bool, str, bytes, NoneType])
"""Types whose values are equal only to the same value, once their types are."""


def exact_key(x: Any, key: Callable[[Any], Hashable]) -> Hashable | None:
    """A key that tells 1, 1.0 and True apart, and 0.0 and -0.0, alone or in tuples and the like; None for other types.

    `key` is the key of a part.
    """
    kind = type(x)
    if kind in PLAIN:
        return (kind, x)
    if kind is float:
        return (kind, struct.pack("d", x))
    if kind is complex:
        return (kind, struct.pack("dd", x.real, x.imag))
    if isinstance(x, np.generic):
        return (kind, x.dtype, x.tobytes())
    if kind is tuple:
        return (kind, *[key(item) for item in x])
    if kind is frozenset:
        return (kind, frozenset([key(item) for item in x]))
    if kind in (slice, range):
        return (kind, key(x.start), key(x.stop), key(x.step))
    return None


def exact(x: Any) -> Any:
    """A key that is equal only for identical values: it tells 1, 1.0 and True apart, and 0.0 and -0.0, also inside."""
    found = exact_key(x, exact)
    if found is not None:
        return found
    kind = type(x)
    if isinstance(x, Number):
        return kind, x, repr(x)
    if isinstance(x, tuple):  # a named one
        return kind, *map(exact, x)
    if is_dataclass(kind):
        held = [exact(getattr(x, field.name, None)) for field in fields(kind) if field.compare]
        return kind, x, *filter(has_hash, held)
    return kind, x


def has_hash(x: object) -> bool:
    """Whether a value can be part of a key."""
    try:
        hash(x)
    except TypeError:
        return False
    return True


class Exact:
    """A value that is equal only to the same value of the same type: its key is compared."""

    __slots__ = ("hash", "key", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        self.key = exact(value)
        self.hash = hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Exact) and self.key == other.key

    def __hash__(self) -> int:
        return self.hash


def split_list(xs: Sequence[T], sizes: Sequence[int]) -> list[list[T]]:
    """Cut a list into consecutive parts of the given sizes; what is left is the last part."""
    parts, start = [], 0
    for size in sizes:
        if size < 0 or start + size > len(xs):
            raise CoreError(f"cannot take parts of sizes {list(sizes)} from {len(xs)} items")
        parts.append(list(xs[start : start + size]))
        start += size
    return [*parts, list(xs[start:])]


def partition(mask: Sequence[bool], xs: Sequence[T]) -> tuple[list[T], list[T]]:
    """Split a list by a mask: first the items whose mask is False, then the others."""
    out: tuple[list[T], list[T]] = ([], [])
    for m, x in zip(mask, xs, strict=True):
        out[m].append(x)
    return out


def merge(mask: Sequence[bool], no: Sequence[T], yes: Sequence[U]) -> list[T | U]:
    """Undo `partition`: take from `yes` where the mask is True and from `no` elsewhere."""
    no_it, yes_it = iter(no), iter(yes)
    out: list[T | U] = [next(yes_it) if m else next(no_it) for m in mask]
    if len(out) != len(no) + len(yes):
        raise CoreError(f"cannot merge {len(no)} and {len(yes)} items by a mask of {len(mask)}")
    return out


def select_by(mask: Sequence[bool], xs: Sequence[T]) -> list[T]:
    """The items whose mask is True."""
    return [x for m, x in zip(mask, xs, strict=True) if m]


def full(mask: bool | Sequence[bool], size: int) -> Mask:
    """A mask of so many items, which one truth value may stand for."""
    return (mask,) * size if isinstance(mask, bool) else tuple(mask)


def fixpoint(
    step: Callable[[Mask], Sequence[bool]], mask: Iterable[bool], what: str = "loop"
) -> Mask:
    """Grow a mask until `step` adds nothing more; a step may only turn False into True."""
    current = tuple(mask)
    for _ in range(len(current) + 1):
        proposed = tuple(step(current))
        grown = tuple(a or b for a, b in zip(current, proposed, strict=True))
        if grown == current:
            return current
        current = grown
    raise CoreError(f"the fixpoint of {what} did not settle on a mask of {len(current)}")


def dedupe(xs: Iterable[T]) -> list[T]:
    """Each object once, in order, by identity."""
    return list({id(x): x for x in xs}.values())


class OfThread(threading.local, Generic[T]):
    """A value that each thread has for itself, the same in all of them at first; a block may change it."""

    def __init__(self, value: T) -> None:
        self.value = value

    @contextmanager
    def to(self, value: T) -> Iterator[T]:
        """Within the block this thread has another value."""
        before, self.value = self.value, value
        try:
            yield value
        finally:
            self.value = before


@contextmanager
def without_collection() -> Iterator[None]:
    """No garbage is looked for in the block: most of what it makes stays, and each search goes through all of it."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


FORGET: list[Callable[[], None]] = []
"""What empties each table of traces and programs."""


def remembered(limit: int) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """`lru_cache` for what makes traces and programs, which `forget_traces` empties."""

    def decorate(fun: Callable[P, T]) -> Callable[P, T]:
        kept = lru_cache(maxsize=limit)(fun)
        FORGET.append(kept.cache_clear)
        return cast(Callable[P, T], kept)

    return decorate


_for_forks: list[Any] = []


def free_after_fork(lock: T) -> T:
    """A lock that lives as long as the process: free in a forked process, which lacks the thread that had it."""
    _for_forks.append(lock)
    return lock


def _free_locks() -> None:
    for lock in _for_forks:
        lock._at_fork_reinit()


os.register_at_fork(after_in_child=_free_locks)


class BoundedTable(Generic[T]):
    """A dictionary of at most `limit` items, which forgets the one that was not asked for the longest."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._items: OrderedDict[Hashable, T] = OrderedDict()
        # `drop` may be called by the garbage collector, at any time.
        self._lock = free_after_fork(threading.RLock())
        FORGET.append(self.clear)

    def find(self, key: Hashable) -> T | None:
        """The item, or None."""
        with self._lock:
            found = self._items.get(key)
            if found is not None:
                self._items.move_to_end(key)
            return found

    def add(self, key: Hashable, item: T) -> None:
        """Keep an item."""
        with self._lock:
            self._items[key] = item
            if len(self._items) > self._limit:
                self._items.popitem(last=False)

    def remove(self, key: Hashable) -> None:
        """Forget an item, if it is there."""
        with self._lock:
            self._items.pop(key, None)

    def drop(self, test: Callable[[T], bool]) -> None:
        """Forget the items that pass a test."""
        with self._lock:
            for key in [key for key, item in self._items.items() if test(item)]:
                del self._items[key]

    def clear(self) -> None:
        """Forget all items."""
        with self._lock:
            self._items.clear()


def show_public_names(module: dict[str, Any], *modules: str) -> None:
    """Let `dir`, completion and `import *` of a package, whose globals are given, show its public names alone.

    Public names are listed in `__all__`; without it, they are names without an underscore, and the given modules.
    """
    public = {n for n, x in module.items() if not (n.startswith("_") or isinstance(x, ModuleType))}
    names = module.setdefault("__all__", sorted(public | {*modules}))
    module["__dir__"] = lambda: sorted({*names, *(n for n in module if n[:2] == "__")})
