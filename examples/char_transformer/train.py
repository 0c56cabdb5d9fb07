"""The training run: batches in, a trained state and its loss curve out, with a progress bar."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from tqdm import tqdm

from fiveloop import random
from fiveloop.core import Value, jit

from .costs import chosen_loss
from .data import Corpus, batches
from .evaluate import some_of_it
from .model import ModelSize, init_params, nats
from .options import Options
from .plots import Curve
from .steps import Adam, State, init_state, train_steps

STEPS_PER_CALL = 5
CALLS_PER_LOOK = 10
LOOK_BATCHES = 4


@dataclass(frozen=True)
class Trained:
    """The end of a run."""

    state: State
    curve: Curve
    seconds: float


def size_of(options: Options, corpus: Corpus) -> ModelSize:
    """Give the model's size for a run on this text."""
    return ModelSize(
        num_symbols=len(corpus.vocabulary),
        layers=options.layers,
        width=options.width,
        heads=options.heads,
        hidden=4 * options.width,
        context=options.context,
    )


def make_steps(options: Options, size: ModelSize) -> Callable[[State, Any], tuple[State, Value]]:
    """Compile a few training steps into one program; the old state's memory becomes the new one's."""
    loss = chosen_loss(options.budget or options.policy, size)
    adam = Adam(steps=options.steps, rate=options.rate)

    def steps(state: State, windows: Value) -> tuple[State, Value]:
        return train_steps(state, windows, loss, adam)

    return jit(steps, donate_argnums=(0,))


def make_nats(size: ModelSize) -> Callable[[Any, Any], Value]:
    """Compile the loss of each target of a batch of windows."""

    def of_batch(params: Any, windows: Value) -> Value:
        return nats(params, windows, size)

    return jit(of_batch)


def train(options: Options, corpus: Corpus, of_batch: Callable[[Any, Any], Value]) -> Trained:
    """Train from the seed to the last step, and look at some held-out text now and then."""
    size = size_of(options, corpus)
    look = some_of_it(
        corpus.held_out, context=options.context, batch=options.batch, batches=LOOK_BATCHES
    )
    stream = batches(corpus.train, batch=options.batch, context=options.context, seed=options.seed)
    steps = make_steps(options, size)
    state = init_state(init_params(random.key(options.seed), size))
    losses: list[float] = []
    seen: dict[int, float] = {0: look.loss(of_batch, state["params"])}
    start = time.perf_counter()
    with tqdm(total=options.steps, unit="step", desc="compiling", dynamic_ncols=True) as bar:
        while len(losses) < options.steps:
            count = min(STEPS_PER_CALL, options.steps - len(losses))
            windows = np.stack(list(islice(stream, count)))
            called = time.perf_counter()
            state, new = steps(
                state, windows.reshape(count, options.microbatches, -1, options.context + 1)
            )
            losses += np.asarray(new).tolist()
            tokens = count * options.batch * options.context
            speed = tokens / (time.perf_counter() - called)
            if len(losses) % (CALLS_PER_LOOK * STEPS_PER_CALL) == 0 or len(losses) == options.steps:
                seen[len(losses)] = look.loss(of_batch, state["params"])
            bar.set_description("training", refresh=False)
            bar.set_postfix_str(bar_text(losses, seen, speed), refresh=False)
            bar.update(count)
    return Trained(state, Curve(losses, seen), time.perf_counter() - start)


def bar_text(losses: list[float], seen: dict[int, float], speed: float) -> str:
    """Say how it goes: the mean loss of the last steps, the latest held-out loss, and the speed."""
    recent = float(np.mean(losses[-2 * STEPS_PER_CALL :]))
    return f"loss {recent:.3f}, held out {list(seen.values())[-1]:.3f}, {speed:,.0f} tokens/s"
