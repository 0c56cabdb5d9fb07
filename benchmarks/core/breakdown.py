"""Where the time of a call, of a trace and of an import goes: the tables of docs/profile.md.

    python benchmarks/core/breakdown.py [call] [trace] [import]

Times are the least of many runs, in this process and in fresh ones for imports; those of a trace are of the processor.
"""

import cProfile
import os
import pstats
import re
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import fiveloop.numpy as fnp
from benchmarks.core import starts
from benchmarks.sides.base import fresh
from benchmarks.sides.fiveloop_side import on_device
from fiveloop.core import grad, jit

PACKAGES = re.compile(r"fiveloop/(core/[a-z_]+|state|loops|remat|numpy)")
CHAIN = 2_000  # operations of the function whose gradient is traced
Parts = dict[str, float]


def least(
    run: Callable[[], object],
    times: int = 1,
    rounds: int = 200,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Seconds of one of so many runs in a row, at the least of all rounds."""
    found = []
    for _ in range(rounds):
        begin = clock()
        for _ in range(times):
            run()
        found.append((clock() - begin) / times)
    return min(found)


def parts_of_call(leaves: int) -> Parts:
    """Microseconds of a jitted call with so many arrays: each line does all that the one above does, and more."""
    args: list[Any] = [on_device(np.ones(10, np.float32)) for _ in range(leaves)]
    jitted = jit(lambda xs: [x + x for x in xs])
    jitted(args)
    (entry,) = jitted._entries.values()
    program = entry.program().executable
    buffers = [x.buffer for x in args]
    raw, times = program.raw, max(1, 200 // leaves)
    steps: dict[str, Callable[[], object]] = {
        "XLA runs the program": lambda: raw.execute_sharded(buffers),
        "its results become buffers": lambda: raw.execute_sharded(buffers).consume_with_handlers(
            program.handlers
        ),
        "the jitted function, with trees, types and arrays": lambda: jitted(args),
    }
    return differences({name: 1e6 * least(step, times) for name, step in steps.items()})


def differences(totals: Parts) -> Parts:
    """What each line adds to the one above, and all."""
    added = [b - a for a, b in pairwise([0.0, *totals.values()])]
    return {**dict(zip(totals, added, strict=True)), "all": [*totals.values()][-1]}


def chain(x: Any) -> Any:
    """A long straight line of operations."""
    for _ in range(CHAIN // 2):
        x = fnp.sin(x) * 0.5
    return fnp.sum(x)


def parts_of_trace() -> Parts:
    """Milliseconds of tracing and lowering the gradient of a long chain, by the package whose code runs."""
    x = fnp.ones(10)

    def staged() -> object:
        return jit(grad(fresh(chain))).lower(x).as_text()

    staged()
    seconds = least(staged, rounds=5, clock=time.process_time)
    profile = cProfile.Profile()
    profile.runcall(staged)
    spent: dict[str, float] = defaultdict(float)
    for file, own in own_seconds(profile):
        found = PACKAGES.search(file)
        spent[found[1] if found else "the standard library"] += own
    scale = (
        1e3 * seconds / sum(spent.values())
    )  # the profiler slows all down: what it tells are shares
    return {
        **{
            name: scale * own for name, own in sorted(spent.items(), key=lambda item: -item[1])[:12]
        },
        "all": 1e3 * seconds,
    }


def own_seconds(profile: cProfile.Profile) -> Iterator[tuple[str, float]]:
    """The file and the seconds of each function that ran; a function written in C counts for those that called it."""
    found = pstats.Stats(profile).stats  # type: ignore[attr-defined]  # typeshed leaves it out
    for (file, _, _), (_, _, own, _, callers) in found.items():
        if file == "~":
            yield from ((caller[0], times[2]) for caller, times in callers.items())
        else:
            yield file, own


def parts_of_import() -> Parts:
    """Milliseconds of importing all packages, by whose modules they are."""
    command = [sys.executable, "-X", "importtime", "-c", "import fiveloop.api"]
    environment = os.environ | starts.bytecode()
    runs = [
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stderr
        for _ in range(5)
    ]
    return min(map(own_times, runs), key=lambda parts: parts["all"])


def own_times(report: str) -> Parts:
    """The lines of `-X importtime`, added up by package."""
    spent: Counter[str] = Counter()
    for own, name in re.findall(r"import time: +(\d+) \| +\d+ \| +(\S+)", report):
        top, _, rest = name.partition(".")
        whose = f"fiveloop.{rest.partition('.')[0]}" if top == "fiveloop" else top
        known = whose.startswith("fiveloop") or whose in ("numpy", "jaxlib", "ml_dtypes", "scipy")
        spent[whose if known else "the standard library"] += int(own)
    return {**{n: us / 1e3 for n, us in spent.most_common(10)}, "all": spent.total() / 1e3}


def table(title: str, unit: str, parts: Parts) -> str:
    """One table of Markdown."""
    lines = [
        f"| {name} | {value:.2f} | {value / parts['all']:.0%} |" for name, value in parts.items()
    ]
    return "\n".join([f"\n| {title} | {unit} | share |", "| --- | --- | --- |", *lines])


def main(which: list[str]) -> None:
    """Print the tables asked for."""
    which = which or ["call", "trace", "import"]
    if "call" in which:
        for leaves in (1, 51):
            print(table(f"call, {leaves} arrays", "us", parts_of_call(leaves)), flush=True)
    if "trace" in which:
        print(table(f"gradient of {CHAIN:,} operations", "ms", parts_of_trace()), flush=True)
    if "import" in which:
        print(table("import of all packages", "ms", parts_of_import()), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
