"""The policies and budgets that are compared, and the arguments of a model at a depth."""

from operator import itemgetter
from typing import Any

from benchmarks.remat.models import KEPT, MODELS
from benchmarks.remat.models.base import Draw
from benchmarks.sides.base import map_leaves

NO_CHECKPOINT = "no_checkpoint"
NAMES = "save_only_these_names"
POLICIES = (
    "nothing_saveable",
    "dots_with_no_batch_dims_saveable",
    "dots_saveable",
    NAMES,
    "everything_saveable",
)
BUDGETS = (0.25, 0.5, 0.75)
"""What of the bytes between the least that can and all."""
TEN_BUDGETS = tuple(k / 9 for k in range(10))
"""From the least that can to all: those that are compiled and not timed."""
MIDDLE = 0.5


def depth_of(model: str, scale: str = "full") -> int:
    """How many layers, steps, blocks or levels the model has at a size, "small" or "full"."""
    return MODELS[model].sizes(scale)[MODELS[model].depth]


def arguments(model: str, depth: int, scale: str = "full") -> tuple[Any, Any]:
    """Parameters and data of a model that is so deep, and "small" or "full" otherwise."""
    found = MODELS[model]
    return found.init(Draw(), {**found.sizes(scale), found.depth: depth})


def layers_apart(model: str, depth: int) -> tuple[Any, Any]:
    """The same at full scale, with a tree of parameters for each layer that `scan` would run."""
    params, data = arguments(model, depth)
    if "layers" in params:
        layers = [map_leaves(itemgetter(k), params["layers"]) for k in range(depth)]
        params = {**params, "layers": layers}
    return params, data


def policy_of(library: Any, name: str) -> Any:
    """A policy by its name, from the library's module of policies."""
    policy = getattr(library, name)
    return policy(KEPT) if name == NAMES else policy
