"""The effect of a check, and the handling of its record when a call returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, ClassVar

from fiveloop.core import Value, arrays, prims, util
from fiveloop.core.backend import lazy
from fiveloop.core.dataclass import dataclass
from fiveloop.state.checks import record as records
from fiveloop.state.handlers import HandledEffect

MANY = 1024
"""From this many records on, those that tell of nothing are dropped."""


@dataclass(frozen=True)
class CheckEffect(HandledEffect):
    """A check; the record of the first failure, which a Ref holds, has `width` words for the values of its message."""

    returns: ClassVar[bool] = True
    width: int = 0

    @classmethod
    def initial(cls, effects: Sequence[Any]) -> Value:
        """The record in which nothing has failed."""
        return records.empty_record(records.record_aval(max([e.width for e in effects], default=0)))

    @classmethod
    def in_step(cls, ref: Value, i: Value, step: Callable[[], list[Value]]) -> list[Value]:
        """Record the step if it is the one in which a check fails first."""
        return _placing(ref, step, lambda record: records.with_step(record, i))

    @classmethod
    def in_lane(
        cls, ref: Value, lane: Value, around: int, step: Callable[[], list[Value]]
    ) -> list[Value]:
        """Record the lane if it is the one in which a check fails first."""
        return _placing(ref, step, lambda record: records.with_lane(record, lane, around))

    @classmethod
    def at_return(cls, contents: Value) -> None:
        """Raise a failure; within `deferred_checks`, keep the record."""
        report(contents)


def _placing(
    ref: Value, step: Callable[[], list[Value]], place: Callable[[Value], Value]
) -> list[Value]:
    """What a step gives; if something has failed in it and nothing had before, the record is told the place."""
    before = ref[0]
    outs = step()
    after = ref[...]
    is_new = prims.bitwise_and(prims.equal(before, 0), after[0] != 0)
    ref[...] = prims.select(is_new, place(after), after)
    return outs


@dataclass(frozen=True)
class InsertedCheckEffect(CheckEffect):
    """A check that no user has written: of an index, a divisor or a result."""


@dataclass(frozen=True)
class WarningEffect(CheckEffect):
    """A check that logs a warning if it fails; where a program is checked, it is a check as any other."""

    @classmethod
    def at_return(cls, contents: Value) -> None:
        """Log the message."""
        error = records.error_in(_words(contents))
        if error is not None:
            lazy.logging().getLogger("fiveloop").warning(str(error))


class DeferredChecks:
    """The records of the calls in a block of `deferred_checks`; `raise_if_any` raises the first failure in them."""

    def __init__(self) -> None:
        self._records: list[Value] = []

    def add(self, record: Value) -> None:
        """Keep a record."""
        self._records.append(record)
        if len(self._records) >= MANY:
            failed = (r for r in self._records if records.error_in(_words(r)) is not None)
            self._records = list(islice(failed, 1))

    def first(self) -> records.CheckError | None:
        """The first failure since this was last asked, or None; this waits for the calls to end."""
        held, self._records = self._records, []
        errors = (records.error_in(_words(r)) for r in held)
        return next((e for e in errors if e is not None), None)

    def raise_if_any(self) -> None:
        """Raise the first failure since this was last asked, if there is one; this waits for the calls to end."""
        error = self.first()
        if error is not None:
            raise error


_waiting: util.OfThread[DeferredChecks | None] = util.OfThread(None)


@contextmanager
def deferred_checks() -> Iterator[DeferredChecks]:
    """Within the block a check that fails does not raise; the first one raises at its end.

    So calls return at once, without waiting for the device. The block is given a `DeferredChecks`, whose `raise_if_any`
    raises earlier. If another exception leaves the block, a failure from before it is added to it as a note and as its
    context. An interrupt does not wait for calls that have not ended.

    >>> from fiveloop.core import jit
    >>> from fiveloop.state import check
    >>> step = jit(lambda x: (check(x < 2.0, "x is {}", x), x + 1.0)[1])
    >>> with deferred_checks() as checks:
    ...     x = step(step(step(0.0)))
    Traceback (most recent call last):
    ...
    fiveloop.state.checks.record.CheckError: x is 2.0...
    """
    checks = DeferredChecks()
    with _waiting.to(checks):
        try:
            yield checks
        except Exception as error:
            _tell_with(error, checks.first())
            raise
    checks.raise_if_any()


def _tell_with(error: BaseException, failed: records.CheckError | None) -> None:
    """Let an error that leaves the block tell of the check that had failed before it."""
    if failed is None:
        return
    error.add_note(f"before this, a check had failed: {failed}")
    while error.__context__ is not None:
        error = error.__context__
    error.__context__ = failed


def _words(record: Value) -> records.Words:
    """What a record holds; this waits for it."""
    assert isinstance(record, arrays.Concrete), "unreachable: programs return arrays"
    return record.numpy()


def are_deferred() -> bool:
    """Whether checks are deferred here and now."""
    return _waiting.value is not None


def report(record: Value) -> None:
    """Raise what a record tells of, or keep it, if checks are deferred."""
    if _waiting.value is not None:
        _waiting.value.add(record)
        return
    error = records.error_in(_words(record))
    if error is not None:
        raise error
