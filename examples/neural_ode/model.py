"""The neural ODE: the potential's second derivative as a small network of the potential and its derivative."""

from collections.abc import Mapping

import numpy as np

from fiveloop import numpy as fnp
from fiveloop import random
from fiveloop.core import Value, vmap

from .solver import Solution, Trial, between, solve

Params = Mapping[str, Value]

ACCELERATION = 40.0  # of the order of what a spike needs


def init_params(key: Value, width: int) -> Params:
    """Random weights of a network with two hidden layers."""
    first, offset, second, last = random.split(key, 4)
    return {
        "first": 1.5 * random.normal(first, (2, width)) * np.array([[1.0], [0.2]], np.float32),
        "first_offset": random.normal(offset, (width,)),
        "second": random.normal(second, (width, width)) / width**0.5,
        "second_offset": fnp.zeros((width,), np.float32),
        "last": 0.5 * random.normal(last, (width,)) / width**0.5,
        "last_offset": fnp.zeros((), np.float32),
    }


def slope(params: Params, state: Value) -> Value:
    """The derivative of a state [potential, derivative]."""
    hidden = fnp.tanh(state @ params["first"] + params["first_offset"])
    hidden = fnp.tanh(hidden @ params["second"] + params["second_offset"])
    return fnp.stack([state[1], ACCELERATION * (hidden @ params["last"] + params["last_offset"])])


def misfit(
    params: Params,
    starts: Value,
    samples: Value,
    *,
    step: float,
    tolerance: float,
    max_steps: int | None = None,
    checkpoints: int | None = None,
) -> tuple[Value, Value]:
    """The mean square distance of solutions from recorded samples, and the most steps that one of them took.

    starts : [segments, 2],  samples : [segments, time]
    """
    length = samples.shape[1]
    times = step * fnp.arange(1.0, length + 1.0, dtype=np.float32)

    def of_segment(start: Value, recorded: Value) -> Solution:
        def gather(total: Value, trial: Trial) -> Value:
            states, inside = between(trial, times)
            return total + fnp.sum(fnp.where(inside, (states[:, 0] - recorded) ** 2, 0.0))

        return solve(
            lambda state: slope(params, state),
            start,
            step * (length + 0.5),  # beyond the last sample
            tolerance=tolerance,
            gather=gather,
            total=fnp.zeros((), np.float32),
            max_steps=max_steps,
            checkpoints=checkpoints,
        )

    solutions = vmap(of_segment)(starts, samples)
    steps = fnp.max(solutions.kept + solutions.rejected)
    return fnp.mean(solutions.total) / length, steps
