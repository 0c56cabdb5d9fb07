"""StableHLO operations that move, make or join elements without looking at their values."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import DTypeLike

from .hlo_builder import Builder, IRValue, int_list, names, tensor_type, types


def iota(b: Builder, shape: Sequence[int], dtype: DTypeLike, dimension: int) -> IRValue:
    """An array that counts 0, 1, 2, ... along one dimension."""
    out = np.dtype(dtype)
    text = f"stablehlo.iota dim = {dimension} : {tensor_type(shape, out)}"
    return b.emit(text, tuple(shape), out)


def broadcast_in_dim(b: Builder, x: IRValue, shape: Sequence[int], dims: Sequence[int]) -> IRValue:
    """`x` repeated to `shape`; axis k of `x` becomes axis `dims[k]`."""
    out = tuple(shape)
    if out == x.shape and tuple(dims) == tuple(range(len(out))):
        return x
    text = f"stablehlo.broadcast_in_dim {x.name}, dims = {int_list(dims)}"
    return b.emit(f"{text} : ({x.type}) -> {tensor_type(out, x.dtype)}", out, x.dtype)


def reshape(b: Builder, x: IRValue, shape: Sequence[int]) -> IRValue:
    """The same elements, in row-major order, under another shape."""
    out = tuple(shape)
    if out == x.shape:
        return x
    text = f"stablehlo.reshape {x.name} : ({x.type}) -> {tensor_type(out, x.dtype)}"
    return b.emit(text, out, x.dtype)


def transpose(b: Builder, x: IRValue, perm: Sequence[int]) -> IRValue:
    """Axes reordered: axis k of the result is axis `perm[k]` of `x`."""
    if tuple(perm) == tuple(range(len(x.shape))):
        return x
    shape = tuple([x.shape[p] for p in perm])
    text = f"stablehlo.transpose {x.name}, dims = {int_list(perm)}"
    return b.emit(f"{text} : ({x.type}) -> {tensor_type(shape, x.dtype)}", shape, x.dtype)


def reverse(b: Builder, x: IRValue, dims: Sequence[int]) -> IRValue:
    """The order of elements turned round along `dims`."""
    if not len(dims):
        return x
    text = f"stablehlo.reverse {x.name}, dims = {int_list(dims)} : {x.type}"
    return b.emit(text, x.shape, x.dtype)


def concatenate(b: Builder, xs: Sequence[IRValue], dim: int) -> IRValue:
    """Arrays joined end to end along one dimension."""
    if len(xs) == 1:
        return xs[0]
    shape = list(xs[0].shape)
    shape[dim] = sum([x.shape[dim] for x in xs])
    out = tensor_type(shape, xs[0].dtype)
    text = f"stablehlo.concatenate {names(xs)}, dim = {dim} : ({types(xs)}) -> {out}"
    return b.emit(text, tuple(shape), xs[0].dtype)


def pad(
    b: Builder,
    x: IRValue,
    value: IRValue,
    low: Sequence[int],
    high: Sequence[int],
    interior: Sequence[int],
) -> IRValue:
    """`x` with a scalar put around and between its elements; negative amounts cut."""
    shape = tuple(
        [
            lo + hi + size + max(size - 1, 0) * inner
            for size, lo, hi, inner in zip(x.shape, low, high, interior, strict=True)
        ]
    )
    amounts = f"low = {int_list(low)}, high = {int_list(high)}, interior = {int_list(interior)}"
    signature = f"({x.type}, {value.type}) -> {tensor_type(shape, x.dtype)}"
    return b.emit(f"stablehlo.pad {x.name}, {value.name}, {amounts} : {signature}", shape, x.dtype)
