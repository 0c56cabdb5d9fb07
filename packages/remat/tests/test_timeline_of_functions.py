"""Programs whose functions XLA writes out in others, or computes apart, keep within their budgets."""

from collections.abc import Callable

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop import random
from fiveloop.core import Value, grad, jit
from fiveloop.loops import for_loop
from fiveloop.remat import checkpoint, explain_residuals

Fun = Callable[..., Value]
GENERATOR = np.random.default_rng(0)
BUDGETS = (0.0, 0.5, 1.0)


def normal(*shape: int) -> np.ndarray:
    return (GENERATOR.normal(size=shape) * 0.1).astype(np.float32)


X, CUBE, MATRIX, IMAGE = normal(3000), normal(32, 32, 32), normal(32, 32), normal(2, 16, 16, 8)
LARGE = normal(64, 256)
KEYS = random.split(random.key(0), 4)
ROWS = np.random.default_rng(1).integers(0, 500, size=(8, 300))


def chain(fun: Fun, times: int) -> Fun:
    def chained(x: Value) -> Value:
        for _ in range(times):
            x = fun(x)
        return (x * x).sum()

    return chained


def complex_chain(fun: Fun, times: int) -> Fun:
    def chained(x: Value) -> Value:
        z = x + 0j
        for _ in range(times):
            z = fun(z)
        return z.real.sum()

    return chained


def turned(x: Value, w: Value) -> Value:
    for _ in range(4):
        x = fnp.tanh(fnp.einsum("ijk,kl->jil", x, w))
    return (x * x).sum()


def noisy(x: Value) -> Value:
    for key in KEYS:
        x = fnp.tanh(x @ MATRIX) + random.normal(key, x.shape) * x
    return (x * x).sum()


def scattered(x: Value) -> Value:
    for k in range(8):
        y = fnp.sin(x[ROWS[k]])
        x = x.at[ROWS[(k + 1) % 8]].add(y * y)
    return (x * x).sum()


def running(x: Value) -> Value:
    def step(k: Value, y: Value) -> None:
        y[k + 1] = fnp.sin(y[k]) + x[k]

    return (for_loop(99, step, x) ** 2).sum()


def framed(x: Value) -> Value:
    """Neighbours in a frame of zeros."""
    for _ in range(4):
        y = fnp.zeros((66, 258)).at[1:-1, 1:-1].set(x)
        x = fnp.tanh(y[2:, 1:-1] + y[:-2, 1:-1] + y[1:-1, 2:] + y[1:-1, :-2] - 3 * x)
    return (x * x).sum()


def by_columns(x: Value) -> Value:
    for k in range(5):
        x = fnp.tanh(x.at[:, 8 * k : 8 * k + 8].mul(x[:, 40:48]))
    return (x * x).sum()


def by_rows(x: Value) -> Value:
    for k in range(8):
        x = x.at[k].set(fnp.sin(x[k + 1]) * x[k])
    return (x * x).sum()


def scaled(x: Value) -> Value:
    for scale in (2.0, 3.0, 4.0):
        x = x * fnp.sin(x * scale).sum()
    return (x * x).sum()


PROGRAMS: dict[str, tuple[Fun, list[np.ndarray]]] = {
    "sinh": (chain(lambda x: fnp.sinh(x) * x, 5), [X]),
    "chosen": (chain(lambda x: fnp.where(x > 0, fnp.exp(-x), x * x), 6), [LARGE]),
    "rolled": (
        chain(lambda x: x + 0.1 * fnp.sin(fnp.roll(x, 1, 0) + fnp.roll(x, -1, 1)), 8),
        [LARGE],
    ),
    "cosh": (chain(lambda x: fnp.cosh(x) * x, 3), [X]),
    "logaddexp": (chain(lambda x: fnp.logaddexp(x, 2 * x), 5), [X]),
    "complex exp": (complex_chain(lambda z: fnp.exp(z * 0.1) * fnp.conj(z), 6), [X]),
    "complex sqrt": (complex_chain(lambda z: fnp.sqrt(z + 2), 3), [X]),
    "complex abs": (complex_chain(lambda z: fnp.abs(z + 1) * z, 3), [X]),
    "complex tanh": (complex_chain(lambda z: fnp.tanh(z * 0.3) * z, 3), [X]),
    "gaps": (chain(lambda x: x.at[::2].add(x[1::2] * x[::2]), 5), [X]),
    "block": (chain(lambda x: x.at[100:900].add(fnp.sin(x[:800])), 5), [X]),
    "stencil": (
        chain(lambda x: x.at[1:-1].set(fnp.sin(x[2:]) - 2 * x[1:-1] + x[:-2]), 6),
        [LARGE],
    ),
    "added stencil": (
        chain(lambda x: x.at[1:-1].add((x[2:] - 2 * x[1:-1] + x[:-2]) * 0.1), 6),
        [LARGE],
    ),
    "halves": (
        chain(
            lambda x: fnp.concatenate([fnp.sin(x[:32]), x[32:] * 2]).at[9:41].set(fnp.exp(x[:32])),
            5,
        ),
        [LARGE],
    ),
    "framed": (framed, [LARGE]),
    "by rows": (by_rows, [LARGE]),
    "by columns": (by_columns, [LARGE]),
    "turned": (turned, [CUBE, MATRIX]),
    "noisy": (noisy, [normal(128, 32)]),
    "scattered": (scattered, [normal(500, 16)]),
    "running": (running, [normal(100, 64)]),
    "scaled": (scaled, [IMAGE]),
    "divided by sums": (
        chain(lambda x: fnp.sin(x) / (1 + (x * x).sum(1, keepdims=True)), 4),
        [LARGE],
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_keep_within_budgets(name: str) -> None:
    fun, args = PROGRAMS[name]
    for budget in BUDGETS:
        under = checkpoint(fun, budget=budget)
        allowed = explain_residuals(under, *args).choices[0].allowed
        gradient = jit(grad(under, tuple(range(len(args)))))
        temp = gradient.lower(*args).compile().memory_analysis().temp
        assert temp <= 1.05 * allowed
