"""Mutable values whose memory arrays may share: before such an array is donated, they take a copy of their own."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable
from typing import Any, Protocol

from fiveloop.core.array import Array


class Sharer(Protocol):
    """A mutable value that exists now."""

    def shares(self, buffer: object) -> bool:
        """Whether it holds this memory, and an array may do so too."""

    def part(self) -> None:
        """Hold a copy of its own."""


_sharers: weakref.WeakValueDictionary[int, Sharer] = weakref.WeakValueDictionary()
_lock = threading.Lock()


def note_sharer(sharer: Sharer) -> None:
    """Tell of a mutable value that has come to share its memory with an array."""
    with _lock:
        _sharers[id(sharer)] = sharer


def part_from(donated: Iterable[Any]) -> None:
    """Let mutable values that share the memory of these leaves take copies: theirs is about to be given away."""
    if not _sharers:
        return
    with _lock:
        sharers = [*_sharers.values()]
    for x in donated:
        if type(x) is Array:
            for sharer in sharers:
                if sharer.shares(x.buffer):
                    sharer.part()
