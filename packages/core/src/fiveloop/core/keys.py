"""Random keys: arrays of two uint32 words, which can be split and folded.

Bits are the cipher of a counter under a key. Element i of a draw depends on the key and on i alone, so
that neither batching nor the way a program is compiled changes a draw.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fiveloop.core import arrays, ir, prims
from fiveloop.core.arrays import ArrayLike, Value
from fiveloop.core.primitives import special

_WORD = 0xFFFFFFFF


def key(seed: ArrayLike) -> Value:
    """A key from an integer seed of up to 64 bits."""
    if isinstance(seed, int):
        if not -(2**63) <= seed < 2**64:
            raise OverflowError(f"key: expected a seed of at most 64 bits, got {seed}")
        return arrays.device_put(np.array([(seed >> 32) & _WORD, seed & _WORD], np.uint32))
    return _pair(*_words(_scalar_integer("key", "seed", seed)))


def split(k: ArrayLike, num: int | ir.Shape = 2) -> Value:
    """New keys, `num` of them (or an array of them), independent of one another and of `k`."""
    shape = prims.canonical_shape("split", num, "num")
    return _pair(*special.threefry2x32(_halves("split", k), _counters(shape)))


def fold_in(k: ArrayLike, data: ArrayLike) -> Value:
    """A new key from a key and an integer, such as a step or an index."""
    if isinstance(data, int):
        data = np.int32(data) if -(2**31) <= data < 2**31 else np.asarray(data)
    words = _words(_scalar_integer("fold_in", "data", data))
    return _pair(*special.threefry2x32(_halves("fold_in", k), words))


def random_bits(k: ArrayLike, shape: Any = (), dtype: Any = np.uint32) -> Value:
    """Random bits in an array of unsigned integers, each bit 0 or 1 with equal probability."""
    out = prims.canonical_dtype("random_bits", dtype)
    if out.kind != "u":
        prims.bad_type(f"random_bits: expected an unsigned integer dtype, got {out.name}")
    dims = prims.canonical_shape("random_bits", shape)
    high, low = special.threefry2x32(_halves("random_bits", k), _counters(dims))
    if out.itemsize == 8:
        upper = prims.shift_left(prims.convert(high, out), 32)
        return prims.bitwise_or(upper, prims.convert(low, out))
    return prims.convert(prims.bitwise_xor(high, low), out)


def _counters(shape: ir.Shape) -> tuple[Value, Value]:
    """The number of each element, as the upper and lower half of 64 bits."""
    count = ir.size_of(shape)
    zero = arrays.Scalar(np.zeros((), special.UINT32))
    if count <= 2**32:
        return zero, prims.reshape(prims.iota(special.UINT32, (count,)), shape)
    number = prims.reshape(prims.iota(np.uint64, (count,)), shape)
    halves = prims.shift_right_logical(number, 32), number
    return prims.convert(halves[0], special.UINT32), prims.convert(number, special.UINT32)


def as_key(fun: str, k: ArrayLike) -> Value:
    """An argument as a key; the error for anything else names the function."""
    value = prims.operand(fun, "key", k)
    if value.shape != (2,) or value.dtype != special.UINT32:
        prims.bad_type(
            f"{fun}: expected a key, an array of two uint32 words, got {value.aval}; see `vmap` for many"
        )
    return value


def _halves(fun: str, k: ArrayLike) -> tuple[Value, Value]:
    """The two words of a key."""
    value = as_key(fun, k)
    return _entry(value, 0), _entry(value, 1)


def _entry(x: Value, i: int) -> Value:
    return prims.reshape(prims.static_slice(x, (i,), (i + 1,)), ())


def _scalar_integer(fun: str, name: str, x: ArrayLike) -> Value:
    value = prims.operand(fun, name, x)
    if value.shape:
        prims.bad_value(
            f"{fun}: expected `{name}` to be a scalar, got {value.aval}; see `vmap` for many"
        )
    if value.dtype.kind not in "iu":
        prims.bad_type(f"{fun}: expected `{name}` to be an integer, got {value.aval}")
    return value


def _words(x: Value) -> tuple[Value, Value]:
    """An integer as two words of uint32; one of at most 32 bits is the lower word."""
    if x.dtype.itemsize <= 4:
        return arrays.Scalar(np.zeros((), special.UINT32)), prims.convert(x, special.UINT32)
    low_high = special.bitcast_convert(x, special.UINT32)
    return _entry(low_high, 1), _entry(low_high, 0)


def _pair(high: Value, low: Value) -> Value:
    """Keys from their words: a last axis of two."""
    return prims.concatenate([prims.expand_dims(x, x.ndim) for x in (high, low)], high.ndim)
