"""Random keys: arrays of two uint32 words; equal keys give equal draws.

A key is not used up: split it, or fold a number into it, before each draw.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fiveloop.core import ArrayLike, Value, keys, prims
from fiveloop.core import keys as core_keys
from fiveloop.core.api.jit import jit

_split = jit(core_keys.split, static_argnames="num", inline=True)
_fold_in = jit(core_keys.fold_in, inline=True)
_bits = jit(core_keys.random_bits, static_argnames=("shape", "dtype"), inline=True)


def key(seed: ArrayLike) -> Value:
    """A key from an integer seed of up to 64 bits.

    >>> random.key(7)
    Array([0, 7], dtype=uint32)
    """
    return core_keys.key(seed)


PRNGKey = key


def split(key: ArrayLike, num: int | tuple[int, ...] = 2) -> Value:
    """New keys, `num` of them (or an array of them), independent of one another and of `key`.

    >>> a, b = random.split(random.key(0))
    >>> a.shape
    (2,)
    """
    return _split(keys.as_key("split", key), num=prims.canonical_shape("split", num, "num"))


def fold_in(key: ArrayLike, data: ArrayLike) -> Value:
    """A new key from a key and an integer, such as a step or an index, which may be traced.

    >>> random.fold_in(random.key(0), 3).shape
    (2,)
    """
    if isinstance(data, int):
        return core_keys.fold_in(key, data)
    return _fold_in(keys.as_key("fold_in", key), prims.operand("fold_in", "data", data))


def bits(key: ArrayLike, shape: Any = (), dtype: Any = np.uint32) -> Value:
    """Random bits in an array of unsigned integers, each bit 0 or 1 with equal probability.

    >>> random.bits(random.key(0), (2,), np.uint8).dtype
    dtype('uint8')
    """
    out = prims.canonical_shape("bits", shape)
    return _bits(keys.as_key("bits", key), shape=out, dtype=dtype)
