"""Records the effects of a program, so that it can run again without repeating any of them."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import numpy as np

from fiveloop.core import util
from fiveloop.core.arrays.array import Value
from fiveloop.core.backend import lazy
from fiveloop.core.util import R


class Changed(Protocol):
    """A mutable value that a program changes, with its contents before."""

    def restore(self) -> None:
        """Give the value its old contents back."""

    def has_new_nan(self) -> bool:
        """Whether there is a nan in the contents, and there was none."""


class Notes:
    """What one run has done: mutable values that it made and wrote; by their places, calls of Python with results."""

    def __init__(self) -> None:
        self.made: list[Value] = []
        self.written: list[Value] = []
        self.changes: list[Changed] = []
        self.calls: dict[Hashable, list[tuple[bytes, Any]]] = defaultdict(list)

    @property
    def written_outside(self) -> list[Value]:
        """The mutable values that it wrote and did not make."""
        made = {id(x) for x in self.made}
        return [x for x in self.written if id(x) not in made]

    def restore(self) -> None:
        """Undo the changes, the last one first."""
        for change in reversed(self.changes):
            change.restore()


_own: util.OfThread[Notes | None] = util.OfThread(None)
# A program calls Python from threads of its own.
_lock = util.free_after_fork(threading.Lock())
_noting: list[Notes] = []
_replayed: list[Notes] = []


@contextmanager
def noting() -> Iterator[Notes]:
    """Within the block, what programs do is noted."""
    notes = Notes()
    with _own.to(notes), _among(_noting, notes):
        yield notes


def replaying(notes: Notes) -> AbstractContextManager[None]:
    """Within the block, calls of Python that are in the notes are not made again, but give what they gave."""
    return _among(_replayed, notes)


@contextmanager
def _among(those: list[Notes], notes: Notes) -> Iterator[None]:
    with _lock:
        those.append(notes)
    try:
        yield
    finally:
        with _lock:
            those.remove(notes)


def note_made(x: Value) -> None:
    """Tell that a mutable value is made."""
    if _own.value is not None:
        _own.value.made.append(x)


def note_written(x: Value) -> None:
    """Tell that a mutable value has new contents."""
    if _own.value is not None:
        _own.value.written.append(x)


def note_change(make: Callable[[], Changed]) -> None:
    """Tell that a mutable value is about to be changed by a program; `make` keeps what it holds."""
    if _own.value is not None:
        _own.value.changes.append(make())


def made_once(place: Hashable, given: Sequence[np.ndarray[Any, Any]], call: Callable[[], R]) -> R:
    """What a call of Python gives, which may do anything: it is not made again where a program is run again.

    `place` is equal for calls of the same line of the program. Of its calls, one that was given the same arrays is
    taken first: a compiled program may make them in another order, and round what it gives them differently.
    """
    if not _noting and not _replayed:
        return call()
    digest = _digest(given)
    with _lock:
        for notes in _replayed:
            known = notes.calls.get(place)
            if known:
                k = next((k for k, (own, _) in enumerate(known) if own == digest), 0)
                out: R = known.pop(k)[1]
                return out
    out = call()
    with _lock:
        for notes in _noting:
            notes.calls[place].append((digest, out))
    return out


def _digest(arrays: Sequence[np.ndarray[Any, Any]]) -> bytes:
    whole = lazy.hashlib().blake2b()
    for x in arrays:
        whole.update(f"{x.shape}{x.dtype}".encode())
        whole.update(np.ascontiguousarray(x).tobytes())
    digest: bytes = whole.digest()
    return digest
