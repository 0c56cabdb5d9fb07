"""How a loop runs: what its callers may choose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from fiveloop.core.dataclass import dataclass
from fiveloop.loops import common, options
from fiveloop.loops.progress.api import Progress

Unroll = int | bool | Literal["auto"]


@dataclass(frozen=True, slots=True)
class How:
    """From which end a loop runs, how many steps make a turn, what ends it early, how it shows its progress.

    And what the argument with the first carry is called in messages, and how many states reverse mode saves.
    """

    reverse: bool = False
    unroll: int = options.AUTO
    until: Callable[[Any], Any] | None = None
    progress: Progress | None = None
    init: str = "init"
    checkpoints: int | None = None


def check_checkpoints(what: str, given: Any) -> int | None:
    """The number of states that reverse mode saves; None if it keeps what it needs of each step."""
    if given is None:
        return None
    return common.as_count(f"{what}: checkpoints", given, ", or None")


def check_unroll(what: str, unroll: Any, steps: int) -> int:
    """The number of steps in a turn: all if True or 0, one if False, AUTO for "auto"."""
    if isinstance(unroll, str):
        if unroll != "auto":
            raise ValueError(f"{what}: unroll must be {_EXPECTED}, got {unroll!r}")
        return options.AUTO
    if isinstance(unroll, bool | np.bool_):
        return max(steps, 1) if unroll else 1
    return common.as_count(f"{what}: unroll", unroll, _MORE, least=0) or max(steps, 1)


_MORE = ', True, False or "auto"'
_EXPECTED = f"an integer of at least 0{_MORE}"
