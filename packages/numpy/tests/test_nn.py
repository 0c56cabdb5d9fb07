"""Functions of neural networks equal their formulas in NumPy, at the edges too, and have derivatives."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiveloop import nn, random
from fiveloop import numpy as fnp
from fiveloop.core import grad, jit, make_jaxpr, vmap
from fiveloop.core.extend import as_value
from fiveloop.core.inspect import row
from fiveloop.core.rules import written_out_rules
from fiveloop.core.transforms import equation_cost, eval_jaxpr, jaxpr_cost

RNG = np.random.default_rng(0)
X = RNG.uniform(-4, 4, (5, 6))
ERF = np.vectorize(math.erf)


def sigmoid(x: Any) -> Any:
    """The logistic function."""
    return 1 / (1 + np.exp(-x))


FORMULAS: dict[str, Callable[[Any], Any]] = {
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "leaky_relu": lambda x: np.where(x > 0, x, 0.01 * x),
    "elu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "selu": lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x)),
    "gelu": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "sigmoid": sigmoid,
    "silu": lambda x: x * sigmoid(x),
    "softplus": lambda x: np.log1p(np.exp(x)),
    "log_sigmoid": lambda x: np.log(sigmoid(x)),
    "soft_sign": lambda x: x / (1 + np.abs(x)),
    "hard_tanh": lambda x: np.clip(x, -1, 1),
    "erf": ERF,
    "hard_sigmoid": lambda x: np.clip(x + 3, 0, 6) / 6,
    "hard_silu": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "mish": lambda x: x * np.tanh(np.log1p(np.exp(x))),
    "glu": lambda x: x[..., :3] * sigmoid(x[..., 3:]),
    "softmax": lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True),
    "log_softmax": lambda x: x - np.log(np.exp(x).sum(-1, keepdims=True)),
    "logsumexp": lambda x: np.log(np.exp(x).sum()),
    "standardize": lambda x: (
        (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    ),
    "layer_norm": lambda x: (
        (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    ),
    "rms_norm": lambda x: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_formulas_and_their_derivatives(name: str) -> None:
    fun, formula = getattr(nn, name), FORMULAS[name]
    np.testing.assert_allclose(fun(X), formula(X), rtol=1e-10)
    assert fun(X.astype(np.float32)).dtype == np.float32
    weights = RNG.standard_normal(formula(X).shape)
    got = np.asarray(jit(grad(lambda x: (fun(x) * weights).sum()))(X))
    eps, direction = 1e-6, RNG.standard_normal(X.shape)
    ahead, behind = formula(X + eps * direction), formula(X - eps * direction)
    slope = ((ahead - behind) * weights).sum() / (2 * eps)
    np.testing.assert_allclose((got * direction).sum(), slope, rtol=1e-6, atol=1e-7)


def test_exact_gelu() -> None:
    np.testing.assert_allclose(
        nn.gelu(X, approximate=False), 0.5 * X * (1 + ERF(X / math.sqrt(2))), rtol=1e-6
    )


def test_slopes_of_leaky_relu() -> None:
    slopes = [grad(lambda x: nn.leaky_relu(x, 0.25))(x).item() for x in (-1.0, 0.0, 1.0)]
    assert slopes == [0.25, 1, 1]


def test_relu_has_derivative_zero_at_zero() -> None:
    np.testing.assert_array_equal(
        grad(lambda x: nn.relu(x).sum())(np.array([-1.0, 0.0, 1.0])), [0, 0, 1]
    )


def test_large_numbers_do_not_overflow() -> None:
    x = np.array([1e4, 0.0, -1e4])
    np.testing.assert_allclose(nn.softmax(x), [1, 0, 0])
    np.testing.assert_allclose(nn.log_softmax(x), [0, -1e4, -2e4])
    np.testing.assert_allclose(nn.logsumexp(x), 1e4)
    np.testing.assert_allclose(nn.softplus(x), [1e4, math.log(2), 0])
    for fun in (nn.softplus, nn.elu, nn.selu, nn.logsumexp, nn.silu, nn.mish):
        slope = np.asarray(grad(lambda x, fun=fun: fun(x).sum())(x))
        assert np.isfinite(slope).all(), fun.__name__
    np.testing.assert_array_equal(nn.logsumexp(np.array([-np.inf, -np.inf])), -np.inf)
    np.testing.assert_array_equal(nn.logsumexp(np.array([np.inf, 0.0])), np.inf)


def test_sums_of_exponentials_of_nothing_and_of_complex_numbers() -> None:
    assert nn.softmax(np.ones((2, 0))).shape == nn.log_softmax(np.ones((2, 0))).shape == (2, 0)
    np.testing.assert_array_equal(nn.logsumexp(np.ones((2, 0)), axis=1), [-np.inf] * 2)
    z = np.array([1 + 1j, 2 - 3j])
    np.testing.assert_allclose(nn.logsumexp(z), np.log(np.exp(z).sum()))
    np.testing.assert_allclose(nn.logsumexp(z + 1000), np.log(np.exp(z).sum()) + 1000)


def test_elements_left_out_of_a_softmax() -> None:
    seen = np.array([True, False, True])
    x = np.array([0.0, 1e9, 0.0])
    np.testing.assert_allclose(nn.softmax(x, where=seen), [0.5, 0, 0.5])
    np.testing.assert_array_equal(nn.log_softmax(x, where=np.zeros(3, np.bool_)), [-np.inf] * 3)
    np.testing.assert_allclose(nn.logsumexp(x, where=seen), math.log(2))
    slope = grad(lambda x: (nn.softmax(x, where=seen) * np.arange(3.0)).sum())(
        np.array([1.0, np.nan, 2.0])
    )
    assert np.isfinite(np.asarray(slope)).all()


def test_one_hot() -> None:
    x = np.array([2, 0, 5, -1])
    np.testing.assert_array_equal(nn.one_hot(x, 3), [[0, 0, 1], [1, 0, 0], [0, 0, 0], [0, 0, 0]])
    np.testing.assert_array_equal(nn.one_hot(x, 3, axis=0), np.asarray(nn.one_hot(x, 3)).T)
    assert np.asarray(nn.one_hot(np.array([3], np.uint8), 600)).sum() == 1
    with pytest.raises(TypeError, match="one_hot: expected integers, got f64"):
        nn.one_hot(np.ones(2), 3)


def test_norms_scale_and_shift() -> None:
    scale, bias = RNG.standard_normal((2, 6))
    plain = FORMULAS["layer_norm"](X)
    np.testing.assert_allclose(nn.layer_norm(X, scale, bias), plain * scale + bias, rtol=1e-10)
    np.testing.assert_allclose(nn.rms_norm(X, scale), FORMULAS["rms_norm"](X) * scale, rtol=1e-10)


def attention(q: Any, k: Any, v: Any, seen: Any) -> Any:
    """Attention written out, head by head."""
    out = np.zeros((*q.shape[:-1], v.shape[-1]))
    group = q.shape[2] // k.shape[2]
    for b, h in np.ndindex(q.shape[0], q.shape[2]):
        scores = q[b, :, h] @ k[b, :, h // group].T / math.sqrt(q.shape[-1])
        powers = np.where(seen, np.exp(scores), 0)
        total = powers.sum(-1, keepdims=True)
        out[b, :, h] = powers / np.where(total == 0, 1, total) @ v[b, :, h // group]
    return out


def test_attention_equals_the_formula() -> None:
    q, k, v = (RNG.standard_normal((2, n, heads, 4)) for n, heads in ((3, 4), (5, 2), (5, 2)))
    everything = np.ones((3, 5), bool)
    np.testing.assert_allclose(
        nn.dot_product_attention(q, k, v), attention(q, k, v, everything), rtol=1e-10
    )
    causal = np.tril(everything)
    np.testing.assert_allclose(
        nn.dot_product_attention(q, k, v, is_causal=True), attention(q, k, v, causal), rtol=1e-10
    )
    mask = RNG.random((3, 5)) > 0.5
    mask[1] = False
    got = nn.dot_product_attention(q, k, v, mask=mask)
    np.testing.assert_allclose(got, attention(q, k, v, mask), rtol=1e-10)
    slope = grad(lambda q: nn.dot_product_attention(q, k, v, mask=mask).sum())(q)
    assert np.isfinite(np.asarray(slope)).all()
    one_by_one = vmap(nn.dot_product_attention)(q[:, None], k[:, None], v[:, None])
    np.testing.assert_allclose(one_by_one[:, 0], attention(q, k, v, everything), rtol=1e-10)


def test_attention_checks_shapes() -> None:
    q = np.ones((2, 3, 4, 8))
    with pytest.raises(ValueError, match="expected query"):
        nn.dot_product_attention(q, q, np.ones((2, 5, 4, 8)))
    with pytest.raises(ValueError, match="to divide that of query heads, got 3 and 4"):
        nn.dot_product_attention(q, q[:, :, :3], q[:, :, :3])


@pytest.mark.parametrize(
    ("init", "variance"),
    [
        (nn.initializers.normal(0.5), 0.25),
        (nn.initializers.lecun_normal(), 1 / 200),
        (nn.initializers.lecun_uniform(), 1 / 200),
        (nn.initializers.he_normal(), 2 / 200),
        (nn.initializers.he_uniform(), 2 / 200),
        (nn.initializers.glorot_normal(), 2 / 300),
        (nn.initializers.glorot_uniform(), 2 / 300),
        (nn.initializers.variance_scaling(3.0, "fan_out", "normal"), 3 / 100),
        (nn.initializers.uniform(1.0), 1 / 12),
    ],
)
def test_initialisers_have_their_variance(init: Any, variance: float) -> None:
    x = np.asarray(init(random.key(1), (200, 100)))
    assert x.dtype == np.float32
    np.testing.assert_allclose(x.var(), variance, rtol=0.05)


def test_initialisers_of_stacked_layers_and_kernels() -> None:
    stacked = nn.initializers.lecun_normal(batch_axis=(0,))(random.key(2), (10, 50, 40))
    np.testing.assert_allclose(np.asarray(stacked).var(), 1 / 50, rtol=0.05)
    kernel = nn.initializers.he_normal()(random.key(3), (3, 3, 16, 64))
    np.testing.assert_allclose(np.asarray(kernel).var(), 2 / (9 * 16), rtol=0.05)
    with pytest.raises(ValueError, match=r"at least two axes, got \(3,\)"):
        nn.initializers.he_normal()(random.key(0), (3,))


def test_a_network_is_written_naturally() -> None:
    """Two layers with a softmax loss: the gradient lowers the loss."""
    k1, k2, k3 = random.split(random.key(0), 3)
    params = {
        "in": nn.initializers.he_normal()(k1, (6, 16)),
        "out": nn.initializers.lecun_normal()(k2, (16, 3)),
    }
    x, labels = random.normal(k3, (20, 6)), np.arange(20) % 3

    def loss(p: dict[str, Any]) -> Any:
        scores = nn.log_softmax(nn.relu(nn.layer_norm(x) @ p["in"]) @ p["out"])
        return -fnp.mean(fnp.take_along_axis(scores, labels[:, None])[:, 0])

    step = jit(lambda p: {name: p[name] - 0.5 * g for name, g in grad(loss)(p).items()})
    before, new = float(loss(params)), params
    for _ in range(20):
        new = step(new)
    assert float(loss(new)) < 0.5 * before


@pytest.mark.parametrize("fun", [nn.softmax, nn.log_softmax])
def test_what_is_one_primitive_is_written_out_and_costs_that(fun: Any) -> None:
    (eqn,) = make_jaxpr(fun)(X).eqns
    assert row(eqn.primitive.name)["written_out"].status == "rule"
    written_out = written_out_rules[eqn.primitive]([a.aval for a in eqn.invars], eqn.params)
    np.testing.assert_allclose(eval_jaxpr(written_out, [as_value(X)])[0], fun(X), rtol=1e-12)
    assert equation_cost(eqn) == jaxpr_cost(written_out)


def test_the_gradient_of_a_log_softmax_takes_one_exponential() -> None:
    loss = lambda x: -(nn.one_hot(np.arange(3), 4) * nn.log_softmax(x)).sum()
    assert str(make_jaxpr(grad(loss))(np.ones((3, 4)))).count("= exp ") == 1
    assert jit(grad(loss)).lower(np.ones((3, 4))).as_text().count("exponential") == 1


@pytest.mark.parametrize(("width", "operand"), [(10, "tensor<80xf64>"), (40, "tensor<8x40xf64>")])
def test_few_elements_are_added_to_a_large_array_as_it_is(width: int, operand: str) -> None:
    """XLA then adds them to another cotangent in place; many are added to the flat array."""
    at = np.arange(8)[:, None] % width
    loss = lambda x: fnp.take_along_axis(x, at).sum()
    text = jit(grad(loss)).lower(np.ones((8, width))).as_text()
    (line,) = (line for line in text.splitlines() if line.strip().startswith("}) {scatter"))
    assert f": ({operand}, " in line
