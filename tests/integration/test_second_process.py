"""A process that finds its programs on disk compiles none, whatever they are made of."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import numpy as np
import fiveloop.api as fl
fnp = fl.numpy
table = fnp.arange(100.0)


def step(carry, x):
    return fnp.tanh(carry @ x), carry.sum()


def collatz(n):
    return fl.while_loop(lambda c: c[0] > 1, lambda c: (fnp.where(c[0] % 2, 3 * c[0] + 1, c[0] // 2), c[1] + 1), (n, 0))


def loss(x, xs):
    ref = fl.new_ref(table[:3])
    fl.fori_loop(0, 3, lambda i, _: ref.__setitem__(i, x[i] * ref[i]), None)
    return fl.scan(fl.checkpoint(step), x + ref[...], xs)[0].sum()


ref = fl.new_ref(np.zeros(3, np.float64))
xs = fl.random.normal(fl.random.key(0), (4, 3, 3))
fl.jit(lambda: ref.__setitem__(1, 2.0))()
outs = [
    fl.jit(fl.grad(loss))(table[:3], xs),
    fl.vmap(fl.jit(collatz))(fnp.arange(1, 5))[1],
    fl.checked(lambda x: fl.check(x > 0, "negative"))(1.0),
    ref[...],
    fnp.linspace(0.0, 1.0, 3),
    fl.jit(lambda x: x + table, donate_argnums=0)(table + 1)[:2],
]
"""
COUNTED = """
print(*[np.asarray(x).tolist() for x in outs if x is not None])
counts = fl.compilation_counts()
print(counts.compiled, counts.loaded, counts.written)
"""
CALLING = """
import numpy as np
import fiveloop.api as fl
outs = [fl.jit(lambda x: fl.pure_callback(lambda y: y + 1, fl.ShapeDtype((), "float32"), x))(1.0)]
"""


def results(program: str, folder: Path) -> tuple[str, list[int]]:
    """What a new process prints that keeps its programs in the folder: values, and what it did for them."""
    out = subprocess.run(
        [sys.executable, "-W", "error", "-c", program + COUNTED],
        env=os.environ | {"FIVELOOP_CACHE_DIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    values, counts = out.stdout.splitlines()
    return values, [int(number) for number in counts.split()]


def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    values, (compiled, loaded, written) = results(PROGRAM, tmp_path)
    assert (compiled, loaded) == (written, 0)
    assert compiled > 5
    assert results(PROGRAM, tmp_path) == (values, [0, compiled, 0])


def test_a_program_that_calls_python_is_compiled_in_every_process(tmp_path: Path) -> None:
    first, second = results(CALLING, tmp_path), results(CALLING, tmp_path)
    assert first == second == ("2.0", [1, 0, 0])
