"""How a `for` loop runs: what its callers may choose."""

from __future__ import annotations

from dataclasses import dataclass

from fiveloop.loops.for_loop.unroll import Unroll
from fiveloop.loops.progress.api import Progress


@dataclass(frozen=True, slots=True)
class How:
    """From which end, how many steps to a turn, and how it shows its progress."""

    reverse: bool
    unroll: Unroll
    progress: Progress | None
