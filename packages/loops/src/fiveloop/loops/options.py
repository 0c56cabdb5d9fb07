"""The planning options: which steps are on, as a `with` block chooses; stored with every loop traced there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np

from fiveloop.core import Value, prims, trace
from fiveloop.core.dataclass import dataclass, fields, replace
from fiveloop.loops import common
from fiveloop.loops.progress.api import Progress
from fiveloop.loops.schedules.binomial import Binomial, Slots


@dataclass(frozen=True, slots=True)
class Planning:
    """The planning steps of a loop, each of them on or off. Results are the same, up to rounding.

    promote     : a carried array that is only indexed and updated at indices becomes a Ref
    constants   : a constant that is read at indices becomes a Ref, whose derivative touches only what was read
    hoist       : a value that is the same in every step is computed once, before the loop
    fold        : several writes of a step to one element become one; a read of an element just written takes the value
    carry       : an element that a step writes is carried to the step that reads it, not read again
    scalars     : if all steps add to the same few elements of a Ref, each of these elements has a sum of its own
    sink        : products that a loop sums, and does not read, become one contraction after it
    fuse        : an array that only the loop reads, one slot per step, is computed slot by slot, where that is cheap
    branch      : large elements that only one branch of a `cond` reads or writes are read or written in that branch
    unroll      : short steps that depend on the step before are compiled several per iteration, if `unroll` is "auto"
    rows        : an inner loop that fills or reads a row of an outer loop's array uses the row itself, not a copy
    ranges      : an index that is in bounds by the range of the counter is not checked at run time
    passthrough : a residual that a state, an output or a carry contains is read from there, and not saved again

    `tell` records the decision of each step, for `explain`.

    >>> Planning(sink=False).sink
    False
    """

    promote: bool = True
    constants: bool = True
    hoist: bool = True
    fold: bool = True
    carry: bool = True
    scalars: bool = True
    sink: bool = True
    fuse: bool = True
    branch: bool = True
    unroll: bool = True
    rows: bool = True
    ranges: bool = True
    passthrough: bool = True
    tell: bool = False

    @property
    def off(self) -> tuple[str, ...]:
        """The names of the steps that are off."""
        return tuple(name for name in STEPS if not getattr(self, name))


DEFAULT = Planning()
STEPS = tuple(f.name for f in fields(Planning) if f.name != "tell")
"""The names of the steps."""

AUTO = 0
"""The steps to a turn that stand for "auto" until a loop is planned; it is one where `unroll` is off."""

_setting = trace.Setting("planning", DEFAULT)


def current_planning() -> Planning:
    """The steps that are on here."""
    return _setting.value


@contextmanager
def planning(everything: bool | None = None, /, **steps: bool) -> Iterator[Planning]:
    """Within the block, loops are traced with some planning steps on or off; `planning(False)` turns all of them off.

    The choice stays with the loop under all transforms. A jitted function that was traced outside the block is traced
    again.

    >>> from fiveloop.loops import fori_loop
    >>> with planning(promote=False) as chosen:
    ...     fori_loop(0, 3, lambda i, x: x + i, 0)
    Array(3, dtype=int32)
    >>> chosen.promote
    False
    """
    given = dict.fromkeys(STEPS, everything) if everything is not None else {}
    for name, value in {**given, **steps}.items():
        if name not in STEPS or not isinstance(value, bool):
            prims.bad_type(
                f"planning: expected True or False, for all steps or for one of {', '.join(STEPS)}; got "
                f"{_shown(everything, name, value)}"
            )
    chosen = replace(_setting.value, **{**given, **steps})
    with _setting.to(chosen):
        yield chosen


def _shown(everything: object, name: str, value: object) -> str:
    """What was given, as messages show it."""
    return f"{name}={value!r}" if everything is None or value is not everything else repr(value)


@contextmanager
def telling() -> Iterator[None]:
    """Within the block, loops are traced anew and keep a record of what each step did."""
    with _setting.to(replace(_setting.value, tell=True)):
        yield


Unroll = int | bool | Literal["auto"]


@dataclass(frozen=True, slots=True)
class How:
    """From which end a loop runs, how many steps make a turn, what ends it early, how it shows its progress.

    And what the argument with the first carry is called in messages, and how many states reverse mode saves.
    """

    reverse: bool = False
    unroll: int = AUTO
    until: Callable[[Any], Any] | None = None
    progress: Progress | None = None
    init: str = "init"
    checkpoints: Slots | None = None


@dataclass(frozen=True, slots=True)
class Scan:
    """The steps of a scan: `steps` times `f(i, carry, x)`, or only the first `count` if a count is given.

    `what` names the caller in messages.
    """

    what: str
    f: Callable[[Any, Any, Any], Any]
    init: Any
    xs: Any
    steps: int
    how: How
    count: Value | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """How many steps a loop takes at most, if there is a bound; how many states reverse mode saves, if that is said.

    It is `counted` if the number of its steps is known when it begins.
    """

    steps: int | None = None
    slots: Slots | None = None
    counted: bool = False


def as_progress(what: str, given: Any) -> Progress | None:
    """How to show the progress of a loop, None if that is not asked for."""
    if given is None:
        return None
    if isinstance(given, bool | np.bool_):
        return Progress() if given else None
    if isinstance(given, str):
        return Progress(given)
    if isinstance(given, Progress):
        return given
    raise common.wrong_type(f"{what}: progress must be True, False, a label or a Progress", given)


def check_checkpoints(what: str, given: Any, steps: Any = None) -> Slots | None:
    """The number of states that reverse mode saves, or the schedule; None if it keeps what it needs of each step.

    The loop takes no more than so many steps, if that is known: then no more states than these are saved.
    """
    name = f"{what}: checkpoints"
    if given is None:
        return None
    if not isinstance(given, Binomial):
        count = common.as_count(name, given, ", a schedule, or None")
        return min(count, max(steps, 1)) if isinstance(steps, int) else count
    if given.most is not None and (not isinstance(steps, int) or steps > given.most):
        taken, give = f"takes {steps} steps", "more slots or longer tapes"
        if not isinstance(steps, int):
            taken = "has no bound on its steps"
            give = "a schedule for any number of steps, such as Online"
        raise ValueError(
            f"{name}: {given} is for loops of at most {given.most} steps, but this one {taken}; give {give}, or a "
            "number of slots alone"
        )
    return given.within(steps) if isinstance(steps, int) else given


def check_unroll(what: str, unroll: Any, steps: int) -> int:
    """The number of steps in a turn: all if True or 0, one if False, AUTO for "auto"."""
    if isinstance(unroll, str):
        if unroll != "auto":
            raise ValueError(f"{what}: unroll must be {_EXPECTED}, got {unroll!r}")
        return AUTO
    if isinstance(unroll, bool | np.bool_):
        return max(steps, 1) if unroll else 1
    return common.as_count(f"{what}: unroll", unroll, _MORE, least=0) or max(steps, 1)


_MORE = ', True, False or "auto"'
_EXPECTED = f"an integer of at least 0{_MORE}"
