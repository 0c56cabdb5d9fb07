"""The boundary between the user's program and the library: errors that pass it show only the user's frames.

A function that is transformed runs below a dozen frames of the library, which say nothing to its author. Each
public transform is a boundary: the frames of the library below it are taken out of the tracebacks of errors that
pass, those of errors that they come from included. Nothing else changes: the error is the same object, so that
`except`, `pytest.raises` and chained errors work, and a debugger stops in the user's frame.

With `FIVELOOP_TRACEBACK=full` in the environment, or in a `full_tracebacks()` block, all frames stay; so they do in
errors that are the library's own fault.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import TracebackType

from fiveloop.core import errors, ir, util
from fiveloop.core.trace.tracer import MISUSE, locate, raised_within
from fiveloop.core.util import P, R

VARIABLE = "FIVELOOP_TRACEBACK"
_MISUSE = (*MISUSE, errors.DonatedError)

_full = util.OfThread(False)


@contextmanager
def full_tracebacks() -> Iterator[None]:
    """Within the block, errors keep the frames of the library; as FIVELOOP_TRACEBACK=full does for a whole process.

    >>> with full_tracebacks():
    ...     pass
    """
    with _full.to(True):
        yield


def boundary(fun: Callable[P, R]) -> Callable[P, R]:
    """A public function, below which the frames of the library are hidden in errors."""
    return wraps(fun)(guarded(fun))


def guarded(fun: Callable[P, R]) -> Callable[P, R]:
    """The same without a copy of the function's name and docstring, for functions that are given others."""

    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return fun(*args, **kwargs)
        except Exception as error:
            pass_out(error)
            # A bare `raise` adds no frame for this function.
            raise

    return call


def pass_out(error: Exception) -> None:
    """Make an error ready to leave the library: with the user's line, and without frames of the library."""
    if isinstance(error, _MISUSE):
        locate(error)
    hide_frames(error)


def hide_frames(error: BaseException) -> None:
    """Take the frames of the library out of the tracebacks of an error and of those that it comes from."""
    own = isinstance(error, AssertionError) and raised_within(error)
    if own or isinstance(error, errors.CoreError):  # its own fault
        return
    if _full.value or os.environ.get(VARIABLE) == "full":
        return
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        each = waiting.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            each.__traceback__ = _users(each.__traceback__)
            waiting += [each.__cause__, each.__context__]


def _users(traceback: TracebackType | None) -> TracebackType | None:
    """The entries of a traceback that are the user's."""
    kept: list[TracebackType] = []
    while traceback is not None:
        if not ir.is_internal(traceback.tb_frame.f_code):
            kept.append(traceback)
        traceback = traceback.tb_next
    out: TracebackType | None = None
    for entry in reversed(kept):
        out = TracebackType(out, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return out
