"""The rates of estimated times, measured: `python benchmarks/remat/rates.py`.

Programs of one class of work each are compiled and run in turns; printed is the least processor time of each, per unit
of what `fiveloop.core.transforms.cost` counts: nanoseconds an operation, a byte or an equation. Take it again on
another machine, and put the figures into that file.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

import fiveloop.numpy as fnp
from fiveloop.core import jit, make_jaxpr
from fiveloop.core.transforms import jaxpr_cost
from fiveloop.loops import scan

SECONDS = 8.0
"""How long all programs are timed."""

Measured = tuple[Callable[..., Any], tuple[Any, ...], str]


def filled(*shape: int) -> np.ndarray:
    """Random numbers in an array."""
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def repeated(step: Callable[[Any], Any], times: int) -> Callable[[Any], Any]:
    """A function that takes a step so many times."""

    def run(x: Any) -> Any:
        for _ in range(times):
            x = step(x)
        return x

    return run


PROGRAMS: dict[str, Measured] = {
    "contraction, small": (repeated(lambda x: x @ x, 8), (filled(64, 64) / 8,), "flops"),
    "contraction, large": (repeated(lambda x: x @ x, 2), (filled(512, 512) / 23,), "flops"),
    "arithmetic, fused": (repeated(lambda x: x * x + 0.5, 16), (filled(256, 64),), "flops"),
    "tanh, fused": (repeated(fnp.tanh, 8), (filled(256, 64),), "flops"),
    "sin, fused": (repeated(fnp.sin, 8), (filled(256, 64),), "flops"),
    "exp, fused": (repeated(lambda x: fnp.exp(-x), 8), (filled(256, 64),), "flops"),
    "one pass over memory": (lambda x: x * 2.0, (filled(4096, 1024),), "bytes"),
    "reduction": (lambda x: fnp.sum(x, axis=1), (filled(1024, 512),), "bytes"),
    "transposition": (lambda x: fnp.flip(x.T, axis=0), (filled(1024, 512),), "bytes"),
    "equation of a loop": (
        lambda x: scan(lambda c, _: ((c @ c), None), x, None, length=500)[0],
        (filled(2, 2) / 8,),
        "steps",
    ),
}


def main() -> None:
    """Print what a unit of each program takes."""
    compiled = {k: jit(f).lower(*a).compile() for k, (f, a, _) in PROGRAMS.items()}
    least = dict.fromkeys(PROGRAMS, float("inf"))
    arguments = {k: [fnp.asarray(x) for x in a] for k, (_, a, _) in PROGRAMS.items()}
    stop = time.perf_counter() + SECONDS
    while time.perf_counter() < stop:
        for name, program in compiled.items():
            begin = time.process_time()
            for _ in range(4):
                np.asarray(program(*arguments[name]))
            least[name] = min(least[name], (time.process_time() - begin) / 4)
    for name, (f, args, unit) in PROGRAMS.items():
        cost = jaxpr_cost(make_jaxpr(f)(*args))
        units = {"flops": cost.flops, "bytes": cost.bytes, "steps": 500}[unit]
        print(
            f"{name:24}{1e6 * least[name]:10.1f} us {1e9 * least[name] / int(units):8.4f} ns / {unit[:-1]}"
        )


if __name__ == "__main__":
    main()
