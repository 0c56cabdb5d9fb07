"""Draws follow their distributions, depend on the key alone, and check their arguments."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiveloop import numpy as fnp
from fiveloop import random
from fiveloop.core import jit, vmap

N = 20_000
KEY = random.key(42)
DRAWS: dict[str, Callable[[Any, Any], Any]] = {
    "uniform": lambda k, shape: random.uniform(k, shape, minval=-1.0, maxval=2.0),
    "normal": lambda k, shape: random.normal(k, shape),
    "truncated_normal": lambda k, shape: random.truncated_normal(k, -1.0, 2.0, shape),
    "exponential": lambda k, shape: random.exponential(k, shape),
    "gumbel": lambda k, shape: random.gumbel(k, shape),
    "laplace": lambda k, shape: random.laplace(k, shape),
    "randint": lambda k, shape: random.randint(k, shape, -5, 7),
    "bernoulli": lambda k, shape: random.bernoulli(k, 0.3, shape),
    "rademacher": lambda k, shape: random.rademacher(k, shape),
    "categorical": lambda k, shape: random.categorical(k, np.log([0.1, 0.2, 0.7]), shape=shape),
    "choice": lambda k, shape: random.choice(k, np.arange(3), shape, p=np.array([0.1, 0.2, 0.7])),
    "bits": lambda k, shape: random.bits(k, shape),
}


def normal_cdf(x: np.ndarray) -> np.ndarray:
    """The chance that a standard normal number is at most x."""
    return np.array([0.5 * (1 + math.erf(v / math.sqrt(2))) for v in x])


def truncated_cdf(x: np.ndarray) -> np.ndarray:
    """The same between -1 and 2."""
    low, high = normal_cdf(np.array([-1.0, 2.0])).tolist()
    out: np.ndarray = (normal_cdf(x) - low) / (high - low)
    return out


CDFS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "uniform": lambda x: (x + 1) / 3,
    "normal": normal_cdf,
    "truncated_normal": truncated_cdf,
    "exponential": lambda x: 1 - np.exp(-x),
    "gumbel": lambda x: np.exp(-np.exp(-x)),
    "laplace": lambda x: np.where(x < 0, np.exp(x) / 2, 1 - np.exp(-x) / 2),
}
CHANCES = {
    "randint": dict.fromkeys(range(-5, 7), 1 / 12),
    "bernoulli": {0: 0.7, 1: 0.3},
    "rademacher": {-1: 0.5, 1: 0.5},
    "categorical": {0: 0.1, 1: 0.2, 2: 0.7},
    "choice": {0: 0.1, 1: 0.2, 2: 0.7},
}


@pytest.mark.parametrize("name", CDFS)
def test_real_draws_follow_their_distribution(name: str) -> None:
    """Kolmogorov and Smirnov's distance, whose square root law puts 1.95 at a chance of one in a thousand."""
    x = np.sort(np.asarray(DRAWS[name](KEY, (N,)), np.float64))
    steps = np.arange(N + 1) / N
    cdf = CDFS[name](x)
    distance = max(np.abs(cdf - steps[1:]).max(), np.abs(cdf - steps[:-1]).max())
    assert distance * math.sqrt(N) < 1.95


DRAWN_BY_JAX: dict[str, list[float]] = {
    "uniform": [0.39913964, 1.7626431, 1.2074305],
    "normal": [-0.08437306, 1.4110229, 0.63048154],
    "truncated_normal": [0.10152034, 1.356208, 0.7094761],
    "exponential": [0.62807107, 2.5368025, 1.3310874],
    "gumbel": [0.27081865, 2.4958735, 1.1816142],
    "laplace": [0.06960754, -1.8436558, -0.6379403],
    "rademacher": [1, -1, -1],
}


@pytest.mark.parametrize("name", DRAWN_BY_JAX)
def test_these_draws_are_those_of_jax(name: str) -> None:
    """JAX 0.10.2 gave the numbers of the table for the key of seed 5."""
    assert np.allclose(DRAWS[name](random.key(5), (3,)), DRAWN_BY_JAX[name], rtol=1e-5)


@pytest.mark.parametrize("name", CHANCES)
def test_discrete_draws_have_their_chances(name: str) -> None:
    values, counts = np.unique(np.asarray(DRAWS[name](KEY, (N,))).astype(int), return_counts=True)
    assert values.tolist() == list(CHANCES[name])
    expected = N * np.array(list(CHANCES[name].values()))
    squares = ((counts - expected) ** 2 / expected).sum()
    assert squares < len(values) + 5 * math.sqrt(2 * len(values))


@pytest.mark.parametrize("name", DRAWS)
def test_a_draw_depends_on_its_key_alone(name: str) -> None:
    draw, keys = DRAWS[name], random.split(KEY, 3)
    alone = [np.asarray(draw(k, (2, 3))) for k in keys]
    together = vmap(lambda k: draw(k, (2, 3)))(keys)
    compiled = jit(lambda k: draw(k, (2, 3)))(keys[0])
    np.testing.assert_array_equal(compiled, alone[0])
    np.testing.assert_array_equal(together, np.stack(alone))
    assert not np.array_equal(alone[0], alone[1])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_uniform_draws_stay_below_one(dtype: str) -> None:
    x = random.uniform(KEY, (N,), dtype)
    host = np.asarray(x).astype(np.float64)
    assert x.dtype == np.dtype(dtype) and host.min() >= 0 and host.max() < 1
    assert abs(host.mean() - 0.5) < 0.01
    y = np.asarray(random.uniform(KEY, (N,), dtype, 1.0, 1.5)).astype(np.float64)
    assert y.min() >= 1 and y.max() < 1.5
    z = np.asarray(random.normal(KEY, (N,), dtype)).astype(np.float64)
    assert abs(z.mean()) < 0.03 and abs(z.std() - 1) < 0.03 and np.isfinite(z).all()


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [
        ("uint8", 0, 256),
        ("int8", -128, 128),
        ("int64", -(2**63), 2**63),
        ("uint64", 0, 2**64),
        ("int32", 3, 4),
    ],
)
def test_integers_of_any_range(dtype: str, low: int, high: int) -> None:
    bound: Any = np.array(low) if dtype == "int32" else low
    x = np.asarray(random.randint(KEY, (5000,), bound, high, dtype=dtype)).astype(object)
    assert x.min() >= low and x.max() < high
    assert x.max() - x.min() >= 0.9 * (high - low - 1)


def test_permutations_and_choices_without_replacement() -> None:
    x = np.arange(20).reshape(10, 2)
    mixed = np.asarray(random.permutation(KEY, x))
    assert sorted(map(tuple, mixed.tolist())) == sorted(map(tuple, x.tolist()))
    assert not np.array_equal(mixed, x)
    apart = np.asarray(random.permutation(KEY, x, axis=0, independent=True))
    assert sorted(apart[:, 0].tolist()) == x[:, 0].tolist()
    assert not np.array_equal(apart[:, 0] + 1, apart[:, 1])
    few = np.asarray(random.choice(KEY, 10, (2, 5), replace=False))
    assert sorted(few.ravel().tolist()) == list(range(10))
    p = np.array([0.0, 0.5, 0.0, 0.5])
    assert sorted(np.asarray(random.choice(KEY, 4, (2,), replace=False, p=p)).tolist()) == [1, 3]


def test_first_places_of_permutations_are_equally_likely() -> None:
    keys = random.split(KEY, 4000)
    first = np.asarray(vmap(lambda k: random.permutation(k, 5)[0])(keys))
    counts = np.bincount(first, minlength=5)
    assert ((counts - 800) ** 2 / 800).sum() < 5 + 5 * math.sqrt(10)


def test_keys_may_be_traced_and_folded() -> None:
    def draw(key: Any, i: Any) -> Any:
        return random.normal(random.fold_in(key, i), (3,))

    steps = [np.asarray(draw(KEY, i)) for i in range(3)]
    np.testing.assert_array_equal(
        vmap(draw, in_axes=(None, 0))(KEY, fnp.arange(3)), np.stack(steps)
    )
    assert len({step.tobytes() for step in steps}) == 3


def test_categorical_over_an_axis() -> None:
    logits = np.full((3, 5), -np.inf, np.float32)
    logits[[2, 0, 1, 1, 2], range(5)] = 0
    np.testing.assert_array_equal(random.categorical(KEY, logits, axis=0), [2, 0, 1, 1, 2])
    assert random.categorical(KEY, logits, axis=0, shape=(7, 5)).shape == (7, 5)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: random.normal(np.zeros(3), (2,)), TypeError, "expected a key, .* got f64"),
        (lambda: random.uniform(KEY, (2,), np.int32), TypeError, "floating point dtype, got int32"),
        (lambda: random.uniform(KEY, (2,), minval=2.0, maxval=1.0), ValueError, "minval <= maxval"),
        (lambda: random.uniform(KEY, (2,), minval=np.zeros(3)), ValueError, "uniform: expected"),
        (lambda: random.randint(KEY, (2,), 5, 5), ValueError, "minval < maxval within int32"),
        (lambda: random.randint(KEY, (2,), 0, 300, np.uint8), ValueError, "within uint8"),
        (lambda: random.randint(KEY, (2,), 0.0, 3), TypeError, "`minval` to be integers"),
        (lambda: random.choice(KEY, 3, (4,), replace=False), ValueError, "at most 3 draws"),
        (lambda: random.choice(KEY, 3, p=np.ones(2)), ValueError, "hold 3 chances"),
        (lambda: random.bernoulli(KEY, np.ones(3), (2,)), ValueError, "bernoulli: expected"),
        (lambda: random.normal(KEY, (-1,)), ValueError, "no negative sizes"),
        (lambda: random.bits(KEY, (2,), np.int32), TypeError, "unsigned integer dtype"),
    ],
)
def test_bad_arguments_are_explained(
    call: Callable[[], Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        call()


def test_a_mean_of_elements_at_random_places_is_compiled() -> None:
    """jaxlib 0.12 took minutes to fuse the bits of the keys and of the places into the mean."""
    drawn = lambda x, k: x[random.randint(k, (64,), 0, 200)].mean()
    every = jit(lambda x, s: vmap(drawn, in_axes=(None, 0))(x, random.split(random.key(s), 100)))
    x = np.arange(200, dtype=np.float32)
    want = [jit(drawn)(x, k) for k in random.split(random.key(3), 100)[:2]]
    np.testing.assert_allclose(every(x, 3)[:2], want, rtol=1e-6)
