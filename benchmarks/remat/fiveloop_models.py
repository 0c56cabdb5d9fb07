"""The models in fiveloop: each block under a policy, or the whole loss under a budget."""

from dataclasses import replace
from typing import Any

import fiveloop.numpy as fnp
from benchmarks.model import Action, Program
from benchmarks.remat.inputs import NO_CHECKPOINT, arguments, policy_of
from benchmarks.remat.models import MODELS
from benchmarks.remat.models.fiveloop_library import LIBRARY
from fiveloop.core import value_and_grad
from fiveloop.remat import checkpoint, policies, saved_residuals


def build(model: str, policy: str, size: int) -> Program:
    """The loss and its gradient, each block under a checkpoint."""
    library = LIBRARY
    if policy != NO_CHECKPOINT:
        library = replace(library, block=checkpoint(policy=policy_of(policies, policy)))
    return program(lambda params, data: MODELS[model].loss(library, params, data), model, size)


def within(model: str, budget: float, size: int) -> Program:
    """The loss and its gradient, the whole under a budget."""
    loss = checkpoint(lambda params, data: MODELS[model].loss(LIBRARY, params, data), budget=budget)
    return program(loss, model, size)


def program(loss: Any, model: str, size: int) -> Program:
    """What is timed, and the bytes that it saves for the backward pass beside its arguments."""
    params, data = arguments(model, size)

    def step(params: Any, data: Any) -> dict[str, Any]:
        value, grads = value_and_grad(loss)(params, data)
        return {"loss": value, "grads": grads}

    kept = saved_residuals(lambda params: loss(params, data), params)
    saved = sum(r.bytes for r in kept if "argument" not in r.origin)
    return Program(step, (params, data), saved_bytes=saved)


def planning(size: int) -> Action:
    """Trace a straight chain of so many equations under a budget, and plan what it saves."""
    x = fnp.ones((64,))

    def run() -> dict[str, Any]:
        def chain(x: Any) -> Any:
            for _ in range(size // 2):
                x = fnp.sin(x) * x
            return x

        saved_residuals(checkpoint(chain, budget=0.5), x)
        return {"x": x}

    return Action(run, times=1)
