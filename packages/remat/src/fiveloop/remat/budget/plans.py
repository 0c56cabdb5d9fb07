"""Plans: which stages of a program save what, and which runs of stages are computed again."""

from __future__ import annotations

import math
from typing import TypeAlias

from fiveloop.core import transforms
from fiveloop.core.dataclass import dataclass, replace

ALIKE = 1.01
"""The ratio to which estimates tell times apart."""


def rounded(time: float) -> float:
    """A time, rounded down so that times are the same which estimates do not tell apart."""
    return ALIKE ** math.floor(math.log(time, ALIKE)) if time else 0.0


@dataclass(frozen=True, slots=True)
class Option:
    """A way to go back through a stage.

    `kept` are the bytes saved besides the stage's operands, its results that later stages use included, `forward` and
    `backward` the bytes needed at most on either way besides these, `again` the operations that are done twice. A stage
    without a policy stays as it is, and keeps what its backward pass uses. `parts` are those of the bodies of the
    stage's loops, where these follow plans of their own; one that is `written` has them under what people write.
    `given` says which operands of the stage its backward pass uses.
    """

    policy: transforms.Policy | None
    kept: int
    forward: int
    backward: int
    again: int
    parts: tuple[Parts | None, ...] = ()
    written: bool = False
    given: tuple[bool, ...] = ()

    def beside(self, first: Option) -> Option:
        """The option, where `again` are all operations of both passes, beside one that computes nothing again."""
        return replace(self, again=max(self.again - first.again, 0))


@dataclass(frozen=True, slots=True)
class Save:
    """Stages `first` to before `last` that save by an option."""

    first: int
    last: int
    option: Option


@dataclass(frozen=True, slots=True)
class Again:
    """Stages `first` to before `last`, of which the operands alone are saved at first; then they follow a plan."""

    first: int
    last: int
    plan: Plan


Plan: TypeAlias = "tuple[Save | Again, ...]"

NO_CHECKPOINT: Plan = ()
"""The plan without a checkpoint: loops and branches save what they do by default."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Where to cut a loop's body, and the plan of what is between."""

    cuts: tuple[int, ...]
    plan: Plan
