"""What a training step costs under each rematerialisation policy and budget: compiled memory, and time."""

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from fiveloop.core import Value, jit, tree_leaves
from fiveloop.remat import checkpoint, policies

from .data import Ids
from .model import ModelSize, Policy, mean_nats
from .options import POLICIES
from .plots import PolicyCost
from .steps import Adam, Loss, State, train_steps

COMPARED = ("everything_saveable", "dots_with_no_batch_dims_saveable", "nothing_saveable")
BUDGETS = ("20%", "0%", "50%")
"""What of the memory between the least that can and saving everything; from some 50% on the plan is the same."""

ROUNDS = 4


def policy_named(name: str) -> Policy:
    """Give one of remat's policies by its name."""
    policy: Policy = getattr(policies, name)
    return policy


def chosen_loss(name: str, size: ModelSize) -> Loss:
    """Give the loss with layers under a policy, or, for any other name, all of it within that budget."""
    if name in POLICIES:
        policy = policy_named(name)
        return lambda params, windows: mean_nats(params, windows, size, policy)

    @checkpoint(budget=name)
    def loss(params: Any, windows: Any) -> Value:
        return mean_nats(params, windows, size)

    return loss


def compared(budget: str | None) -> tuple[str, ...]:
    """Give the policies and the budgets to compare: three of each, one of them that of the run."""
    budgets = BUDGETS if budget is None else (budget, *BUDGETS[1:])
    return (*COMPARED, *budgets)


def policy_costs(
    state: State, batch: Ids, size: ModelSize, names: Iterable[str] = COMPARED
) -> list[PolicyCost]:
    """Compile a step under each policy or budget, and time the steps by turns, so that noise hits all alike.

    batch : [microbatches, batch, time + 1]
    """
    names = list(names)
    compiled = [compile_step(state, batch, chosen_loss(name, size)) for name in names]
    seconds: list[list[float]] = [[] for _ in names]
    for _ in range(ROUNDS):
        for step, times in zip(compiled, seconds, strict=True):
            times.append(time_of(partial(step, state, batch[None])))
    return [
        PolicyCost(
            name, step.memory_analysis().temp, float(np.median(times[1:])), name not in POLICIES
        )
        for name, step, times in zip(names, compiled, seconds, strict=True)
    ]


def compile_step(state: State, batch: Ids, loss: Loss) -> Any:
    """Compile one training step ahead of time, for its memory to be asked."""

    def step(state: State, batches: Any) -> tuple[State, Value]:
        return train_steps(state, batches, loss, Adam(steps=1))

    return jit(step).lower(state, batch[None]).compile()


def time_of(run: Callable[[], Any]) -> float:
    """Give the seconds that a run takes, its results waited for."""
    start = time.perf_counter()
    for leaf in tree_leaves(run()):
        leaf.block_until_ready()
    return time.perf_counter() - start
