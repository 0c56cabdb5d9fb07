"""Python functions that a program calls while it runs: lowering, registration and errors.

XLA hands on the text of an exception, not the exception. So that is kept here, under a number that the text carries,
and whoever runs the program raises it as it was.
"""

import itertools
import os
import re
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

import numpy as np

from fiveloop.core.util import OfThread, free_after_fork

from .hlo_builder import Builder, IRValue, TypeSpec, custom_call

HostFunction: TypeAlias = Callable[..., Sequence[np.ndarray]]
"""A function of NumPy arrays, which XLA lends it for the call; it gives arrays of exactly the types announced."""

_TARGETS = {"cpu": "xla_ffi_python_cpu_callback", "cuda": "xla_ffi_python_gpu_callback"}


def host_call(
    b: Builder,
    platform: str,
    index: int,
    operands: Sequence[IRValue],
    results: Sequence[TypeSpec],
    *,
    has_side_effect: bool,
) -> list[IRValue]:
    """Call the function at `index` among those that are attached to the program."""
    attrs = [
        "api_version = 4 : i32",
        f"backend_config = {{index = {index} : ui64}}",
        f"has_side_effect = {'true' if has_side_effect else 'false'}",
        # XLA may keep an array in any order unless it is told which one is read.
        f"operand_layouts = [{', '.join(_row_major(len(x.shape)) for x in operands)}]",
        f"result_layouts = [{', '.join(_row_major(len(shape)) for shape, _ in results)}]",
    ]
    return custom_call(b, _TARGETS[platform], operands, results, ", ".join(attrs))


def _row_major(ndim: int) -> str:
    axes = str([*reversed(range(ndim))]) if ndim else ""
    return f"dense<{axes}> : tensor<{ndim}xindex>"


class _Kept(Exception):
    """Stands for an exception that is kept."""


_KEPT_AS = "an exception of a host function, kept as number "
_KEPT_LIMIT = 64
"""A run gives back one exception; those of other functions that failed in it at the same time are forgotten in turn."""

_numbers = itertools.count()
_kept: dict[int, BaseException] = {}
_kept_lock = free_after_fork(threading.Lock())


class Run:
    """One run of a program that calls Python: the runs whose calls it comes from, and the run that it waits for.

    `writes` are the mutable values that the program writes when it ends.
    """

    __slots__ = ("awaits", "heeds", "within", "writes")

    def __init__(self, writes: Iterable[object] = ()) -> None:
        self.within = runs_here()
        self.awaits: Run | None = None
        self.heeds = False
        self.writes = frozenset(writes)


_here = OfThread[frozenset[Run]](frozenset())


def runs_here() -> frozenset[Run]:
    """The runs one of which may have made the call that this thread is in; XLA does not tell which."""
    return _here.value


def attached(fun: HostFunction, running: set[Run]) -> Callable[..., tuple[np.ndarray, ...]]:
    """The function as XLA calls it: what it raises is kept; `running` are the runs of its program."""

    def call(*arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        runs = frozenset(running.copy())
        try:
            with _here.to(runs.union(*[run.within for run in runs])):
                if any(run.heeds for run in runs) and _interrupted():
                    raise KeyboardInterrupt
                return tuple(fun(*arrays))
        except BaseException as error:
            raise _Kept(f"{_KEPT_AS}{_keep(error)}") from None

    return call


def _keep(error: BaseException) -> int:
    with _kept_lock:
        number = next(_numbers)
        _kept[number] = error
        if len(_kept) > _KEPT_LIMIT:
            del _kept[min(_kept)]
        return number


_pipe: list[int] = []


@contextmanager
def interruptible(run: Run) -> Iterator[None]:
    """Within the block Ctrl-C is seen by the calls of a run: Python's main thread, which handles it, waits in C++."""
    run.heeds = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not run.heeds or threading.current_thread() is not threading.main_thread():
        run.heeds = False
        yield
        return
    if not _pipe:
        _pipe.extend(os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC))
    before = signal.set_wakeup_fd(_pipe[1], warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        _interrupted()


def _interrupted() -> bool:
    """Whether Ctrl-C has been pressed since this was asked last."""
    try:
        return signal.SIGINT in os.read(_pipe[0], 64)
    except BlockingIOError:
        return False


def tell_failure(functions: Sequence[HostFunction]) -> None:
    """Let the functions of a failed program release the objects that they keep while it runs."""
    for fun in functions:
        at_failure = getattr(fun, "at_failure", None)
        if at_failure is not None:
            at_failure()


def raised_by(error: BaseException) -> BaseException | None:
    """The exception behind XLA's error, if a host function raised one; it is given once."""
    found = re.search(f"{_KEPT_AS}(\\d+)", str(error))
    if found is None:
        # It may come between two of our own lines.
        return KeyboardInterrupt() if "KeyboardInterrupt" in str(error) else None
    with _kept_lock:
        return _kept.pop(int(found[1]), None)
