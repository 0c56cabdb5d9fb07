"""Initial parameters: each function here gives an initialiser, `init(key, shape, dtype) -> array`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from fiveloop.core import ArrayLike, Value
from fiveloop.core.dims import size_of
from fiveloop.core.engine import show_public_names as _show_public_names
from fiveloop.core.primitives import elementwise as ew
from fiveloop.core.primitives.check import bad_value, canonical_axes
from fiveloop.numpy import creation
from fiveloop.random import continuous as rc

__all__ = [
    "Initializer",
    "constant",
    "glorot_normal",
    "glorot_uniform",
    "he_normal",
    "he_uniform",
    "lecun_normal",
    "lecun_uniform",
    "normal",
    "ones",
    "truncated_normal",
    "uniform",
    "variance_scaling",
    "zeros",
]
_show_public_names(globals())

Initializer: TypeAlias = Callable[..., Value]
Mode = Literal["fan_in", "fan_out", "fan_avg"]
Distribution = Literal["truncated_normal", "normal", "uniform"]
_TRUNCATED_SPREAD = 0.87962566103423978
"""The standard deviation of a standard normal number, given that it lies within two of the mean."""


def zeros(key: ArrayLike, shape: Any, dtype: Any = np.float32) -> Value:
    """Zeros; an initialiser itself.

    >>> nn.initializers.zeros(random.key(0), (2,))
    Array([0., 0.], dtype=float32)
    """
    return creation.zeros(shape, dtype)


def ones(key: ArrayLike, shape: Any, dtype: Any = np.float32) -> Value:
    """Ones; an initialiser itself.

    >>> nn.initializers.ones(random.key(0), (2,))
    Array([1., 1.], dtype=float32)
    """
    return creation.ones(shape, dtype)


def constant(value: ArrayLike) -> Initializer:
    """An initialiser that gives one value everywhere.

    >>> nn.initializers.constant(0.5)(random.key(0), (2,))
    Array([0.5, 0.5], dtype=float32)
    """

    def init(key: ArrayLike, shape: Any, dtype: Any = np.float32) -> Value:
        return creation.full(shape, value, dtype)

    return init


def normal(stddev: float = 0.01) -> Initializer:
    """An initialiser that draws normal numbers with a standard deviation.

    >>> nn.initializers.normal()(random.key(0), (2, 3)).shape
    (2, 3)
    """

    def init(key: ArrayLike, shape: Any, dtype: Any = np.float32) -> Value:
        return ew.mul(rc.normal(key, shape, dtype), stddev)

    return init


def uniform(scale: float = 0.01) -> Initializer:
    """An initialiser that draws numbers in `[0, scale)`, equally likely.

    >>> nn.initializers.uniform()(random.key(0), (2, 3)).shape
    (2, 3)
    """

    def init(key: ArrayLike, shape: Any, dtype: Any = np.float32) -> Value:
        return rc.uniform(key, shape, dtype, 0.0, scale)

    return init


def truncated_normal(stddev: float = 0.01, lower: float = -2.0, upper: float = 2.0) -> Initializer:
    """An initialiser that draws normal numbers within bounds, then multiplies them by `stddev`.

    >>> nn.initializers.truncated_normal()(random.key(0), (2, 3)).shape
    (2, 3)
    """

    def init(key: ArrayLike, shape: Any, dtype: Any = np.float32) -> Value:
        return ew.mul(rc.truncated_normal(key, lower, upper, shape, dtype), stddev)

    return init


def variance_scaling(
    scale: float,
    mode: Mode = "fan_in",
    distribution: Distribution = "truncated_normal",
    in_axis: int | Sequence[int] = -2,
    out_axis: int | Sequence[int] = -1,
    batch_axis: Sequence[int] = (),
) -> Initializer:
    """An initialiser that draws with variance `scale` over the number of inputs, of outputs, or their mean.

    The axes that are neither `in_axis`, `out_axis` nor `batch_axis` (stacked layers, say) count as the
    receptive field, for both numbers.

    >>> nn.initializers.variance_scaling(1.0)(random.key(0), (64, 32)).shape
    (64, 32)
    """
    if mode not in ("fan_in", "fan_out", "fan_avg"):
        bad_value(
            f"variance_scaling: expected `mode` to be fan_in, fan_out or fan_avg, got {mode!r}"
        )

    def init(key: ArrayLike, shape: Any, dtype: Any = np.float32) -> Value:
        fan_in, fan_out = _fans(tuple(shape), in_axis, out_axis, batch_axis)
        count = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}[mode]
        return _spread(key, shape, dtype, math.sqrt(scale / max(count, 1)), distribution)

    return init


def _fans(
    shape: tuple[int, ...], in_axis: Any, out_axis: Any, batch_axis: Sequence[int]
) -> tuple[float, float]:
    if len(shape) < 2:
        bad_value(f"variance_scaling: expected a shape with at least two axes, got {shape}")
    ins, outs, lanes = (
        canonical_axes("variance_scaling", axes, len(shape))
        for axes in (in_axis, out_axis, batch_axis)
    )
    rest = [k for k in range(len(shape)) if k not in (*ins, *outs, *lanes)]
    field = size_of([shape[k] for k in rest])
    return field * size_of([shape[k] for k in ins]), field * size_of([shape[k] for k in outs])


def _spread(key: ArrayLike, shape: Any, dtype: Any, stddev: float, distribution: str) -> Value:
    match distribution:
        case "normal":
            return ew.mul(rc.normal(key, shape, dtype), stddev)
        case "uniform":
            bound = math.sqrt(3.0) * stddev
            return rc.uniform(key, shape, dtype, -bound, bound)
        case "truncated_normal":
            drawn = rc.truncated_normal(key, -2.0, 2.0, shape, dtype)
            return ew.mul(drawn, stddev / _TRUNCATED_SPREAD)
        case _:
            bad_value(
                "variance_scaling: expected `distribution` to be normal, uniform or truncated_normal, "
                f"got {distribution!r}"
            )


def glorot_uniform(**axes: Any) -> Initializer:
    """Uniform draws with variance 2 over the sum of the numbers of inputs and outputs.

    >>> nn.initializers.glorot_uniform()(random.key(0), (4, 4)).shape
    (4, 4)
    """
    return variance_scaling(1.0, "fan_avg", "uniform", **axes)


def glorot_normal(**axes: Any) -> Initializer:
    """Truncated normal draws with variance 2 over the sum of the numbers of inputs and outputs.

    >>> nn.initializers.glorot_normal()(random.key(0), (4, 4)).shape
    (4, 4)
    """
    return variance_scaling(1.0, "fan_avg", "truncated_normal", **axes)


def lecun_normal(**axes: Any) -> Initializer:
    """Truncated normal draws with variance 1 over the number of inputs.

    >>> nn.initializers.lecun_normal()(random.key(0), (4, 4)).shape
    (4, 4)
    """
    return variance_scaling(1.0, "fan_in", "truncated_normal", **axes)


def lecun_uniform(**axes: Any) -> Initializer:
    """Uniform draws with variance 1 over the number of inputs.

    >>> nn.initializers.lecun_uniform()(random.key(0), (4, 4)).shape
    (4, 4)
    """
    return variance_scaling(1.0, "fan_in", "uniform", **axes)


def he_normal(**axes: Any) -> Initializer:
    """Truncated normal draws with variance 2 over the number of inputs: for ReLU layers.

    >>> nn.initializers.he_normal()(random.key(0), (4, 4)).shape
    (4, 4)
    """
    return variance_scaling(2.0, "fan_in", "truncated_normal", **axes)


def he_uniform(**axes: Any) -> Initializer:
    """Uniform draws with variance 2 over the number of inputs: for ReLU layers.

    >>> nn.initializers.he_uniform()(random.key(0), (4, 4)).shape
    (4, 4)
    """
    return variance_scaling(2.0, "fan_in", "uniform", **axes)
