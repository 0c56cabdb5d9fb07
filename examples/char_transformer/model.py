"""The model: a decoder-only transformer over characters, its layers composed by `scan` under `checkpoint`.

Pre-norm with RMS norm, rotary positions, squared ReLU, no biases. Squared ReLU is as good as GELU here and,
on a CPU, the whole step is a quarter cheaper for it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fiveloop import nn, random
from fiveloop import numpy as fnp
from fiveloop.core import Value
from fiveloop.loops import scan
from fiveloop.remat import checkpoint

Params = dict[str, Any]
Policy = Callable[..., Any]

ROTARY_BASE = 1000.0


@dataclass(frozen=True)
class ModelSize:
    """All that decides the shapes of the parameters, and the longest past that the model looks at."""

    num_symbols: int
    layers: int = 4
    width: int = 128
    heads: int = 4
    hidden: int = 512
    context: int = 128

    @property
    def head_width(self) -> int:
        """The width of one head; rotary positions need it to be even."""
        return self.width // self.heads


def init_params(key: Value, size: ModelSize, dtype: npt.DTypeLike = np.float32) -> Params:
    """Draw the parameters; those of the layers are stacked along a first axis for `scan`."""
    layers, width, hidden = size.layers, size.width, size.hidden
    keys = iter(random.split(key, 6))

    def normal(shape: tuple[int, ...], scale: float) -> Value:
        return scale * random.normal(next(keys), shape, dtype)

    # Embeddings start at the size of the stream: at a tenth of it the first hundred steps go to finding them.
    # Each layer adds to the stream twice: smaller outputs keep its size the same for any depth.
    added = 1.0 / math.sqrt(2 * layers)
    return {
        "embedding": normal((size.num_symbols, width), 1.0),
        "layers": {
            "attention_scale": fnp.ones((layers, width), dtype),
            "qkv": normal((layers, width, 3 * width), width**-0.5),
            "attention_out": normal((layers, width, width), added * width**-0.5),
            "mlp_scale": fnp.ones((layers, width), dtype),
            "mlp_in": normal((layers, width, hidden), width**-0.5),
            "mlp_out": normal((layers, hidden, width), added * hidden**-0.5),
        },
        "out_scale": fnp.ones((width,), dtype),
        "out": fnp.zeros((width, size.num_symbols), dtype),
    }


def logits(params: Params, tokens: Value, size: ModelSize, policy: Policy | None = None) -> Value:
    """Score each symbol as the next one after each token: [batch, time] to [batch, time, num_symbols].

    The layers run under `checkpoint` with the given policy, and without it where the policy is None.
    """
    x = params["embedding"][tokens]
    time = tokens.shape[1]
    cos, sin = rotations(fnp.arange(time), size.head_width, x.dtype)
    causal = np.tril(np.ones((time, time), bool))

    def layer(x: Value, p: Params) -> tuple[Value, None]:
        q, k, v = heads_of(x, p, size.heads)
        x = x + attend(rotate(q, cos, sin), rotate(k, cos, sin), v, causal) @ p["attention_out"]
        return x + mlp(x, p), None

    run_layer = layer if policy is None else checkpoint(layer, policy=policy)
    x, _ = scan(run_layer, x, params["layers"])
    scores: Value = nn.rms_norm(x, params["out_scale"]) @ params["out"]
    return scores


def heads_of(x: Value, p: Params, heads: int) -> tuple[Value, Value, Value]:
    """Give queries, keys and values of a layer, each [batch, heads, time, head_width]."""
    batch, time, width = x.shape
    qkv = nn.rms_norm(x, p["attention_scale"]) @ p["qkv"]
    qkv = qkv.reshape(batch, time, 3, heads, width // heads)
    q, k, v = qkv.transpose(2, 0, 3, 1, 4)
    return q, k, v


def attend(q: Value, k: Value, v: Value, visible: Value | npt.NDArray[np.bool_]) -> Value:
    """Mix the values that each query may see, and join the heads: to [batch, time, width]."""
    batch, heads, time, head_width = q.shape
    scores = q @ k.transpose(0, 1, 3, 2) * head_width**-0.5
    weights = nn.softmax(fnp.where(visible, scores, -1e9), axis=-1)
    return (weights @ v).transpose(0, 2, 1, 3).reshape(batch, time, heads * head_width)


def mlp(x: Value, p: Params) -> Value:
    """What the second half of a layer adds to the stream."""
    hidden = nn.relu(nn.rms_norm(x, p["mlp_scale"]) @ p["mlp_in"])
    added: Value = (hidden * hidden) @ p["mlp_out"]
    return added


def rotations(positions: Value, head_width: int, dtype: npt.DTypeLike) -> tuple[Value, Value]:
    """Give cosine and sine of the angle of each pair of features at each position."""
    pair = np.arange(head_width // 2)
    speeds = (ROTARY_BASE ** (-2.0 * pair / head_width)).astype(dtype)
    angles = positions.astype(dtype)[:, None] * speeds
    return fnp.cos(angles), fnp.sin(angles)


def rotate(x: Value, cos: Value, sin: Value) -> Value:
    """Turn each pair of features by its angle, so that scores depend on distances alone."""
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return fnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def nats(params: Params, windows: Value, size: ModelSize, policy: Policy | None = None) -> Value:
    """Give the loss of each target: windows [batch, time + 1] to [batch, time]."""
    scores = nn.log_softmax(logits(params, windows[:, :-1], size, policy), axis=-1)
    return -fnp.take_along_axis(scores, windows[:, 1:, None], axis=-1)[..., 0]


def mean_nats(
    params: Params, windows: Value, size: ModelSize, policy: Policy | None = None
) -> Value:
    """Give the mean loss in nats per character: what training lowers."""
    return fnp.mean(nats(params, windows, size, policy))
