"""fiveloop and jax in one process, in either order, with and without 64 bits: `python benchmarks/beside_jax.py`."""

import importlib
import subprocess
import sys
from typing import Any

import numpy as np

BIG = 2**40
LEAVES: list[Any] = [
    *(1.5, 3, True, 1j, BIG, np.float64(2), np.int64(BIG)),
    *(np.ones(2), np.ones(2, "f4"), np.ones(2, ">f4"), np.arange(2)),
]
WEAK = {float: "float32", int: "int32", complex: "complex64", bool: "bool"}


def check(fun: Any) -> None:
    """Every leaf arrives as it is, at the first call and later ones."""
    for x in LEAVES:
        want = "int64" if x is BIG else WEAK.get(type(x)) or np.asarray(x).dtype.name
        for _ in range(3):
            (y,), (a, (b,)) = fun(x), fun(x, [x])
            for out in (y, a, b):
                assert str(out.dtype) == want, (x, out.dtype)
                assert np.array_equal(np.asarray(out), np.asarray(x).astype(want)), (x, out)


def program(jax_first: bool, x64: bool) -> None:
    """One process: both libraries in the given order, with jax's 64 bits as given and then changed."""
    if jax_first:
        jax = importlib.import_module("jax")

        jax.config.update("jax_enable_x64", x64)
    fun = importlib.import_module("fiveloop.core").jit(lambda *args: args)
    check(fun)
    jax = importlib.import_module("jax")
    for flag in (x64, not x64, x64):
        jax.config.update("jax_enable_x64", flag)
        check(fun)
        assert jax.jit(lambda x: x)(1.5).dtype == (np.float64 if flag else np.float32)
    for flag in (True, False):
        with jax.enable_x64(flag):
            check(fun)
        check(fun)


def main() -> None:
    """Run each of the four programs in a process of its own, or the one that is asked for."""
    if len(sys.argv) > 1:
        program(sys.argv[1] == "jax-first", sys.argv[2] == "64")
        return
    for order in ("jax-first", "jax-later"):
        for bits in ("32", "64"):
            subprocess.run([sys.executable, __file__, order, bits], check=True)
            print(order, bits, "kept")


if __name__ == "__main__":
    main()
