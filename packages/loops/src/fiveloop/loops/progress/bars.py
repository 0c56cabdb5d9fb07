"""Bars, drawn while a program runs: by tqdm if it is installed, otherwise as plain text."""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from fiveloop.core.backend.lazy import optional_module
from fiveloop.core.dataclass import dataclass, field
from fiveloop.loops.progress.api import Progress

INTERVAL = 0.1
"""Seconds between two updates, unless a number of steps is given."""

_GROWTH = 16
_LAST = 2**31 - 1


class Bar(Protocol):
    """What draws."""

    def show(self, count: int) -> None:
        """So many steps are done."""

    def close(self, count: int) -> None:
        """The loop has ended after so many steps."""


@dataclass(slots=True)
class _TqdmBar:
    bar: Any

    def show(self, count: int) -> None:
        self.bar.update(count - self.bar.n)

    def close(self, count: int) -> None:
        self.show(count)
        self.bar.close()


@dataclass(slots=True)
class _TextBar:
    """A line on the error stream that is written over."""

    total: int | None
    desc: str | None
    started: float = field(default_factory=time.perf_counter)
    drawn: float = 0.0

    def show(self, count: int) -> None:
        now = time.perf_counter()
        if now - self.drawn >= INTERVAL:
            self.drawn = now
            self._write(count, now, "")

    def close(self, count: int) -> None:
        self._write(count, time.perf_counter(), "\n")

    def _write(self, count: int, now: float, end: str) -> None:
        label = f"{self.desc}: " if self.desc else ""
        of = f"/{self.total}, {100 * count // max(self.total, 1)}%" if self.total else " steps"
        print(f"\r{label}{count}{of}, {now - self.started:.1f} s", end=end, file=sys.stderr)


def new_bar(progress: Progress, total: int | None) -> Bar:
    """A bar of so many steps, or of a number that is not known."""
    tqdm = optional_module("tqdm.auto")
    if tqdm is None:
        return _TextBar(total, progress.desc)
    # A bar that is drawn below another goes when it is done.
    return _TqdmBar(tqdm.tqdm(total=total, desc=progress.desc, leave=None))


@dataclass(slots=True)
class _Running:
    """A bar, and how far it was when."""

    bar: Bar
    count: int = 0
    at: float = field(default_factory=lambda: time.perf_counter())

    def next_stop(self, progress: Progress, count: int) -> int:
        """At which step to come back: after as many as take some time."""
        now = time.perf_counter()
        took, seconds = max(count - self.count, 1), max(now - self.at, 1e-9)
        self.count, self.at = count, now
        fitting = min(max(took * INTERVAL / seconds, 1.0), _GROWTH * took)
        return min(count + (progress.every or int(fitting)), _LAST)


OPEN, SHOW, CLOSE = 0, 1, 2


class LoopBars:
    """The bars of one loop of a program, one for each time that it runs, by number.

    It is called with an action, the number of a bar and a number of steps. It returns the number of the bar and the
    step of the next call. Actions on a bar that has been closed do nothing.
    """

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.running: dict[int, _Running] = {}
        self.numbers = itertools.count()
        self.lock = threading.Lock()

    def __call__(self, what: Any, number: Any, count: Any) -> list[np.ndarray[Any, Any]]:
        """Open a bar of `count` steps, show that so many are done, or close it."""
        with self.lock:
            number, stop = _DO[int(what)](self, int(number), int(count))
        return [np.asarray(number, np.int32), np.asarray(stop, np.int32)]

    def open(self, number: int, total: int) -> tuple[int, int]:
        """A new bar; a negative number of steps is not known."""
        number = next(self.numbers) % _LAST
        self.running[number] = _Running(new_bar(self.progress, total if total >= 0 else None))
        return number, self.progress.every or 1

    def show(self, number: int, count: int) -> tuple[int, int]:
        """Show how far it is."""
        found = self.running.get(number)
        if found is None:
            return number, _LAST
        found.bar.show(count)
        return number, found.next_stop(self.progress, count)

    def close(self, number: int, count: int) -> tuple[int, int]:
        """Show where it has ended."""
        found = self.running.pop(number, None)
        if found is not None:
            found.bar.close(count)
        return number, _LAST

    def at_failure(self) -> None:
        """Close what the loop has left open."""
        with self.lock:
            for number, found in list(self.running.items()):
                self.close(number, found.count)


_DO = {OPEN: LoopBars.open, SHOW: LoopBars.show, CLOSE: LoopBars.close}


@contextmanager
def shown(progress: Progress | None, total: int | None = None) -> Iterator[Callable[[], None]]:
    """The bar of a loop that runs as Python; what is given is called after each step."""
    if progress is None:
        yield lambda: None
        return
    bars = LoopBars(progress)
    number, stop = bars.open(0, -1 if total is None else total)
    count = 0

    def step_done() -> None:
        nonlocal count, stop
        count += 1
        if count >= stop:
            _, stop = bars.show(number, count)

    try:
        yield step_done
    finally:
        bars.close(number, count)
