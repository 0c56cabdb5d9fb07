"""Shared mutable values: locks for threads, and arrays that share the buffer of a Ref."""

from __future__ import annotations

import threading
import weakref
from _thread import RLock
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from fiveloop.core import errors, ir, util
from fiveloop.core.arrays import array
from fiveloop.core.backend.host_calls import Run, runs_here


class Turn(RLock):  # type: ignore[misc]  # CPython lets it be one, and no other lock costs as little
    """Whose turn it is with a mutable value: a thread's, or that of a run that calls Python and uses the value.

    Who reads says `with turn:`, and finds what there was before such a run. Who writes says `turn.claim()` in it.
    """

    __slots__ = ("run",)

    def __init__(self) -> None:
        self.run: Run | None = None

    def claim(self) -> None:
        """Go on when no run has the value, but those that this is called from."""
        if self.run is not None:
            self.release()
            try:
                take((self,), (self,))
            except BaseException:
                self.acquire()  # who holds it lets go of it
                raise


def take(turns: Sequence[Turn], written: Sequence[Turn]) -> None:
    """Take all turns, in one order; RuntimeError if those to be written are never free, or written by our caller."""
    while True:
        _acquire(turns)
        for turn in turns:
            if turn.run is not None:
                break
        else:
            return
        runs = [turn.run for turn in turns if turn.run is not None]
        here = runs_here()
        others = [run for run in runs if run not in here]
        lost = not others and any(turn in run.writes for run in here for turn in written)
        if not others and not lost:
            return
        leave(turns)
        if lost:
            raise RuntimeError(
                "a Ref was written in a call from a program that writes it too, when it ends, so that this write would "
                f"be lost; return the value from the call, and write it in the program"
                f"{errors.at_source(ir.user_source())}"
            )
        _wait_for(others[0], here)


def _acquire(turns: Sequence[Turn]) -> None:
    """Wait for all turns; Ctrl-C may end the waiting for one, and none is taken then."""
    for number, turn in enumerate(turns):
        try:
            turn.acquire()
        except BaseException:
            leave(turns[:number])
            raise


def leave(turns: Sequence[Turn]) -> None:
    """Let others have their turns."""
    for turn in turns:
        turn.release()


_ended = util.free_after_fork(threading.Condition())
_active: set[Run] = set()


def _wait_for(run: Run, here: frozenset[Run]) -> None:
    """Wait until another run has ended."""
    with _ended:
        ahead: Run | None = run
        while ahead is not None and ahead not in here:
            ahead = ahead.awaits
        if ahead is not None:
            raise RuntimeError(
                "two programs that call Python wait for each other: each uses a Ref that a call from the other writes; "
                f"return the value from the call, and write it in the program{errors.at_source(ir.user_source())}"
            )
        try:
            for each in here:
                each.awaits = run
            _ended.wait_for(lambda: run not in _active)
        finally:
            for each in here:
                each.awaits = None


@contextmanager
def lent(turns: Sequence[Turn], written: Sequence[Turn]) -> Iterator[Run]:
    """A run that has the values within the block: who is not called from it waits to write."""
    run = Run(written)
    take(turns, written)
    before = [turn.run for turn in turns]
    _active.add(run)
    for turn in turns:
        turn.run = run
    leave(turns)
    try:
        yield run
    finally:
        for turn, outer in zip(turns, before, strict=True):
            turn.run = outer
        with _ended:
            _active.discard(run)
            _ended.notify_all()


class Sharer(Protocol):
    """A mutable value that exists now."""

    def shares(self, buffer: object) -> bool:
        """Whether it holds this memory, and an array may do so too."""

    def part(self) -> None:
        """Hold a copy of its own."""


_sharers: weakref.WeakValueDictionary[int, Sharer] = weakref.WeakValueDictionary()
_lock = util.free_after_fork(threading.Lock())


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
        if type(x) is array.Array:
            for sharer in sharers:
                if sharer.shares(x.buffer):
                    sharer.part()
