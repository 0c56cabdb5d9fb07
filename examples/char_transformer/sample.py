"""Sampling text token by token, with the keys and values of the past kept in Refs.

Two loops over Refs: over tokens, and inside a token over layers. Each layer writes one slot of the caches in
place and reads the slots that are filled. The caches are rings of `context` slots: the rotary positions make
scores depend on distances alone, so text of any length can be drawn.
"""

from functools import partial
from typing import Any

import numpy as np

from fiveloop import nn, random
from fiveloop import numpy as fnp
from fiveloop.core import Value, jit, tree_map
from fiveloop.loops import for_loop
from fiveloop.state import Ref

from .model import ModelSize, Params, attend, heads_of, mlp, rotate, rotations


def next_logits(
    params: Params, token: Value, position: Value, keys: Ref, values: Ref, size: ModelSize
) -> Value:
    """Score the symbol after one token, and put the token's keys and values into the caches.

    keys, values : [layers, heads, context, head_width]
    """
    x = params["embedding"][token].reshape(1, 1, size.width)
    cos, sin = rotations(position.reshape(1), size.head_width, x.dtype)
    slot = position % size.context
    filled = fnp.arange(size.context) <= position

    def layer(i: Value, stream: Ref) -> None:
        p = tree_map(lambda stacked: stacked[i], params["layers"])
        x = stream[...]
        q, k, v = heads_of(x, p, size.heads)
        keys[i, :, slot] = rotate(k, cos, sin)[0, :, 0]
        values[i, :, slot] = v[0, :, 0]
        seen = attend(rotate(q, cos, sin), keys[i][None], values[i][None], filled)
        x = x + seen @ p["attention_out"]
        stream[...] = x + mlp(x, p)

    x = for_loop(size.layers, layer, x)
    scores: Value = nn.rms_norm(x, params["out_scale"]) @ params["out"]
    return scores.reshape(size.num_symbols)


def sample(
    params: Params,
    key: Value,
    prompt: Value,
    size: ModelSize,
    *,
    length: int,
    temperature: float = 0.8,
) -> Value:
    """Draw `length` tokens after a prompt of at least one token; the prompt is part of the result."""
    total = len(prompt) + length
    cache = fnp.zeros((size.layers, size.heads, size.context, size.head_width), params["out"].dtype)
    start: dict[str, Any] = {
        "tokens": fnp.concatenate([prompt, fnp.zeros((length,), prompt.dtype)]),
        "keys": cache,
        "values": cache,
    }

    def body(i: Value, refs: dict[str, Ref]) -> None:
        tokens = refs["tokens"]
        scores = next_logits(params, tokens[i], i, refs["keys"], refs["values"], size)
        drawn = random.categorical(random.fold_in(key, i), scores / temperature)
        given = tokens[i + 1]
        tokens[i + 1] = fnp.where(i + 1 < len(prompt), given, drawn.astype(given.dtype))

    tokens: Value = for_loop(total - 1, body, start)["tokens"]
    return tokens


def sample_text(
    params: Params, prompt: np.ndarray[Any, Any], size: ModelSize, *, length: int, seed: int
) -> list[int]:
    """Draw text after a prompt, compiled as one program."""
    draw = jit(partial(sample, size=size, length=length))
    return [int(token) for token in np.asarray(draw(params, random.key(seed), fnp.asarray(prompt)))]
