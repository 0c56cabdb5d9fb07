"""Activation functions, all elementwise; they preserve shape and floating dtype."""

from __future__ import annotations

import math

from fiveloop.core import ArrayLike, Value, prims, trace
from fiveloop.core.primitives import special
from fiveloop.nn.composite import AxesParams, composite
from fiveloop.numpy import elementwise, manipulation


def relu(x: ArrayLike) -> Value:
    """`max(x, 0)`, with derivative 0 at 0.

    >>> nn.relu(np.array([-1.0, 2.0]))
    Array([0., 2.], dtype=float64)
    """
    return trace.bind1(relu_p, prims.operand("relu", "x", x), params=AxesParams(()))


def _relu_derivative(t: Value, out: Value, axes: tuple[int, ...]) -> Value:
    return prims.select(prims.greater(out, 0), t, 0)


relu_p = composite("relu", lambda x, axes: prims.maximum(x, 0), _relu_derivative)


def relu6(x: ArrayLike) -> Value:
    """`min(max(x, 0), 6)`.

    >>> nn.relu6(np.array([-1.0, 7.0]))
    Array([0., 6.], dtype=float64)
    """
    return prims.minimum(relu(x), 6)


def leaky_relu(x: ArrayLike, negative_slope: float = 0.01) -> Value:
    """`x` where it is not negative, `negative_slope * x` elsewhere.

    >>> nn.leaky_relu(np.array([-1.0, 2.0]), 0.5)
    Array([-0.5,  2. ], dtype=float64)
    """
    (value,) = prims.promote("leaky_relu", x, inexact=True)
    return prims.select(prims.less(value, 0), prims.mul(value, negative_slope), value)


def elu(x: ArrayLike, alpha: float = 1.0) -> Value:
    """`x` where it is positive, `alpha * (exp(x) - 1)` elsewhere.

    >>> nn.elu(np.array([0.0, 2.0]))
    Array([0., 2.], dtype=float64)
    """
    (value,) = prims.promote("elu", x, inexact=True)
    positive = prims.greater(value, 0)
    # The exponential of a large positive number must not overflow in the branch that is not taken.
    return prims.select(
        positive, value, prims.mul(prims.expm1(prims.select(positive, 0, value)), alpha)
    )


def selu(x: ArrayLike) -> Value:
    """The scaled exponential linear unit, which keeps mean 0 and variance 1 through layers.

    >>> nn.selu(np.array([0.0, 1.0]))
    Array([0.        , 1.05070099], dtype=float64)
    """
    return prims.mul(elu(x, 1.6732632423543772), 1.0507009873554805)


def gelu(x: ArrayLike, approximate: bool = True) -> Value:
    """`x` times the probability that a standard normal number is below `x`; by a tanh formula if `approximate`.

    >>> nn.gelu(np.array([0.0, 1.0]), approximate=False)
    Array([0.        , 0.84134475], dtype=float64)
    """
    (value,) = prims.promote("gelu", x, inexact=True)
    if approximate:
        inner = prims.mul(
            prims.add(value, prims.mul(special.integer_pow(value, 3), 0.044715)),
            math.sqrt(2 / math.pi),
        )
        return prims.mul(prims.mul(value, 0.5), prims.add(special.tanh(inner), 1))
    return prims.mul(prims.mul(value, 0.5), special.erfc(prims.mul(value, -math.sqrt(0.5))))


def erf(x: ArrayLike) -> Value:
    """The error function: `2 * normal(x * sqrt(2)) - 1` for the distribution function of standard normal numbers.

    >>> nn.erf(np.array([0.0, 1.0]))
    Array([0.        , 0.84270079], dtype=float64)
    """
    (value,) = prims.promote("erf", x, inexact=True)
    return special.erf(value)


def sigmoid(x: ArrayLike) -> Value:
    """`1 / (1 + exp(-x))`.

    >>> nn.sigmoid(0.0)
    Array(0.5, dtype=float32, weak_type=True)
    """
    return special.logistic(x)


def silu(x: ArrayLike) -> Value:
    """`x * sigmoid(x)`.

    >>> nn.silu(np.array([0.0, 1.0]))
    Array([0.        , 0.73105858], dtype=float64)
    """
    (value,) = prims.promote("silu", x, inexact=True)
    return prims.mul(value, special.logistic(value))


swish = silu


def softplus(x: ArrayLike) -> Value:
    """`log(1 + exp(x))`, without overflow.

    >>> nn.softplus(np.array([0.0, 1000.0]))
    Array([6.93147181e-01, 1.00000000e+03], dtype=float64)
    """
    return elementwise.logaddexp(x, 0)


def log_sigmoid(x: ArrayLike) -> Value:
    """`log(sigmoid(x))`, without overflow.

    >>> nn.log_sigmoid(np.array([-1000.0]))
    Array([-1000.], dtype=float64)
    """
    (value,) = prims.promote("log_sigmoid", x, inexact=True)
    return prims.neg(softplus(prims.neg(value)))


def soft_sign(x: ArrayLike) -> Value:
    """`x / (1 + abs(x))`.

    >>> nn.soft_sign(np.array([-1.0, 3.0]))
    Array([-0.5 ,  0.75], dtype=float64)
    """
    (value,) = prims.promote("soft_sign", x, inexact=True)
    return prims.div(value, prims.add(prims.abs(value), 1))


def hard_tanh(x: ArrayLike) -> Value:
    """`x` limited to the range from -1 to 1.

    >>> nn.hard_tanh(np.array([-2.0, 0.5]))
    Array([-1. ,  0.5], dtype=float64)
    """
    return prims.maximum(prims.minimum(x, 1), -1)


def hard_sigmoid(x: ArrayLike) -> Value:
    """`relu6(x + 3) / 6`, an approximation of `sigmoid` in straight lines.

    >>> nn.hard_sigmoid(np.array([-4.0, 0.0]))
    Array([0. , 0.5], dtype=float64)
    """
    (value,) = prims.promote("hard_sigmoid", x, inexact=True)
    return prims.div(relu6(prims.add(value, 3)), 6)


def hard_silu(x: ArrayLike) -> Value:
    """`x * hard_sigmoid(x)`.

    >>> nn.hard_silu(np.array([-4.0, 3.0]))
    Array([-0.,  3.], dtype=float64)
    """
    (value,) = prims.promote("hard_silu", x, inexact=True)
    return prims.mul(value, hard_sigmoid(value))


hard_swish = hard_silu


def mish(x: ArrayLike) -> Value:
    """`x * tanh(softplus(x))`.

    >>> nn.mish(np.array([0.0, 1.0]))
    Array([0.        , 0.86509839], dtype=float64)
    """
    (value,) = prims.promote("mish", x, inexact=True)
    return prims.mul(value, special.tanh(softplus(value)))


def glu(x: ArrayLike, axis: int = -1) -> Value:
    """The first half along an axis times the sigmoid of the second. ValueError if the axis has no halves.

    >>> nn.glu(np.array([2.0, 0.0]))
    Array([1.], dtype=float64)
    """
    (value,) = prims.promote("glu", x, inexact=True)
    if value.shape[axis] % 2:
        prims.bad_value(f"glu: expected an even size along axis {axis}, got {value.aval}")
    first, second = manipulation.split(value, 2, axis)
    return prims.mul(first, special.logistic(second))
