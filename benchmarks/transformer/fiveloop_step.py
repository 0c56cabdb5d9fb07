"""The training step in fiveloop: loss and gradients of the example's own model."""

from typing import Any

from char_transformer.model import ModelSize, mean_nats

from benchmarks.model import Program
from benchmarks.transformer.inputs import NO_CHECKPOINT, Shape, arguments
from fiveloop import remat
from fiveloop.core import value_and_grad


def build(policy: str, size: int) -> Program:
    """One step with that many layers under a policy."""
    shape = Shape(size)
    model = ModelSize(**vars(shape))
    chosen = None if policy == NO_CHECKPOINT else getattr(remat.policies, policy)

    def step(params: Any, windows: Any) -> dict[str, Any]:
        loss, grads = value_and_grad(lambda p: mean_nats(p, windows, model, chosen))(params)
        return {"loss": loss, "grads": grads}

    return Program(step, arguments(shape))
