"""The text of a program does not depend on the process that lowers it: on hash seeds and on where objects lie."""

import os
import subprocess
import sys

PROGRAMS = """
import sys
junk = [bytearray(k % 977) for k in range(int(sys.argv[1]))]
del junk[::3]

import numpy as np
from fiveloop import loops, numpy as fnp, remat
from fiveloop.core import grad, jit, jvp, make_jaxpr, vmap


def nested(x):
    def row(i, ref):
        def column(j, ref):
            up, left, there = ref[i, j + 1], ref[i + 1, j], ref[i + 1, j + 1]
            ref[i + 1, j + 1] = fnp.sin(up) * left + fnp.cos(there) * up

        loops.for_loop(5, column, ref)

    return loops.for_loop(5, row, x).sum()


def two_refs(x):
    def step(i, refs):
        a, b = refs
        u, v, w, z = a[i], b[i], a[i + 1], b[i + 1]
        a[i + 1], b[i + 1] = u * v + fnp.sin(w), fnp.exp(v) * w + u * z

    a, b = loops.for_loop(15, step, (x, x * 2))
    return (a * b).sum()


@remat.checkpoint(policy=remat.policies.save_only_these_names("first", "second", "third"))
def named(x):
    for name in ("first", "second", "third"):
        x = remat.checkpoint_name(fnp.sin(x), name) * fnp.cos(x)
    return x.sum()


@remat.checkpoint
def cut(x):
    for _ in range(4):
        x = fnp.sin(x) * fnp.cos(x) + fnp.exp(x)
    return x.sum()


def branches(x):
    def step(i, ref):
        def both(first, second):
            ref[i], ref[i + 1] = first * second, fnp.sin(first)

        loops.cond(ref[i] > 0, lambda: both(ref[i + 1], ref[i]), lambda: both(ref[i], ref[i + 1]))

    return loops.for_loop(7, step, x).sum()


def lowered(fun, *args):
    print(jit(fun).lower(*args).as_text())
    print(make_jaxpr(fun)(*args))


square, flat = np.ones((6, 6), np.float32), np.ones(16, np.float32)
lowered(lambda x, t: jvp(grad(nested), (x,), (t,)), square, square)
lowered(lambda x, t: jvp(grad(two_refs), (x,), (t,)), flat, flat)
lowered(vmap(grad(two_refs)), np.ones((3, 16), np.float32))
lowered(grad(named), flat)
lowered(grad(cut), flat)
lowered(vmap(grad(branches)), np.ones((3, 8), np.float32))
print(loops.explain(grad(two_refs), flat))
"""


def test_two_processes_write_the_same_text() -> None:
    """Two processes with other hash seeds, and with objects at other places, print the same programs."""
    texts = [_printed(seed, junk) for seed, junk in ((1, 0), (2, 30_011))]
    assert "stablehlo.while" in texts[0]
    assert texts[0] == texts[1]


def _printed(seed: int, junk: int) -> str:
    """What a fresh process prints of the programs."""
    command = [sys.executable, "-c", PROGRAMS, str(junk)]
    env = {**os.environ, "PYTHONHASHSEED": str(seed)}
    return subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE, text=True).stdout
