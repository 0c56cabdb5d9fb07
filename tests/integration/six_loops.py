"""The six in-place loops, and how they print stage by stage; run as a module to write the golden texts anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.inplace.fiveloop_loops import build
from benchmarks.inplace.inputs import LOOPS

import fiveloop.remat  # noqa: F401  # its pass is one of the stages
from fiveloop.core.inspect import stages

GOLDEN = Path(__file__).parent / "golden"
SMALL = {"nested": 4, "histogram": 16}
"""The size at which a loop is printed and run by the oracle: 5, but here."""


def program(loop: str, transform: str, size: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """One transform of one loop, and its arguments."""
    made = build(loop, transform, size)
    return made.fun, made.args


def small_program(loop: str, transform: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The same at the size at which it is printed."""
    return program(loop, transform, SMALL.get(loop, 5))


def printed(loop: str) -> str:
    """The primal at every stage, and the gradient as it is discharged."""
    primal, primal_args = small_program(loop, "primal")
    gradient, gradient_args = small_program(loop, "gradient")
    found = stages(gradient, *gradient_args, upto="discharge")
    text = repr(stages(primal, *primal_args, upto="discharge"))
    return f"{text}\n# the gradient's discharge\n{found['discharge']}\n"


def write_goldens() -> None:
    """Write how every loop prints now."""
    GOLDEN.mkdir(exist_ok=True)
    for loop in LOOPS:
        (GOLDEN / f"{loop}.txt").write_text(printed(loop), encoding="utf-8")


if __name__ == "__main__":
    write_goldens()
