"""The soak session: calls, programs and eager loops without end, and the memory of the process, which must stay flat.

    python tests/soak.py --scale 0.1
    python tests/soak.py --only programs --seconds 120

Each kind of work runs in a process of its own, in twenty slices. After each slice the memory in use is read: what is
resident, less what the heap holds free. What the first half adds is warming: caches fill up to their bounds. The second
half may add a few megabytes, whatever the count.

Resident memory alone does not tell: how many of its free pages a heap gives back differs from slice to slice, by ten
megabytes and more, even after `malloc_trim`, while nothing that is in use grows.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

import fiveloop.numpy as fnp
from fiveloop.core import grad, jit, vmap
from fiveloop.core.backend import lazy
from fiveloop.loops import cond, for_loop, fori_loop, scan, while_loop
from fiveloop.state import new_ref

SLICES = 20
MEGABYTE = 1 << 20
MAY_GROW = 4.0  # megabytes, in the second half
LIBC = ctypes.CDLL(None)
ARENA_MAX = -8  # the name of an option of the C library
Step = Callable[[int], object]


@dataclass(frozen=True)
class Work:
    """Something done over and over: how often, and a function that makes the step (a function of the step's number)."""

    times: int
    make: Callable[[], Step]


@dataclass(frozen=True)
class Outcome:
    """How often a work was done, and the megabytes in use after each slice."""

    times: int
    in_use: list[float]

    @property
    def grown(self) -> float:
        """What the second half has added: the median of its last five slices over that of its first five."""
        half = self.in_use[SLICES // 2 :]
        return statistics.median(half[-5:]) - statistics.median(half[:5])


def calls() -> Step:
    """Calls of jitted functions: with arrays, NumPy arrays, numbers and trees, and with a Ref."""
    doubled, added = jit(lambda x: x + x), jit(lambda t: {"sum": t["x"] + t["y"]})
    x, host, ref = fnp.ones(10), np.ones(10, np.float32), new_ref(fnp.zeros(10))

    @jit
    def counted(ref: Any, x: Any) -> Any:
        ref[0] += 1.0
        return ref[1] + x

    kinds: tuple[Step, ...] = (
        lambda i: doubled(x),
        lambda i: doubled(host),
        lambda i: doubled(i + 0.5),
        lambda i: added({"x": x, "y": host}),
        lambda i: counted(ref, x),
        lambda i: x + x,
        lambda i: fnp.linalg.norm(x),
    )
    return lambda i: kinds[i % len(kinds)](i)


def programs() -> Step:
    """Programs of which no two are equal, each compiled, run and dropped: of expressions, and gradients of loops.

    Six kinds take turns, so that those which are kept are as large in the second half as in the first.
    """

    def step(i: int) -> object:
        size, depth = i // 6 + 6, i % 3 + 1

        def expression(x: Any) -> Any:
            y = x
            for _ in range(depth):
                y = fnp.tanh(y) * 2.0
            return y + x.sum()

        def loss(x: Any) -> Any:
            def body(t: Any, y: Any) -> None:
                y[t + 1] = y[t] * 0.5 + x[t]

            return for_loop(depth + 2, body, fnp.zeros(size)).sum()

        return jit(expression if i % 2 else grad(loss))(np.ones(size, np.float32))

    return step


def closures() -> Step:
    """Functions made anew at each call: equal ones, ones that differ by a number, and ones that hold an array."""
    x = fnp.ones(8)

    def holding(i: int) -> object:
        held = fnp.ones(8) * float(i)
        return jit(lambda y: y * held)(x)

    kinds: tuple[Step, ...] = (
        holding,
        lambda i: fori_loop(0, 2, lambda _, y: y * (i + 0.25), x),
        lambda i: grad(lambda y: (y * 3.0).sum())(x),
        lambda i: vmap(lambda y: y * (i % 7))(x),
    )
    return lambda i: kinds[i % len(kinds)](i)


def eager_loops() -> Step:
    """Loops and branches outside of `jit`, whose bodies close over numbers that change."""
    x = fnp.ones(3)

    def written(k: float) -> object:
        ref = new_ref(x)

        def body(i: Any, ref: Any) -> None:
            ref[i] = ref[i] * k + 1.0

        for_loop(3, body, ref)
        return ref[...]

    kinds: tuple[Callable[[float], object], ...] = (
        written,
        lambda k: scan(lambda c, y: (c * k + y, c), x, fnp.ones((3, 3))),
        lambda k: while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * k), (0, x)),
        lambda k: cond(x.sum() > 0, lambda y: y * k, lambda y: y - k, x),
    )
    return lambda i: kinds[i % len(kinds)](i + 0.5)


WORKS = {
    "calls": Work(1_000_000, calls),
    "programs": Work(3_000, programs),
    "closures": Work(10_000, closures),
    "eager loops": Work(20_000, eager_loops),
}


class Heap(ctypes.Structure):
    """What `mallinfo2` of the C library tells of its heap, in bytes and counts."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    )


def use_one_arena() -> None:
    """Let all threads share one heap, for `mallinfo2` tells of one alone; before there are threads."""
    if hasattr(LIBC, "mallopt"):
        LIBC.mallopt(ARENA_MAX, 1)


def free_in_heap() -> float:
    """The megabytes that the heap holds free for what comes next, as far as the C library tells."""
    if not hasattr(LIBC, "mallinfo2"):
        return 0.0
    LIBC.mallinfo2.restype = Heap
    return float(LIBC.mallinfo2().fordblks / MEGABYTE)


def in_use() -> float:
    """The megabytes of this process in memory, less what the heap holds free: programs, arrays and objects."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / MEGABYTE - free_in_heap()


def compile_first_programs() -> None:
    """Compile as many programs as a process compiles before it loads MLIR's bindings, which it then keeps."""
    for size in range(1, lazy.Modules.PROGRAMS + 3):
        jit(lambda x: fnp.tanh(x) * 2.0)(np.ones(size, np.float32))


def soak(step: Step, times: int, seconds: float) -> Outcome:
    """Do a work so often, in slices; a slice that runs out of its share of the seconds does less."""
    numbers = count()
    size = max(1, times // SLICES)
    taken = []
    for _ in range(SLICES):
        begin = time.monotonic()
        for _ in range(size):
            step(next(numbers))
            if time.monotonic() - begin > seconds / SLICES:
                break
        taken.append(in_use())
    return Outcome(next(numbers), taken)


def run(name: str, scale: float, seconds: float) -> bool:
    """Soak one kind of work, tell what it did to memory, and say whether that stayed flat."""
    use_one_arena()
    work = WORKS[name]
    compile_first_programs()
    begin = time.monotonic()
    outcome = soak(work.make(), int(work.times * scale), seconds)
    flat = outcome.grown <= MAY_GROW
    first, half, last = (outcome.in_use[i] for i in (0, SLICES // 2, -1))
    print(
        f"{'flat' if flat else 'GROWS'}: {name}: {outcome.times:,} times in {time.monotonic() - begin:.0f} s; "
        f"{first:.1f}, {half:.1f} and {last:.1f} MB in use after the first slice, half and all; "
        f"{outcome.grown:+.2f} MB in the second half",
        flush=True,
    )
    return flat


def apart(name: str, options: argparse.Namespace) -> bool:
    """Soak one kind of work in a process of its own."""
    told = ["--here", name, "--scale", str(options.scale), "--seconds", str(options.seconds)]
    quick = {"XLA_FLAGS": "--xla_backend_optimization_level=0"}  # a program costs its compilation
    return subprocess.run([sys.executable, __file__, *told], env=quick | os.environ).returncode == 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Soak what is asked for; 1 if the memory of any work grows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--scale", type=float, default=1.0, help="part of the full counts")
    parser.add_argument("--seconds", type=float, default=1800.0, help="at most, for each work")
    parser.add_argument("--only", action="append", choices=[*WORKS], help="one kind of work")
    parser.add_argument("--here", choices=[*WORKS], help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.here:
        return 0 if run(options.here, options.scale, options.seconds) else 1
    flat = [apart(name, options) for name in options.only or WORKS]
    return 0 if all(flat) else 1


if __name__ == "__main__":
    sys.exit(main())
