"""Activation functions: each works element by element and keeps shape and floating dtype."""

from __future__ import annotations

import math

from fiveloop.core import ArrayLike, Value
from fiveloop.core.extend import bind1
from fiveloop.core.primitives import elementwise as ew
from fiveloop.core.primitives import special as sp
from fiveloop.core.primitives.check import bad_value
from fiveloop.core.primitives.convert import operand, promote
from fiveloop.nn.composite import AxesParams, composite
from fiveloop.numpy.elementwise import logaddexp
from fiveloop.numpy.manipulation import split


def relu(x: ArrayLike) -> Value:
    """`max(x, 0)`, with derivative 0 at 0.

    >>> nn.relu(np.array([-1.0, 2.0]))
    Array([0., 2.], dtype=float64)
    """
    return bind1(relu_p, operand("relu", "x", x), params=AxesParams(()))


def _relu_derivative(t: Value, out: Value, axes: tuple[int, ...]) -> Value:
    return ew.select(ew.greater(out, 0), t, 0)


relu_p = composite("relu", lambda x, axes: ew.maximum(x, 0), _relu_derivative)


def relu6(x: ArrayLike) -> Value:
    """`min(max(x, 0), 6)`.

    >>> nn.relu6(np.array([-1.0, 7.0]))
    Array([0., 6.], dtype=float64)
    """
    return ew.minimum(relu(x), 6)


def leaky_relu(x: ArrayLike, negative_slope: float = 0.01) -> Value:
    """`x` where it is positive, `negative_slope * x` elsewhere.

    >>> nn.leaky_relu(np.array([-1.0, 2.0]), 0.5)
    Array([-0.5,  2. ], dtype=float64)
    """
    (value,) = promote("leaky_relu", x, inexact=True)
    return ew.select(ew.greater(value, 0), value, ew.mul(value, negative_slope))


def elu(x: ArrayLike, alpha: float = 1.0) -> Value:
    """`x` where it is positive, `alpha * (exp(x) - 1)` elsewhere.

    >>> nn.elu(np.array([0.0, 2.0]))
    Array([0., 2.], dtype=float64)
    """
    (value,) = promote("elu", x, inexact=True)
    positive = ew.greater(value, 0)
    # The exponential of a large positive number must not overflow in the branch that is not taken.
    return ew.select(positive, value, ew.mul(ew.expm1(ew.select(positive, 0, value)), alpha))


def selu(x: ArrayLike) -> Value:
    """The scaled exponential linear unit, which keeps mean 0 and variance 1 through layers.

    >>> nn.selu(np.array([0.0, 1.0]))
    Array([0.        , 1.05070099], dtype=float64)
    """
    return ew.mul(elu(x, 1.6732632423543772), 1.0507009873554805)


def gelu(x: ArrayLike, approximate: bool = True) -> Value:
    """`x` times the chance that a standard normal number is below `x`; by a tanh formula if `approximate`.

    >>> nn.gelu(np.array([0.0, 1.0]), approximate=False)
    Array([0.        , 0.84134475], dtype=float64)
    """
    (value,) = promote("gelu", x, inexact=True)
    if approximate:
        inner = ew.mul(
            ew.add(value, ew.mul(sp.integer_pow(value, 3), 0.044715)), math.sqrt(2 / math.pi)
        )
        return ew.mul(ew.mul(value, 0.5), ew.add(sp.tanh(inner), 1))
    return ew.mul(ew.mul(value, 0.5), sp.erfc(ew.mul(value, -math.sqrt(0.5))))


def sigmoid(x: ArrayLike) -> Value:
    """`1 / (1 + exp(-x))`.

    >>> nn.sigmoid(0.0)
    Array(0.5, dtype=float32, weak_type=True)
    """
    return sp.logistic(x)


def silu(x: ArrayLike) -> Value:
    """`x * sigmoid(x)`.

    >>> nn.silu(np.array([0.0, 1.0]))
    Array([0.        , 0.73105858], dtype=float64)
    """
    (value,) = promote("silu", x, inexact=True)
    return ew.mul(value, sp.logistic(value))


swish = silu


def softplus(x: ArrayLike) -> Value:
    """`log(1 + exp(x))`, without overflow.

    >>> nn.softplus(np.array([0.0, 1000.0]))
    Array([6.93147181e-01, 1.00000000e+03], dtype=float64)
    """
    return logaddexp(x, 0)


def log_sigmoid(x: ArrayLike) -> Value:
    """`log(sigmoid(x))`, without overflow.

    >>> nn.log_sigmoid(np.array([-1000.0]))
    Array([-1000.], dtype=float64)
    """
    (value,) = promote("log_sigmoid", x, inexact=True)
    return ew.neg(softplus(ew.neg(value)))


def soft_sign(x: ArrayLike) -> Value:
    """`x / (1 + abs(x))`.

    >>> nn.soft_sign(np.array([-1.0, 3.0]))
    Array([-0.5 ,  0.75], dtype=float64)
    """
    (value,) = promote("soft_sign", x, inexact=True)
    return ew.div(value, ew.add(ew.abs(value), 1))


def hard_tanh(x: ArrayLike) -> Value:
    """`x` held between -1 and 1.

    >>> nn.hard_tanh(np.array([-2.0, 0.5]))
    Array([-1. ,  0.5], dtype=float64)
    """
    return ew.maximum(ew.minimum(x, 1), -1)


def mish(x: ArrayLike) -> Value:
    """`x * tanh(softplus(x))`.

    >>> nn.mish(np.array([0.0, 1.0]))
    Array([0.        , 0.86509839], dtype=float64)
    """
    (value,) = promote("mish", x, inexact=True)
    return ew.mul(value, sp.tanh(softplus(value)))


def glu(x: ArrayLike, axis: int = -1) -> Value:
    """The first half along an axis times the sigmoid of the second. ValueError if the axis has no halves.

    >>> nn.glu(np.array([2.0, 0.0]))
    Array([1.], dtype=float64)
    """
    (value,) = promote("glu", x, inexact=True)
    if value.shape[axis] % 2:
        bad_value(f"glu: expected an even size along axis {axis}, got {value.aval}")
    first, second = split(value, 2, axis)
    return ew.mul(first, sp.logistic(second))
