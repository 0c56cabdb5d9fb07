"""What the gradient of the solver costs when its steps are taped, and when a few of its states are saved."""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from fiveloop.core import jit, tree_leaves

from .data import Recording
from .model import Params
from .options import Options
from .train import gradient_of, some_segments

ROUNDS = 5


@dataclass(frozen=True)
class Cost:
    """One way to bound the memory of the gradient, and how far its gradient is from the first one's."""

    bound: str
    temporary_bytes: int
    seconds: float
    difference: float


def compare_bounds(params: Params, recording: Recording, options: Options) -> list[Cost]:
    """Compile the gradient of one batch of segments both ways, and time them by turns."""
    segments = some_segments(options, recording)
    arguments = (params, segments.starts, segments.samples)
    saved = options.checkpoints or Options.checkpoints
    bounds = {"max_steps": options.max_steps, "checkpoints": saved}
    compiled: list[Any] = [
        jit(gradient_of(options, {name: count})).lower(*arguments).compile()
        for name, count in bounds.items()
    ]
    grads = [np.concatenate([np.ravel(g) for g in tree_leaves(c(*arguments)[1])]) for c in compiled]
    seconds: list[list[float]] = [[] for _ in compiled]
    for _ in range(ROUNDS):
        for run, times in zip(compiled, seconds, strict=True):
            begin = time.perf_counter()
            np.asarray(tree_leaves(run(*arguments))[0])
            times.append(time.perf_counter() - begin)
    scale = float(np.abs(grads[0]).max())
    return [
        Cost(
            f"{name}={count}",
            run.memory_analysis().temp,
            float(np.median(times)),
            float(np.abs(grad - grads[0]).max()) / scale,
        )
        for (name, count), run, times, grad in zip(
            bounds.items(), compiled, seconds, grads, strict=True
        )
    ]
