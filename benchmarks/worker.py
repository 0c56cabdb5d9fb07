"""The process behind one side: builds programs and times calls, on orders that come through a socket.

Started as `python -m benchmarks.worker SIDE FD`. What the library prints goes to this process's own output.
"""

import gc
import importlib
import sys
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.model import NO_SAVING, Action, Program, Saving, Task
from benchmarks.sides.base import Ready, Side, Staging, ready_action

MOST_CALLS = 20_000


@dataclass(frozen=True)
class Built:
    """What building a program cost, and how long one warm call takes."""

    trace_lower: float | None
    compile: float | None
    temp_bytes: int | None
    copies: int | None
    run: float
    saving: Saving = NO_SAVING


@dataclass(frozen=True)
class Failure:
    """An order that raised: the last line says what."""

    message: str
    trace: str


def load_side(name: str) -> Side:
    """The side of that name."""
    side: Side = importlib.import_module(f"benchmarks.sides.{name}_side").SIDE
    return side


def build_program(task: Task) -> Program | Action:
    """Call the builder that a task names."""
    module, _, function = task.builder.partition(":")
    program: Program | Action = getattr(importlib.import_module(module), function)(**task.options)
    return program


def timed(ready: Ready) -> float:
    """Seconds of one call, the mean of those that are timed together."""
    start = ready.clock()
    ready.call()
    return (ready.clock() - start) / ready.times


class Worker:
    """Holds the programs built so far, by contender."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.ready: dict[str, Ready] = {}

    def versions(self) -> dict[str, str]:
        """The side's versions."""
        return self.side.versions()

    def build(self, task: Task) -> Built:
        """Build a program, warm it, and tell what it cost."""
        program = build_program(task)
        ready = ready_action(program) if isinstance(program, Action) else self.side.prepare(program)
        self.ready[task.key] = ready
        first = timed(ready)
        run = min(first, timed(ready)) if first < 5.0 else first
        saving = NO_SAVING if isinstance(program, Action) else program.saving
        return Built(ready.trace_lower, ready.compile, ready.temp_bytes, ready.copies, run, saving)

    def results(self, key: str) -> dict[str, Any]:
        """What the program computes, as named NumPy arrays."""
        return self.ready[key].results()

    def sample(self, key: str, seconds: float) -> list[float]:
        """Times of single calls, as many as fit into some seconds, one at least."""
        ready = self.ready[key]
        times: list[float] = []
        spent = 0.0
        gc.collect()
        gc.disable()
        try:
            while not times or (spent < seconds and len(times) < MOST_CALLS):
                times.append(timed(ready))
                spent += times[-1] * ready.times
        finally:
            gc.enable()
        return times

    def stage(self, task: Task, compiles: bool) -> Staging | None:
        """What it takes to trace and lower, and if asked to compile, a program once more; None for an action."""
        program = build_program(task)
        if isinstance(program, Action):
            return None
        gc.collect()
        return self.side.stage(program, compiles)

    def drop(self, key: str) -> None:
        """Forget a program."""
        self.ready.pop(key, None)


def serve(connection: Connection, side: str) -> None:
    """Answer orders `(method, *arguments)` until the other end closes."""
    worker: Worker | None = None
    while True:
        try:
            method, *arguments = connection.recv()
        except EOFError:
            return
        try:
            worker = worker or Worker(load_side(side))
            answer = getattr(worker, method)(*arguments)
        except Exception as error:
            message = f"{type(error).__name__}: {str(error).strip()}"
            answer = Failure(message, traceback.format_exc())
        try:
            connection.send(answer)
        except BrokenPipeError:  # the runner has ended, and nobody waits for the answer
            return


if __name__ == "__main__":
    # Answers are read by a process that knows these classes by their full name, not as part of `__main__`.
    from benchmarks import worker as this_module

    this_module.serve(Connection(int(sys.argv[2])), sys.argv[1])
