"""Builders of contractions.

XLA copies an operand with several contracted axes, or several free ones behind a contracted one, into the order in
which it multiplies matrices. Axes that lie beside each other are one axis to the hardware: merged, nothing is copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

import numpy as np
from numpy.typing import DTypeLike

from .hlo_builder import Builder, IRValue, int_list, tensor_type
from .hlo_shape import reshape

Run = tuple[int, ...]
"""Axes that lie beside each other."""


def dot_general(
    b: Builder,
    x: IRValue,
    y: IRValue,
    lhs_batch: Sequence[int],
    rhs_batch: Sequence[int],
    lhs_contract: Sequence[int],
    rhs_contract: Sequence[int],
    out_dtype: DTypeLike,
    precision: str | tuple[str, str] | None = None,
) -> IRValue:
    """Products summed over contracted axes: batch axes first, then those of `x`, then of `y`."""
    free_x = _free(x, [*lhs_batch, *lhs_contract])
    free_y = _free(y, [*rhs_batch, *rhs_contract])
    shape = (
        *[x.shape[k] for k in lhs_batch],
        *[x.shape[k] for k in free_x],
        *[y.shape[k] for k in free_y],
    )
    pairs = sorted(zip(lhs_contract, rhs_contract, strict=True))
    if not _is_copied(x, y, len(lhs_batch), pairs):
        axes = lhs_batch, rhs_batch, lhs_contract, rhs_contract
        return _product(b, x, y, axes, shape, out_dtype, precision)
    contracted = _runs_of_pairs(pairs)
    x, place_x = _merged(
        b, x, [*[(k,) for k in lhs_batch], *[c[0] for c in contracted], *_runs(free_x)]
    )
    y, place_y = _merged(
        b, y, [*[(k,) for k in rhs_batch], *[c[1] for c in contracted], *_runs(free_y)]
    )
    merged = (
        [place_x[k] for k in lhs_batch],
        [place_y[k] for k in rhs_batch],
        [place_x[c[0][0]] for c in contracted],
        [place_y[c[1][0]] for c in contracted],
    )
    sizes = (
        *[x.shape[k] for k in merged[0]],
        *[x.shape[k] for k in _free(x, [*merged[0], *merged[2]])],
        *[y.shape[k] for k in _free(y, [*merged[1], *merged[3]])],
    )
    return reshape(b, _product(b, x, y, merged, sizes, out_dtype, precision), shape)


def _product(
    b: Builder,
    x: IRValue,
    y: IRValue,
    axes: tuple[Sequence[int], Sequence[int], Sequence[int], Sequence[int]],
    shape: Sequence[int],
    out_dtype: DTypeLike,
    precision: str | tuple[str, str] | None,
) -> IRValue:
    lhs_batch, rhs_batch, lhs_contract, rhs_contract = axes
    out = np.dtype(out_dtype)
    parts = [f"stablehlo.dot_general {x.name}, {y.name}"]
    if len(lhs_batch):
        parts.append(f"batching_dims = {int_list(lhs_batch)} x {int_list(rhs_batch)}")
    parts.append(f"contracting_dims = {int_list(lhs_contract)} x {int_list(rhs_contract)}")
    if precision is not None:
        pair = (precision, precision) if isinstance(precision, str) else precision
        parts.append(f"precision = [{pair[0]}, {pair[1]}]")
    signature = f"({x.type}, {y.type}) -> {tensor_type(shape, out)}"
    return b.emit(f"{', '.join(parts)} : {signature}", tuple(shape), out)


def _free(x: IRValue, used: Iterable[int]) -> list[int]:
    gone = set(used)
    return [k for k in range(len(x.shape)) if k not in gone]


def _is_copied(x: IRValue, y: IRValue, batch: int, pairs: Sequence[tuple[int, int]]) -> bool:
    """Whether operands have axes to merge and do not lie as matrices do: contracted last in `x`, first in `y`."""
    if not all(isinstance(n, int) for n in (*x.shape, *y.shape)):
        return False
    rank_x, num = len(x.shape), len(pairs)
    lies = [(rank_x - num + k, batch + k) for k in range(num)]
    rests = (rank_x - batch - num, len(y.shape) - batch - num)
    return list(pairs) != lies and (num > 1 or max(rests) > 1)


def _runs(axes: Iterable[int]) -> list[Run]:
    found: list[Run] = []
    for k in axes:
        if found and found[-1][-1] + 1 == k:
            found[-1] = (*found[-1], k)
        else:
            found.append((k,))
    return found


def _runs_of_pairs(pairs: Iterable[tuple[int, int]]) -> list[tuple[Run, Run]]:
    """Runs in both operands at once."""
    found: list[tuple[Run, Run]] = []
    for j, k in pairs:
        if found and (found[-1][0][-1] + 1, found[-1][1][-1] + 1) == (j, k):
            found[-1] = (*found[-1][0], j), (*found[-1][1], k)
        else:
            found.append(((j,), (k,)))
    return found


def _merged(b: Builder, x: IRValue, runs: Sequence[Run]) -> tuple[IRValue, dict[int, int]]:
    """An operand with each run as one axis; and which axis the first of a run has become."""
    order = sorted(runs)
    sizes = [prod(x.shape[k] for k in run) for run in order]
    return reshape(b, x, sizes), {run[0]: k for k, run in enumerate(order)}
