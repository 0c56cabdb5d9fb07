"""Fitting: segments of the recording in, parameters and their loss curve out, with a progress bar."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from tqdm import tqdm

from fiveloop import numpy as fnp
from fiveloop import random
from fiveloop.core import Value, jit, tree_map, value_and_grad

from .data import STEP, Recording, Segments, draw_segments
from .model import Params, init_params, misfit
from .options import Options

State = Mapping[str, Any]
Gradient = Callable[[Params, Any, Any], tuple[tuple[Value, Value], Params]]

DECAY_MEAN, DECAY_SQUARE = 0.9, 0.99
LONGEST_GRADIENT = 1.0
WARMUP = 20


@dataclass(frozen=True)
class Fitted:
    """The end of a run."""

    params: Params
    losses: list[float]
    most_steps: int
    seconds: float


def gradient_of(options: Options, bound: Mapping[str, int]) -> Gradient:
    """The loss of some segments, the steps of the longest solution, and the gradient, with a bound on its memory."""

    def loss(params: Params, starts: Any, samples: Any) -> tuple[Value, Value]:
        return misfit(params, starts, samples, step=STEP, tolerance=options.tolerance, **bound)

    return value_and_grad(loss, has_aux=True)


def bound_of(options: Options) -> dict[str, int]:
    """What bounds the memory of the gradient: saved states, or as many taped steps as are allowed."""
    if options.checkpoints:
        return {"checkpoints": options.checkpoints}
    return {"max_steps": options.max_steps}


def adam_step(state: State, grads: Params, rate: Value) -> State:
    """Move the parameters against their gradients, which are shortened where they are long."""
    length = fnp.sqrt(sum(fnp.sum(g * g) for g in grads.values()))
    short = tree_map(lambda g: g * fnp.minimum(1.0, LONGEST_GRADIENT / length), grads)
    count = state["count"] + 1.0
    mean = tree_map(lambda m, g: m + (1.0 - DECAY_MEAN) * (g - m), state["mean"], short)
    square = tree_map(lambda s, g: s + (1.0 - DECAY_SQUARE) * (g * g - s), state["square"], short)

    def moved(x: Value, m: Value, s: Value) -> Value:
        spread = fnp.sqrt(s / (1.0 - DECAY_SQUARE**count)) + 1e-8
        step: Value = rate * m / (1.0 - DECAY_MEAN**count) / spread
        return x - step

    params = tree_map(moved, state["params"], mean, square)
    return {"params": params, "mean": mean, "square": square, "count": count}


def fit_phase(
    params: Params, recording: Recording, options: Options, length: int, steps: int, bar: Any
) -> tuple[Params, list[float], int]:
    """Take so many optimiser steps on segments of so many samples."""
    gradient = gradient_of(options, bound_of(options))

    @jit
    def step(state: State, starts: Any, samples: Any) -> tuple[State, Value, Value]:
        (loss, tried), grads = gradient(state["params"], starts, samples)
        done = state["count"] / steps
        rise = fnp.minimum((state["count"] + 1.0) / WARMUP, 1.0)
        rate = options.rate * rise * (0.5 + 0.5 * fnp.cos(np.pi * done))
        return adam_step(state, grads, rate), loss, tried

    zeros = tree_map(fnp.zeros_like, params)
    count = fnp.zeros((), np.float32)
    state: State = {"params": params, "mean": zeros, "square": zeros, "count": count}
    draw = np.random.default_rng((options.seed, length))
    losses: list[float] = []
    most = 0
    for _ in range(steps):
        segments = draw_segments(recording, draw, count=options.segments, length=length)
        state, loss, tried = step(state, segments.starts, segments.samples)
        losses.append(float(loss))
        most = max(most, int(tried))
        recent = 20.0 * float(np.mean(losses[-20:])) ** 0.5
        bar.set_postfix_str(f"{length} samples, {recent:.1f} mV, {int(tried)} steps", refresh=False)
        bar.update()
    return state["params"], losses, most


def fit(options: Options, recording: Recording) -> Fitted:
    """Fit short segments first: what they teach makes the long ones easy."""
    begin = time.perf_counter()
    params = init_params(random.key(options.seed), options.width)
    phases = ((options.length // 4, options.steps // 6), (options.length, options.steps))
    losses: list[float] = []
    most = 0
    total = sum(steps for _, steps in phases)
    with tqdm(total=total, unit="step", desc="fitting", dynamic_ncols=True) as bar:
        for length, steps in phases:
            params, new, tried = fit_phase(params, recording, options, length, steps, bar)
            losses, most = losses + new, max(most, tried)
    return Fitted(params, losses, most, time.perf_counter() - begin)


def some_segments(options: Options, recording: Recording) -> Segments:
    """Segments to measure a gradient with."""
    draw = np.random.default_rng(options.seed)
    return draw_segments(recording, draw, count=options.segments, length=options.length)
