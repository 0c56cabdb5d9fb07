"""What a program that is kept takes of the memory of its process."""

import numpy as np

from benchmarks.core.starts import process
from benchmarks.model import Action, Case, Contender, RatioLimit

HERE = "benchmarks.core.resident"
LIBRARIES = {
    "fiveloop": "import fiveloop.numpy as lib\nfrom fiveloop.core import jit",
    "jax": "import jax.numpy as lib\nfrom jax import jit",
}
PROGRAMS = """
import gc, os
import numpy as np
{library}
kept = []
def resident():
    gc.collect()
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGESIZE")
def keep(count):
    for size in range(len(kept) + 1, len(kept) + count + 1):
        kept.append(jit(lambda x: lib.tanh(x) * 2.0 + x.sum()))
        np.asarray(kept[-1](np.ones(size, np.float32)))
keep(10)
before = resident()
keep({count})
print((resident() - before) // {count})
"""


def build(side: str, size: int) -> Action:
    """A process that keeps so many programs, and the bytes it has added for each."""
    code = PROGRAMS.format(library=LIBRARIES[side], count=size)
    return Action(lambda: {"y": np.zeros(())}, memory=lambda: int(process(code, {}).number))


def contender(side: str) -> Contender:
    """One library."""
    return Contender(side, side, f"{HERE}:build", {"side": side})


CASES = (
    Case(
        "resident/cached program",
        (60,),
        contender("fiveloop"),
        (contender("jax"),),
        limits=(RatioLimit("temp_bytes", "jax", 1.0, "resident memory a cached program"),),
        seconds=0.1,
    ),
)
