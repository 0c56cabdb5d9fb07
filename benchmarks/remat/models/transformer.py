"""A transformer as the example's: its layers, whose parameters are stacked, run by `scan`."""

import math
from typing import Any

import numpy

from benchmarks.remat.models.base import KEPT, Draw, Library, Model, Sizes, Tree, normalised

ROTARY_BASE = 1000.0


def init(draw: Draw, size: Sizes) -> tuple[Tree, Tree]:
    """Parameters, of which those of the layers are stacked; windows of symbols [batch, time + 1]."""
    layers, width, heads, hidden = (size[k] for k in ("layers", "width", "heads", "hidden"))
    added = 1.0 / math.sqrt(2 * layers)
    stacked = {
        "attention_scale": draw.near_one(layers, width),
        "qkv": draw.matrix(layers, width, 3 * width).reshape(layers, width, 3, heads, -1),
        "attention_out": draw.matrix(layers, width, width, scale=added),
        "mlp_scale": draw.near_one(layers, width),
        "mlp_in": draw.matrix(layers, width, hidden),
        "mlp_out": draw.matrix(layers, hidden, width, scale=added),
    }
    return {
        "embedding": draw.normal(size["symbols"], width),
        "layers": stacked,
        "out_scale": draw.near_one(width),
        "out": draw.matrix(width, size["symbols"]),
    }, {"windows": draw.below(size["symbols"], size["batch"], size["time"] + 1)}


def loss(lib: Library, params: Tree, data: Tree) -> Any:
    """The mean loss in nats per symbol."""
    tokens, targets = data["windows"][:, :-1], data["windows"][:, 1:]
    x = params["embedding"][tokens]
    layers = params["layers"]
    any_layer = layers[0] if isinstance(layers, list) else layers
    cos, sin = rotations(lib, x.shape[1], any_layer["qkv"].shape[-1])

    def layer(x: Any, p: Tree) -> tuple[Any, None]:
        x = x + attention(lib, x, p, cos, sin)
        hidden = lib.nn.relu(normalised(lib.np, x, p["mlp_scale"]) @ p["mlp_in"])
        return x + (hidden * hidden) @ p["mlp_out"], None

    x, _ = lib.scan(lib.block(layer), x, layers)
    logits = normalised(lib.np, x, params["out_scale"]) @ params["out"]
    scores = lib.nn.log_softmax(logits, axis=-1)
    return -lib.np.mean(lib.np.take_along_axis(scores, targets[..., None], axis=-1))


def attention(lib: Library, x: Any, p: Tree, cos: Any, sin: Any) -> Any:
    """Mix what each position may see: [batch, time, width]."""
    batch, time, width = x.shape
    heads = p["qkv"].shape[-2]
    qkv = normalised(lib.np, x, p["attention_scale"]) @ p["qkv"].reshape(width, -1)
    q, k, v = qkv.reshape(batch, time, 3, heads, -1).transpose(2, 0, 3, 1, 4)
    q, k = rotated(lib, q, cos, sin), rotated(lib, k, cos, sin)
    scores = q @ k.transpose(0, 1, 3, 2) * (width // heads) ** -0.5
    visible = numpy.tril(numpy.ones((time, time), bool))
    weights = lib.nn.softmax(lib.np.where(visible, scores, -1e9), axis=-1)
    joined = (weights @ v).transpose(0, 2, 1, 3).reshape(batch, time, width)
    return lib.name(joined @ p["attention_out"], KEPT)


def rotations(lib: Library, time: int, head_width: int) -> tuple[Any, Any]:
    """Cosine and sine of the angle of each pair of features at each position."""
    pair = numpy.arange(head_width // 2)
    speeds = (ROTARY_BASE ** (-2.0 * pair / head_width)).astype(numpy.float32)
    angles = lib.np.arange(time).astype("float32")[:, None] * speeds
    return lib.np.cos(angles), lib.np.sin(angles)


def rotated(lib: Library, x: Any, cos: Any, sin: Any) -> Any:
    """Turn each pair of features by its angle."""
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return lib.np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


MODEL = Model(
    name="transformer",
    loss=loss,
    init=init,
    depth="layers",
    small={
        "layers": 3,
        "width": 16,
        "heads": 2,
        "hidden": 32,
        "time": 16,
        "batch": 4,
        "symbols": 11,
    },
    full={
        "layers": 12,
        "width": 128,
        "heads": 4,
        "hidden": 512,
        "time": 128,
        "batch": 16,
        "symbols": 96,
    },
)
