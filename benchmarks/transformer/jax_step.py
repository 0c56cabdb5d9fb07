"""The training step in jax: the example's model, line by line in jax's own words."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.model import Program
from benchmarks.transformer.inputs import NO_CHECKPOINT, Shape, arguments

ROTARY_BASE = 1000.0
EPSILON = 1e-6
Layer = Callable[[jax.Array, Any], tuple[jax.Array, None]]


def rms_norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    """x over the root of its mean square, times a scale."""
    size = jnp.mean(jnp.square(x), axis=-1, keepdims=True)
    return x * jax.lax.rsqrt(size + EPSILON) * scale


def rotations(time: int, head_width: int, dtype: Any) -> tuple[jax.Array, jax.Array]:
    """Cosine and sine of the angle of each pair of features at each position."""
    pair = np.arange(head_width // 2)
    speeds = (ROTARY_BASE ** (-2.0 * pair / head_width)).astype(dtype)
    angles = jnp.arange(time).astype(dtype)[:, None] * speeds
    return jnp.cos(angles), jnp.sin(angles)


def rotate(x: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
    """Turn each pair of features by its angle."""
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def attend(q: jax.Array, k: jax.Array, v: jax.Array, visible: np.ndarray) -> jax.Array:
    """Mix the values that each query may see, and join the heads."""
    batch, heads, time, head_width = q.shape
    scores = q @ k.transpose(0, 1, 3, 2) * head_width**-0.5
    weights = jax.nn.softmax(jnp.where(visible, scores, -1e9), axis=-1)
    return (weights @ v).transpose(0, 2, 1, 3).reshape(batch, time, heads * head_width)


def make_layer(shape: Shape, time: int, dtype: Any) -> Layer:
    """One layer, as `lax.scan` wants it."""
    cos, sin = rotations(time, shape.width // shape.heads, dtype)
    causal = np.tril(np.ones((time, time), bool))

    def layer(x: jax.Array, p: Any) -> tuple[jax.Array, None]:
        batch, time, width = x.shape
        qkv = rms_norm(x, p["attention_scale"]) @ p["qkv"]
        qkv = qkv.reshape(batch, time, 3, shape.heads, width // shape.heads)
        q, k, v = qkv.transpose(2, 0, 3, 1, 4)
        x = x + attend(rotate(q, cos, sin), rotate(k, cos, sin), v, causal) @ p["attention_out"]
        hidden = jax.nn.relu(rms_norm(x, p["mlp_scale"]) @ p["mlp_in"])
        return x + (hidden * hidden) @ p["mlp_out"], None

    return layer


def checkpointed(layer: Layer, policy: str, prevent_cse: bool) -> Layer:
    """The layer under `jax.checkpoint` with a policy of that name."""
    if policy == NO_CHECKPOINT:
        return layer
    chosen = getattr(jax.checkpoint_policies, policy)
    wrapped: Layer = jax.checkpoint(layer, policy=chosen, prevent_cse=prevent_cse)
    return wrapped


def mean_nats(
    params: Any, windows: jax.Array, shape: Shape, policy: str, prevent_cse: bool
) -> jax.Array:
    """The mean loss in nats per symbol."""
    tokens, targets = windows[:, :-1], windows[:, 1:]
    x = params["embedding"][tokens]
    layer = make_layer(shape, tokens.shape[1], x.dtype)
    x, _ = jax.lax.scan(checkpointed(layer, policy, prevent_cse), x, params["layers"])
    logits = rms_norm(x, params["out_scale"]) @ params["out"]
    scores = jax.nn.log_softmax(logits, axis=-1)
    return -jnp.mean(jnp.take_along_axis(scores, targets[..., None], axis=-1))


def build(policy: str, size: int, prevent_cse: bool) -> Program:
    """One step with that many layers under a policy."""
    shape = Shape(size)

    def step(params: Any, windows: jax.Array) -> dict[str, Any]:
        loss, grads = jax.value_and_grad(mean_nats)(params, windows, shape, policy, prevent_cse)
        return {"loss": loss, "grads": grads}

    return Program(step, arguments(shape))
