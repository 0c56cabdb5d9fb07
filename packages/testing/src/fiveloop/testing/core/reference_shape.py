"""References of the primitives that move elements, reduce axes or contract them, and of calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fiveloop.testing.core.oracle import Run, define_nested_reference, define_reference

_Array = np.ndarray[Any, Any]


def _broadcast_in_dim(values: Sequence[_Array], p: Any) -> list[_Array]:
    (x,) = values
    shape = [1] * len(p.shape)
    for size, axis in zip(x.shape, p.dims, strict=True):
        shape[axis] = size
    return [np.broadcast_to(x.reshape(shape), p.shape).copy()]


define_reference("broadcast_in_dim", _broadcast_in_dim)
define_reference("reshape", lambda values, p: [values[0].reshape(p.shape).copy()])
define_reference("transpose", lambda values, p: [np.transpose(values[0], p.perm).copy()])


def _wide(x: _Array) -> _Array:
    return x.astype(np.float32) if x.dtype.name in ("float16", "bfloat16") else x


def _reduce_sum(values: Sequence[_Array], p: Any) -> list[_Array]:
    (x,) = values
    return [np.asarray(np.sum(_wide(x), axis=tuple(p.axes), dtype=_wide(x).dtype)).astype(x.dtype)]


define_reference("reduce_sum", _reduce_sum)


def _reverse(values: Sequence[_Array], p: Any) -> list[_Array]:
    return [np.flip(values[0], axis=tuple(p.axes)).copy()]


def _pad(values: Sequence[_Array], p: Any) -> list[_Array]:
    x, value = values
    amounts = list(zip(x.shape, p.low, p.high, p.interior, strict=True))
    spread = [max(0, d + (d - 1) * gap) for d, _, _, gap in amounts]
    wide = [max(0, lo) + n + max(0, hi) for n, (_, lo, hi, _) in zip(spread, amounts, strict=True)]
    out = np.full(wide, value, x.dtype)
    inside = tuple(
        slice(max(0, lo), max(0, lo) + n, gap + 1)
        for n, (_, lo, _, gap) in zip(spread, amounts, strict=True)
    )
    out[inside] = x
    kept = tuple(
        slice(max(0, -lo), n - max(0, -hi)) for n, (_, lo, hi, _) in zip(wide, amounts, strict=True)
    )
    return [out[kept].copy()]


def _iota(values: Sequence[_Array], p: Any) -> list[_Array]:
    shape = [1] * len(p.shape)
    shape[p.axis] = p.shape[p.axis]
    return [np.broadcast_to(np.arange(p.shape[p.axis]).reshape(shape), p.shape).astype(p.dtype)]


def _split(values: Sequence[_Array], p: Any) -> list[_Array]:
    (x,) = values
    places = np.cumsum(p.sizes)[:-1]
    return [part.copy() for part in np.split(x, places, p.axis)]


define_reference("reverse", _reverse)
define_reference("pad", _pad)
define_reference("concatenate", lambda values, p: [np.concatenate(values, p.axis)])
define_reference("split", _split)
define_reference("iota", _iota)


def _reduction(fn: Any) -> Any:
    return lambda values, p: [np.asarray(fn(values[0], axis=tuple(p.axes))).astype(values[0].dtype)]


def _reduce_prod(values: Sequence[_Array], p: Any) -> list[_Array]:
    (x,) = values
    return [np.asarray(np.prod(_wide(x), axis=tuple(p.axes), dtype=_wide(x).dtype)).astype(x.dtype)]


def _arg(fn: Any) -> Any:
    return lambda values, p: [np.asarray(fn(values[0], axis=p.axis)).astype(p.index_dtype)]


define_reference("reduce_prod", _reduce_prod)
define_reference("reduce_max", _reduction(np.max))
define_reference("reduce_min", _reduction(np.min))
define_reference("reduce_and", _reduction(np.all))
define_reference("reduce_or", _reduction(np.any))
define_reference("argmax", _arg(np.argmax))
define_reference("argmin", _arg(np.argmin))


def _dot_general(values: Sequence[_Array], p: Any) -> list[_Array]:
    x, y = values
    (contract_x, contract_y), (batch_x, batch_y) = p.contract, p.batch
    labels_x = list(range(x.ndim))
    labels_y = [x.ndim + k for k in range(y.ndim)]
    for i, j in (*zip(contract_x, contract_y, strict=True), *zip(batch_x, batch_y, strict=True)):
        labels_y[j] = labels_x[i]
    batch = [labels_x[k] for k in batch_x]
    gone = {*batch, *[labels_x[k] for k in contract_x]}
    free = [k for k in (*labels_x, *labels_y) if k not in gone]
    out_dtype = p.out_dtype if p.out_dtype is not None else x.dtype
    wide = np.promote_types(_wide(x).dtype, _wide(np.zeros((), out_dtype)).dtype)
    out = np.einsum(x.astype(wide), labels_x, y.astype(wide), labels_y, [*batch, *free])
    return [np.asarray(out).astype(out_dtype)]


define_reference("dot_general", _dot_general)


def _closed_call(values: Sequence[Any], p: Any, run: Run) -> list[Any]:
    return run(p.jaxpr, values)


define_nested_reference("closed_call", _closed_call)


def _custom_rule(values: Sequence[Any], p: Any, run: Run) -> list[Any]:
    return run(p.called, values)


define_nested_reference("custom_rule", _custom_rule)
define_reference("order", lambda values, p: list(values[1:]))
define_reference("barrier", lambda values, p: list(values))
define_reference("to_memory", lambda values, p: list(values))
