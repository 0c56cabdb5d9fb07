"""The public options of progress, and the equation that a loop adds to its body."""

from __future__ import annotations

from fiveloop.core import Value, trace
from fiveloop.core.dataclass import dataclass
from fiveloop.loops.common import as_count
from fiveloop.loops.progress.rules import MarkParams, mark_p


@dataclass(frozen=True, init=False)
class Progress:
    """How a loop shows its progress: the text `desc` in front of the bar, and the steps `every` between two updates.

    Without `every` the bar is updated about ten times a second, however long a step takes.

    >>> Progress("training", every=10)
    Progress(desc='training', every=10)
    """

    desc: str | None = None
    every: int | None = None

    @trace.boundary
    def __init__(self, desc: str | None = None, every: int | None = None) -> None:
        # Written out, so that an error finds the line of the call.
        object.__setattr__(self, "desc", desc)
        if desc is not None and not isinstance(desc, str):
            raise TypeError(
                f"Progress: desc must be a string, got {desc!r} of type {type(desc).__name__}; write "
                f'`Progress("label")`'
            )
        more = ", or None for a few times a second"
        number = None if every is None else as_count("Progress: every", every, more)
        object.__setattr__(self, "every", number)


Shown = bool | str | Progress
"""What the `progress` of a loop may be."""


def mark(progress: Progress, total: Value | None = None) -> None:
    """Mark the body that is being traced: its loop shows its progress, of so many steps if that is not known to it."""
    operands = [] if total is None else [total]
    trace.bind(mark_p, *operands, params=MarkParams(progress.desc, progress.every))
