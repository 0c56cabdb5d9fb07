"""A training step of a diffusion model: predict the noise in signals, given how noisy they are."""

from typing import Any

import numpy

from benchmarks.remat.models.base import (
    KEPT,
    Draw,
    Library,
    Model,
    Sizes,
    Tree,
    mixed_neighbours,
    normalised,
)

LEVELS = 1000


def init(draw: Draw, size: Sizes) -> tuple[Tree, Tree]:
    """Blocks; signals and noise [batch, places, width], and how many noises were added to each signal."""
    width, shape = size["width"], (size["batch"], size["places"], size["width"])

    def block() -> Tree:
        return {
            "scale": draw.near_one(width),
            "in": draw.matrix(3 * width, width),
            "level": draw.matrix(width, 2 * width, scale=0.1),
            "out": draw.matrix(3 * width, width, scale=size["blocks"] ** -0.5),
        }

    params = {
        "level": draw.matrix(width, width),
        "blocks": [block() for _ in range(size["blocks"])],
        "out": draw.matrix(width, width),
    }
    return params, {
        "signals": draw.normal(*shape),
        "noise": draw.normal(*shape),
        "level": draw.below(LEVELS, size["batch"]),
    }


def loss(lib: Library, params: Tree, data: Tree) -> Any:
    """The mean square of what the prediction of the noise misses."""
    kept = lib.np.cumprod(1.0 - lib.np.linspace(1e-4, 0.02, LEVELS, dtype=numpy.float32))
    share = kept[data["level"]][:, None, None]
    x = lib.np.sqrt(share) * data["signals"] + lib.np.sqrt(1.0 - share) * data["noise"]
    level = lib.nn.silu(waves(lib, data["level"], x.shape[-1]) @ params["level"])

    def block(x: Any, p: Tree) -> Any:
        factor, shift = lib.np.split((level @ p["level"])[:, None], 2, axis=-1)
        hidden = mixed_neighbours(lib.np, normalised(lib.np, x, p["scale"]), p["in"])
        hidden = lib.nn.silu(lib.name(hidden, KEPT) * (1.0 + factor) + shift)
        return x + mixed_neighbours(lib.np, hidden, p["out"])

    for p in params["blocks"]:
        x = lib.block(block)(x, p)
    return lib.np.mean((x @ params["out"] - data["noise"]) ** 2)


def waves(lib: Library, level: Any, width: int) -> Any:
    """Sines and cosines of the level of noise, at growing frequencies: [batch, width]."""
    speeds = (LEVELS ** -numpy.linspace(0.0, 1.0, width // 2)).astype(numpy.float32)
    angles = level.astype(numpy.float32)[:, None] * speeds
    return lib.np.concatenate([lib.np.sin(angles), lib.np.cos(angles)], axis=-1)


MODEL = Model(
    name="diffusion",
    loss=loss,
    init=init,
    depth="blocks",
    small={"blocks": 3, "places": 32, "width": 8, "batch": 8},
    full={"blocks": 8, "places": 256, "width": 64, "batch": 16},
)
