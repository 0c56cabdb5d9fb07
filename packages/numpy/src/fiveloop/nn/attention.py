"""Attention: averages of values, weighted by the match of queries and keys."""

from __future__ import annotations

import math

import numpy as np

from fiveloop.core import ArrayLike, Value, prims
from fiveloop.nn.normalisation import softmax
from fiveloop.numpy.einsum import einsum


def dot_product_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    *,
    bias: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    scale: float | None = None,
    is_causal: bool = False,
) -> Value:
    """Values mixed for each query by the softmax of its scaled products with the keys.

    query : [..., time, heads, width]; key, value : [..., span, heads_kv, width]; the result is like query,
    with the width of value. `heads_kv` divides `heads`: each key serves as many heads in a row. `bias`, added
    to the scores, and `mask`, of bools that say which are seen, broadcast to [..., heads, time, span]; with
    `is_causal` a query sees keys up to its own place. `scale` is `width ** -0.5` unless given. A query that
    sees nothing gets zeros. ValueError if shapes do not fit.

    >>> x = np.ones((1, 2, 1, 4), np.float32)
    >>> nn.dot_product_attention(x, x, x, is_causal=True).shape
    (1, 2, 1, 4)
    """
    q, k, v = prims.promote("dot_product_attention", query, key, value, inexact=True)
    groups = _check_shapes(q, k, v)
    lead, (time, heads, width) = q.shape[:-3], q.shape[-3:]
    split_q = q.reshape((*lead, time, heads // groups, groups, width))
    scores = einsum("...tkgd,...skd->...kgts", split_q, k)
    span = k.shape[-3]
    scores = prims.mul(scores, width**-0.5 if scale is None else scale).reshape(
        (*lead, heads, time, span)
    )
    if bias is not None:
        scores = prims.add(scores, bias)
    seen = _seen(mask, is_causal, time, span)
    weights = softmax(scores) if seen is None else _masked_softmax(scores, seen)
    weights = weights.reshape((*lead, heads // groups, groups, time, span))
    out = einsum("...kgts,...skd->...tkgd", prims.convert(weights, v.dtype), v)
    return out.reshape((*lead, time, heads, v.shape[-1]))


def _check_shapes(q: Value, k: Value, v: Value) -> int:
    """How many query heads share a key head."""
    ranks = q.ndim == k.ndim == v.ndim >= 3
    if (
        not ranks
        or q.shape[:-3] != k.shape[:-3]
        or k.shape[:-1] != v.shape[:-1]
        or q.shape[-1] != k.shape[-1]
    ):
        prims.bad_value(
            "dot_product_attention: expected query [..., time, heads, width] and key and value "
            f"[..., span, heads_kv, width], got {q.aval}, {k.aval} and {v.aval}"
        )
    heads, heads_kv = q.shape[-2], k.shape[-2]
    if heads_kv == 0 or heads % heads_kv:
        prims.bad_value(
            f"dot_product_attention: expected the number of key heads to divide that of query heads, "
            f"got {heads_kv} and {heads}"
        )
    return heads // heads_kv


def _seen(mask: ArrayLike | None, is_causal: bool, time: int, span: int) -> Value | None:
    seen = None if mask is None else prims.operand("dot_product_attention", "mask", mask)
    if not is_causal:
        return seen
    rows, columns = prims.iota(np.int32, (time, span), 0), prims.iota(np.int32, (time, span), 1)
    causal = prims.greater_equal(rows, columns)
    return causal if seen is None else prims.bitwise_and(seen, causal)


def _masked_softmax(scores: Value, seen: Value) -> Value:
    weights = softmax(prims.select(seen, scores, -math.inf))
    return prims.select(seen, weights, 0)
