"""The worker processes, seen from the runner."""

import os
import subprocess
import sys
from contextlib import suppress
from multiprocessing.connection import Pipe
from pathlib import Path
from typing import Any

from benchmarks.worker import Failure

ROOT = Path(__file__).resolve().parent.parent


class WorkerFailed(Exception):
    """An order failed on the other side; `trace` holds the traceback from there."""

    def __init__(self, message: str, trace: str = "") -> None:
        super().__init__(message)
        self.trace = trace


def environment() -> dict[str, str]:
    """The environment of a worker: quiet, the peer on our platform, with this tree's benchmarks importable."""
    path = os.pathsep.join(
        part
        for part in (str(ROOT), str(ROOT / "examples"), os.environ.get("PYTHONPATH", ""))
        if part
    )
    platform = os.environ.get("FIVELOOP_PLATFORM", "cpu").replace("auto", "")
    return {
        "TF_CPP_MIN_LOG_LEVEL": "3",
        **os.environ,
        "JAX_PLATFORMS": platform,
        "PYTHONPATH": path,
    }


class RemoteSide:
    """One long-lived worker process."""

    def __init__(self, side: str) -> None:
        self.side = side
        self.connection, theirs = Pipe()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.worker", side, str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                env=environment(),
                stdin=subprocess.DEVNULL,
            )

    def ask(self, method: str, *arguments: Any, timeout: float = 600.0) -> Any:
        """Send an order and wait for its answer; a worker that is too slow is ended."""
        try:
            self.connection.send((method, *arguments))
            if not self.connection.poll(timeout):
                self.close()
                raise WorkerFailed(f"no answer to `{method}` within {timeout:g} s")
            answer = self.connection.recv()
        except (EOFError, BrokenPipeError, ConnectionResetError) as error:
            self.close()
            raise WorkerFailed(f"the {self.side} process ended during `{method}`") from error
        if isinstance(answer, Failure):
            raise WorkerFailed(answer.message, answer.trace)
        return answer

    def alive(self) -> bool:
        """Whether the process still answers."""
        return self.process.poll() is None and not self.connection.closed

    def close(self) -> None:
        """End the process."""
        self.connection.close()
        try:
            self.process.wait(timeout=2.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Pool:
    """The sides that a run needs, started when first asked for and started anew if they ended."""

    def __init__(self) -> None:
        self.sides: dict[str, RemoteSide] = {}

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: object) -> None:
        for side in self.sides.values():
            if side.alive():
                side.close()

    def ask(self, side: str, method: str, *arguments: Any, timeout: float = 600.0) -> Any:
        """Send an order to a side; `name:word` is one more process of the side `name`."""
        remote = self.sides.get(side)
        if remote is None or not remote.alive():
            remote = self.sides[side] = RemoteSide(side.partition(":")[0])
        return remote.ask(method, *arguments, timeout=timeout)

    def versions(self) -> dict[str, dict[str, str]]:
        """The versions of all sides that run; of one whose library is not installed, none."""
        found = {}
        for name, side in self.sides.items():
            if side.alive() and ":" not in name:
                with suppress(WorkerFailed):
                    found[name] = side.ask("versions")
        return found
