"""Training steps as loops over Refs: steps, and inside a step the microbatches, each add to Refs in place."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fiveloop import numpy as fnp
from fiveloop.core import Value, tree_leaves, tree_map, value_and_grad
from fiveloop.loops import for_loop

from .model import Params

State = dict[str, Any]
Loss = Callable[[Params, Value], Value]


@dataclass(frozen=True)
class Adam:
    """Adam with a rate that rises linearly, then falls along a cosine to zero at the last step."""

    steps: int
    rate: float = 3e-3
    warmup: int = 50
    decay_mean: float = 0.9
    decay_square: float = 0.98
    epsilon: float = 1e-8

    def rate_at(self, step: Value) -> Value:
        """Give the rate of a step, counted from zero."""
        rise = fnp.minimum((step + 1.0) / self.warmup, 1.0)
        done = fnp.clip((step - self.warmup) / max(self.steps - self.warmup, 1), 0.0, 1.0)
        return self.rate * rise * (0.5 + 0.5 * fnp.cos(np.pi * done))


def init_state(params: Params) -> State:
    """Give the state of training before the first step."""
    return {
        "params": params,
        "mean": tree_map(fnp.zeros_like, params),
        "square": tree_map(fnp.zeros_like, params),
        "step": fnp.zeros((), np.int32),
    }


def gradients(loss: Loss, params: Params, microbatches: Value) -> tuple[Value, Params]:
    """Give the mean loss and gradients of some microbatches: [microbatches, batch, time + 1].

    The loop adds each microbatch's gradients into Refs, so that only one microbatch's activations live at a
    time, and no gradients beside the sums.
    """
    share = 1.0 / len(microbatches)

    def body(i: Value, totals: State) -> None:
        value, grads = value_and_grad(loss)(params, microbatches[i])
        totals["loss"][...] += share * value
        for total, grad in zip(tree_leaves(totals["grads"]), tree_leaves(grads), strict=True):
            total[...] += share * grad

    dtype = tree_leaves(params)[0].dtype
    zeros: State = {"loss": fnp.zeros((), dtype), "grads": tree_map(fnp.zeros_like, params)}
    totals = for_loop(len(microbatches), body, zeros)
    return totals["loss"], totals["grads"]


def adam_step(refs: State, grads: Params, adam: Adam) -> None:
    """Move the parameters, and the two averages that Adam keeps, in place."""
    step = refs["step"][...].astype(tree_leaves(grads)[0].dtype)
    refs["step"][...] += 1
    rate = adam.rate_at(step)
    mean_share = 1.0 - adam.decay_mean ** (step + 1.0)
    square_share = 1.0 - adam.decay_square ** (step + 1.0)
    trees = (refs["params"], refs["mean"], refs["square"], grads)
    for param, mean, square, grad in zip(*map(tree_leaves, trees), strict=True):
        mean[...] = adam.decay_mean * mean[...] + (1.0 - adam.decay_mean) * grad
        square[...] = adam.decay_square * square[...] + (1.0 - adam.decay_square) * grad * grad
        spread = fnp.sqrt(square[...] / square_share) + adam.epsilon
        param[...] -= rate * (mean[...] / mean_share) / spread


def train_steps(state: State, batches: Value, loss: Loss, adam: Adam) -> tuple[State, Value]:
    """Take one step for each batch, and give the new state and the loss before each step.

    batches : [steps, microbatches, batch, time + 1]
    """

    def body(i: Value, refs: State) -> None:
        params = tree_map(lambda ref: ref[...], refs["state"]["params"])
        value, grads = gradients(loss, params, batches[i])
        refs["losses"][i] = value
        adam_step(refs["state"], grads, adam)

    losses = fnp.zeros((len(batches),), tree_leaves(state["params"])[0].dtype)
    start: State = {"state": state, "losses": losses}
    final = for_loop(len(batches), body, start)
    return final["state"], final["losses"]
