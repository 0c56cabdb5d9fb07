"""jax as a side."""

import time

import jax
import jaxlib
import numpy as np

from benchmarks.hlo import whole_array_work
from benchmarks.model import Program
from benchmarks.sides.base import Ready, Staging, fresh, map_leaves, named


class JaxSide:
    """Runs a program through `jax.jit`."""

    def versions(self) -> dict[str, str]:
        """The versions of jax and of its jaxlib."""
        return {"jax": jax.__version__, "jaxlib": jaxlib.__version__}

    def prepare(self, program: Program) -> Ready:
        """Lower and compile for the arguments, measuring both."""
        args = map_leaves(jax.device_put, program.args)
        jitted = jax.jit(fresh(program.fun))
        start = time.perf_counter()
        lowered = jitted.lower(*args)
        lowered_at = time.perf_counter()
        compiled = lowered.compile()
        compiled_at = time.perf_counter()
        memory = compiled.memory_analysis()
        return Ready(
            call=lambda: jax.block_until_ready(jitted(*args)),
            results=lambda: {name: np.asarray(leaf) for name, leaf in named(jitted(*args)).items()},
            trace_lower=lowered_at - start,
            compile=compiled_at - lowered_at,
            temp_bytes=None if memory is None else int(memory.temp_size_in_bytes),
            copies=len(whole_array_work(compiled.as_text() or "", program.watched)),
        )

    def stage(self, program: Program, compiles: bool) -> Staging | None:
        """Trace, lower and compile under a fresh identity."""
        args = map_leaves(jax.device_put, program.args)
        jitted = jax.jit(fresh(program.fun))
        start = time.perf_counter()
        lowered = jitted.lower(*args)
        lowered_at = time.perf_counter()
        if not compiles:
            return Staging(lowered_at - start)
        lowered.compile()
        return Staging(lowered_at - start, time.perf_counter() - lowered_at)


SIDE = JaxSide()
