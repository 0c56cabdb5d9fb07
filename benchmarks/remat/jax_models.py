"""The models in jax: each block under `jax.checkpoint` with the policy of the same name."""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
from jax._src.ad_checkpoint import saved_residuals

from benchmarks.model import Program, Saving
from benchmarks.remat.inputs import NO_CHECKPOINT, arguments, policy_of
from benchmarks.remat.models import MODELS
from benchmarks.remat.models.jax_library import LIBRARY


def build(model: str, policy: str, size: int) -> Program:
    """The loss and its gradient, each block under a checkpoint."""
    library = LIBRARY
    if policy != NO_CHECKPOINT:
        chosen = policy_of(jax.checkpoint_policies, policy)
        library = replace(library, block=partial(jax.checkpoint, policy=chosen))
    params, data = arguments(model, size)

    def loss(params: Any, data: Any) -> Any:
        return MODELS[model].loss(library, params, data)

    def step(params: Any, data: Any) -> dict[str, Any]:
        value, grads = jax.value_and_grad(loss)(params, data)
        return {"loss": value, "grads": grads}

    kept: list[tuple[Any, str]] = saved_residuals(lambda params: loss(params, data), params)
    saved = sum(
        aval.size * aval.dtype.itemsize for aval, origin in kept if "argument" not in origin
    )
    return Program(step, (params, data), saving=Saving(saved))
