"""Random keys: arrays of two uint32 words, which are split and folded and never used up.

Bits are the cipher of a counter under a key. Element i of a draw depends on the key and on i alone, so
that neither batching nor the way a program is compiled changes a draw.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fiveloop.core.array import ArrayLike, Scalar, Value, device_put
from fiveloop.core.ir.dims import Shape, size_of
from fiveloop.core.primitives.broadcast import expand_dims, reshape
from fiveloop.core.primitives.check import bad_type, bad_value, canonical_dtype, canonical_shape
from fiveloop.core.primitives.convert import convert, operand
from fiveloop.core.primitives.elementwise import (
    bitwise_or,
    bitwise_xor,
    shift_left,
    shift_right_logical,
)
from fiveloop.core.primitives.index import static_slice
from fiveloop.core.primitives.shape import concatenate, iota
from fiveloop.core.primitives.special import UINT32, bitcast_convert, threefry2x32

_WORD = 0xFFFFFFFF


def key(seed: ArrayLike) -> Value:
    """A key from an integer seed of up to 64 bits."""
    if isinstance(seed, int):
        if not -(2**63) <= seed < 2**64:
            raise OverflowError(f"key: expected a seed of at most 64 bits, got {seed}")
        return device_put(np.array([(seed >> 32) & _WORD, seed & _WORD], np.uint32))
    high, low = _words(_scalar_integer("key", "seed", seed))
    return _pair(high, low)


def split(k: ArrayLike, num: int | Shape = 2) -> Value:
    """New keys, `num` of them (or an array of them), independent of one another and of `k`."""
    shape = canonical_shape("split", num, "num")
    high, low = threefry2x32(_halves("split", k), _counters(shape))
    return _pair(high, low)


def fold_in(k: ArrayLike, data: ArrayLike) -> Value:
    """A new key from a key and an integer, such as a step or an index."""
    if isinstance(data, int):
        data = np.int32(data) if -(2**31) <= data < 2**31 else np.asarray(data)
    words = _words(_scalar_integer("fold_in", "data", data))
    return _pair(*threefry2x32(_halves("fold_in", k), words))


def random_bits(k: ArrayLike, shape: Any = (), dtype: Any = np.uint32) -> Value:
    """Random bits in an array of unsigned integers, each bit 0 or 1 with equal chance."""
    out = canonical_dtype("random_bits", dtype)
    if out.kind != "u":
        bad_type(f"random_bits: expected an unsigned integer dtype, got {out.name}")
    high, low = threefry2x32(
        _halves("random_bits", k), _counters(canonical_shape("random_bits", shape))
    )
    if out.itemsize == 8:
        return bitwise_or(shift_left(convert(high, out), 32), convert(low, out))
    return convert(bitwise_xor(high, low), out)


def _counters(shape: Shape) -> tuple[Value, Value]:
    """The number of each element, as the upper and lower half of 64 bits."""
    count = size_of(shape)
    zero = Scalar(np.zeros((), UINT32))
    if count <= 2**32:
        return zero, reshape(iota(UINT32, (count,)), shape)
    number = reshape(iota(np.uint64, (count,)), shape)
    return convert(shift_right_logical(number, 32), UINT32), convert(number, UINT32)


def as_key(fun: str, k: ArrayLike) -> Value:
    """An argument as a key; the error for anything else names the function."""
    value = operand(fun, "key", k)
    if value.shape != (2,) or value.dtype != UINT32:
        bad_type(
            f"{fun}: expected a key, an array of two uint32 words, got {value.aval}; see `vmap` for many"
        )
    return value


def _halves(fun: str, k: ArrayLike) -> tuple[Value, Value]:
    """The two words of a key."""
    value = as_key(fun, k)
    return _entry(value, 0), _entry(value, 1)


def _entry(x: Value, i: int) -> Value:
    return reshape(static_slice(x, (i,), (i + 1,)), ())


def _scalar_integer(fun: str, name: str, x: ArrayLike) -> Value:
    value = operand(fun, name, x)
    if value.shape:
        bad_value(f"{fun}: expected `{name}` to be a scalar, got {value.aval}; see `vmap` for many")
    if value.dtype.kind not in "iu":
        bad_type(f"{fun}: expected `{name}` to be an integer, got {value.aval}")
    return value


def _words(x: Value) -> tuple[Value, Value]:
    """An integer as two words of uint32; one of at most 32 bits is the lower word."""
    if x.dtype.itemsize <= 4:
        return Scalar(np.zeros((), UINT32)), convert(x, UINT32)
    low_high = bitcast_convert(x, UINT32)
    return _entry(low_high, 1), _entry(low_high, 0)


def _pair(high: Value, low: Value) -> Value:
    """Keys from their words: a last axis of two."""
    return concatenate([expand_dims(high, high.ndim), expand_dims(low, low.ndim)], high.ndim)
