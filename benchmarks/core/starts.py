"""Starts of processes: an import, and the first result of a training step whose program is on disk."""

import atexit
import os
import subprocess
import sys
from functools import cache
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.model import Action, Case, Contender, RatioLimit

HERE = "benchmarks.core.starts"
LAYERS = 12
IMPORTS = {"fiveloop": "import fiveloop.api", "jax": "import jax, jax.numpy"}
STEPS = {
    "fiveloop": """
import fiveloop.api
from fiveloop.core import jit
from benchmarks.transformer.fiveloop_step import build
program = build("no_checkpoint", {layers})
print(float(jit(program.fun)(*program.args)["loss"]))
""",
    "jax": """
import jax
from benchmarks.transformer.jax_step import build
program = build("no_checkpoint", {layers}, False)
print(float(jax.jit(program.fun)(*program.args)["loss"]))
""",
}


class Printed:
    """The number that a process has printed, as an array of whichever library ran in it."""

    def __init__(self, text: str) -> None:
        self.number = float(text or 0)

    def block_until_ready(self) -> None:
        """The process has ended."""

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        return np.asarray(self.number)


@cache
def bytecode() -> dict[str, str]:
    """What lets a process find the bytecode that the one before has left, as in an installed library."""
    folder = TemporaryDirectory()
    atexit.register(folder.cleanup)
    return {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": folder.name}


def process(code: str, environment: dict[str, str]) -> Printed:
    """Run Python code in a process of its own."""
    paths = {"PYTHONPATH": os.pathsep.join(sys.path), **bytecode()}
    return Printed(
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | paths | environment,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    )


def build_import(side: str, size: int) -> Action:
    """A process that imports a library."""
    return Action(lambda: {"printed": process(IMPORTS[side], {})}, times=1)


def build_step(side: str, cached: bool, size: int) -> Action:
    """A process that runs one training step; with `cached`, after one that has left the program on disk."""
    folder = TemporaryDirectory()

    def run() -> dict[str, Printed]:
        environment = cache_in(folder.name) if cached else {}
        return {"loss": process(STEPS[side].format(layers=size), environment)}

    return Action(run, times=1)


def cache_in(folder: str) -> dict[str, str]:
    """What tells either library to keep its programs in a folder, however small."""
    return {
        "FIVELOOP_CACHE_DIR": folder,
        "JAX_COMPILATION_CACHE_DIR": folder,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


def contender(builder: str, name: str, side: str, **options: object) -> Contender:
    """A library's process, started by the worker of that library."""
    return Contender(name, side, f"{HERE}:{builder}", {"side": side, **options})


CASES = (
    Case(
        "start/import",
        (1,),
        contender("build_import", "fiveloop", "fiveloop"),
        (contender("build_import", "jax", "jax"),),
        limits=(RatioLimit("run", "jax", 0.5, "import of all packages"),),
        seconds=30.0,
    ),
    Case(
        "start/step on disk",
        (LAYERS,),
        contender("build_step", "fiveloop", "fiveloop", cached=True),
        (
            contender("build_step", "jax", "jax", cached=False),
            contender("build_step", "jax on disk", "jax", cached=True),
        ),
        limits=(
            RatioLimit("run", "jax", 0.3, "first result in a second process"),
            RatioLimit("run", "jax on disk", 0.7, "first result in a second process"),
        ),
        rtol=1e-3,
        seconds=60.0,
    ),
)
