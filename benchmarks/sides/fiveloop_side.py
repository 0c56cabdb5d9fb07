"""fiveloop as a side: every access to the library's compiled programs is here."""

import time
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from benchmarks.hlo import whole_array_work
from benchmarks.model import Program
from benchmarks.sides.base import Ready, Staging, fresh, map_leaves, named
from fiveloop import core
from fiveloop.core import extend


def versions() -> dict[str, str]:
    """The versions of fiveloop, where it is installed, and of jaxlib."""
    found = {}
    for name in ("fiveloop-core", "jaxlib"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "from source"
    return found


class FiveloopSide:
    """Runs a program through `fiveloop.core.jit`."""

    def versions(self) -> dict[str, str]:
        """The versions of fiveloop and of its jaxlib."""
        return versions()

    def prepare(self, program: Program) -> Ready:
        """Lower and compile for the arguments, measuring both."""
        args = map_leaves(on_device, program.args)
        jitted = core.jit(fresh(program.fun))
        start = time.perf_counter()
        lowered = lower(jitted, args)
        lowered_at = time.perf_counter()
        compiled = lowered.compile()
        compiled_at = time.perf_counter()
        return Ready(
            call=lambda: wait(jitted(*args)),
            results=lambda: {name: np.asarray(leaf) for name, leaf in named(jitted(*args)).items()},
            trace_lower=lowered_at - start,
            compile=compiled_at - lowered_at,
            temp_bytes=int(compiled.memory_analysis().temp),
            copies=len(whole_array_work(compiled.as_text(), program.watched)),
        )

    def stage(self, program: Program, compiles: bool) -> Staging | None:
        """Trace, lower and compile under a fresh identity."""
        args = map_leaves(on_device, program.args)
        jitted = core.jit(fresh(program.fun))
        start = time.perf_counter()
        lowered = lower(jitted, args)
        lowered_at = time.perf_counter()
        if not compiles:
            return Staging(lowered_at - start)
        lowered.compile()
        return Staging(lowered_at - start, time.perf_counter() - lowered_at)


def on_device(array: np.ndarray) -> core.Array:
    """A NumPy array as ours."""
    return extend.to_array(extend.as_value(array))


def lower(jitted: Any, args: tuple[Any, ...]) -> Any:
    """Trace and lower; the module is only written once it is asked for."""
    lowered = jitted.lower(*args)
    lowered.as_text()
    return lowered


def wait(tree: object) -> None:
    """Block until every leaf is there."""
    for leaf in named(tree).values():
        leaf.block_until_ready()


SIDE = FiveloopSide()
