"""C as a side: loops by hand, compiled by the machine's own compiler where the benchmark runs."""

import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.sides.numpy_side import NumpySide

COMPILER = "cc"
FLAGS = ("-O3", "-march=native", "-shared", "-fPIC")


class NoCompiler(Exception):
    """There is no C compiler, so these rows are left out."""


class CSide(NumpySide):
    """Runs a program whose function calls compiled C."""

    def versions(self) -> dict[str, str]:
        """The version of the compiler and its options."""
        told = subprocess.run([compiler(), "--version"], capture_output=True, text=True, check=True)
        return {"cc": told.stdout.splitlines()[0], "options": " ".join(FLAGS[:2])}


def compiler() -> str:
    """Where the compiler is."""
    found = shutil.which(COMPILER)
    if found is None:
        raise NoCompiler(f"left out: no C compiler (`{COMPILER}`) was found on this machine")
    return found


@cache
def library(source: Path) -> ctypes.CDLL:
    """The functions of a C file."""
    with TemporaryDirectory() as folder:
        made = Path(folder) / "loops.so"
        subprocess.run([compiler(), *FLAGS, "-o", made, source, "-lm"], check=True)
        return ctypes.CDLL(str(made))


def call(fun: Any, size: int, read: Sequence[np.ndarray], written: Sequence[np.ndarray]) -> None:
    """Call a C function of a size, arrays to read and arrays to write."""
    fun(ctypes.c_long(size), *(ctypes.c_void_p(array.ctypes.data) for array in (*read, *written)))


SIDE = CSide()
