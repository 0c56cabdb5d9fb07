"""References of the primitives that run along an axis, sort, or make random bits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fiveloop.testing.core.oracle import define_reference

_Array = np.ndarray[Any, Any]
_WORD = 0xFFFFFFFF


def _wide(x: _Array) -> _Array:
    return x.astype(np.float32) if x.dtype.name in ("float16", "bfloat16") else x


def _running(step: Callable[..., Any], first: Any) -> Callable[..., list[_Array]]:
    """Results of `step(last result, element)` along the axis, in a plain loop."""

    def reference(values: Sequence[_Array], p: Any) -> list[_Array]:
        rows = [np.moveaxis(_wide(x), p.axis, 0) for x in values]
        out = np.zeros_like(rows[0])
        last = np.full(out.shape[1:], first).astype(out.dtype) if first is not None else None
        places = range(out.shape[0])
        for i in reversed(places) if p.reverse else places:
            if last is None:
                last = rows[0][i]
            else:
                last = np.asarray(step(last, *[x[i] for x in rows])).astype(out.dtype)
            out[i] = last
        return [np.moveaxis(out, 0, p.axis).astype(values[0].dtype)]

    return reference


define_reference("cumsum", _running(np.add, None))
define_reference("cumprod", _running(np.multiply, None))
define_reference("cummax", _running(np.maximum, None))
define_reference("cummin", _running(np.minimum, None))
define_reference("cumlogsumexp", _running(np.logaddexp, None))
define_reference("linear_recurrence", _running(lambda h, a, b: a * h + b, 0))


def _sort_rank(x: _Array) -> list[_Array]:
    """What a key is compared by: complex numbers by their parts, NaN as greater than all."""
    if x.dtype.kind == "c":
        return [*_sort_rank(x.real), *_sort_rank(x.imag)]
    if x.dtype.kind in "biu":
        return [x]
    finite = x.astype(np.float64)
    return [np.isnan(finite), np.where(np.isnan(finite), 0.0, finite)]


def _sort(values: Sequence[_Array], p: Any) -> list[_Array]:
    keys = [part for x in values[: p.num_keys] for part in _sort_rank(x)]
    order = np.lexsort(tuple(reversed(keys)), axis=p.axis)
    return [np.take_along_axis(x, order, p.axis) for x in values]


define_reference("sort", _sort)


def _top_k(values: Sequence[_Array], p: Any) -> list[_Array]:
    """The last of the ascending order of the reversed array, so that the first of equals comes first."""
    (x,) = values
    back = x[..., ::-1]
    keys = [np.zeros(1)] if x.dtype.kind in "iu" else [~np.signbit(back.astype(np.float64))]
    keys = [*_sort_rank(back), *np.broadcast_arrays(*keys, back)[:1]]
    order = np.lexsort(tuple(reversed(keys)), axis=-1)[..., ::-1][..., : p.k]
    places = x.shape[-1] - 1 - order
    return [np.take_along_axis(x, places, -1), places.astype(np.int32)]


define_reference("top_k", _top_k)


def _threefry(values: Sequence[_Array], p: Any) -> list[_Array]:
    """The cipher on Python integers, one counter at a time."""
    spread = np.broadcast_arrays(*values)
    words = [
        cipher(*[int(w) for w in one]) for one in zip(*[x.reshape(-1) for x in spread], strict=True)
    ]
    shape = spread[0].shape
    pairs = np.asarray(words, np.uint32).reshape(*shape, 2)
    return [pairs[..., 0].copy(), pairs[..., 1].copy()]


def cipher(k0: int, k1: int, x0: int, x1: int) -> tuple[int, int]:
    """Threefry of two words of 32 bits, in 20 rounds."""
    keys = (k0, k1, k0 ^ k1 ^ 0x1BD11BDA)
    x0, x1 = (x0 + k0) & _WORD, (x1 + k1) & _WORD
    for round_ in range(20):
        by = (13, 15, 26, 6, 17, 29, 16, 24)[round_ % 8]
        x0 = (x0 + x1) & _WORD
        x1 = (((x1 << by) | (x1 >> (32 - by))) & _WORD) ^ x0
        if round_ % 4 == 3:
            step = round_ // 4 + 1
            x0 = (x0 + keys[step % 3]) & _WORD
            x1 = (x1 + keys[(step + 1) % 3] + step) & _WORD
    return x0, x1


define_reference("threefry2x32", _threefry)
