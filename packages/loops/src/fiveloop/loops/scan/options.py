"""How a scan runs: what its callers may choose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fiveloop.loops.progress.api import Progress
from fiveloop.loops.unroll import AUTO


@dataclass(frozen=True, slots=True)
class How:
    """From which end, how many steps to a turn, what ends it early, how it shows its progress.

    And what the argument with the first carry is called in messages.
    """

    reverse: bool = False
    unroll: int = AUTO
    until: Callable[[Any], Any] | None = None
    progress: Progress | None = None
    init: str = "init"
