"""Sizes, parameters and text windows of the training step, the same for both sides."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

BATCH = 16
NUM_SYMBOLS = 96
POLICIES = (
    "nothing_saveable",
    "dots_with_no_batch_dims_saveable",
    "dots_saveable",
    "everything_saveable",
)
NO_CHECKPOINT = "no_checkpoint"


@dataclass(frozen=True)
class Shape:
    """The sizes of the example's model; all but the number of layers are its defaults."""

    layers: int
    num_symbols: int = NUM_SYMBOLS
    width: int = 128
    heads: int = 4
    hidden: int = 512
    context: int = 128


def params(shape: Shape) -> dict[str, Any]:
    """Parameters as after some training: the output matrix is not zero, so every gradient is nonzero too."""
    draw = np.random.default_rng(0)
    layers, width, hidden = shape.layers, shape.width, shape.hidden
    added = 1.0 / math.sqrt(2 * layers)

    def normal(*dims: int, scale: float) -> np.ndarray:
        return (scale * draw.standard_normal(dims)).astype(np.float32)

    def near_one(*dims: int) -> np.ndarray:
        return draw.uniform(0.8, 1.2, dims).astype(np.float32)

    return {
        "embedding": normal(shape.num_symbols, width, scale=1.0),
        "layers": {
            "attention_scale": near_one(layers, width),
            "qkv": normal(layers, width, 3 * width, scale=width**-0.5),
            "attention_out": normal(layers, width, width, scale=added * width**-0.5),
            "mlp_scale": near_one(layers, width),
            "mlp_in": normal(layers, width, hidden, scale=width**-0.5),
            "mlp_out": normal(layers, hidden, width, scale=added * hidden**-0.5),
        },
        "out_scale": near_one(width),
        "out": normal(width, shape.num_symbols, scale=width**-0.5),
    }


def windows(shape: Shape) -> np.ndarray:
    """Windows of symbols, each one longer than the context: [batch, time + 1]."""
    draw = np.random.default_rng(1)
    return draw.integers(0, shape.num_symbols, (BATCH, shape.context + 1)).astype(np.int32)


def arguments(shape: Shape) -> tuple[dict[str, Any], np.ndarray]:
    """What the training step is called with."""
    return params(shape), windows(shape)
