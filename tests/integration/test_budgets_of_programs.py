"""Programs within budgets: the compiled gradient of each keeps to what the budget allows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop import loops, nn, random
from fiveloop.core import grad, jit, value_and_grad
from fiveloop.remat import checkpoint, explain_residuals

Step = Callable[..., Any]


def array(*shape: int) -> np.ndarray:
    return np.random.RandomState(0).randn(*shape).astype(np.float32)


def complex_array(*shape: int) -> np.ndarray:
    return (array(*shape) + 1j * array(*shape)[::-1]).astype(np.complex64)


def some(size: int, *shape: int) -> np.ndarray:
    return np.random.RandomState(1).randint(0, size, shape)


def steps(step: Step, times: int = 6) -> Step:
    """The sum of squares of what is left after some steps."""

    def f(x: Any, *rest: Any) -> Any:
        for _ in range(times):
            x = step(x, *rest)
        return (x.real**2).sum()

    return f


def two_heads(x: Any, y: Any) -> Any:
    """Logarithms of shares along both axes of one table."""
    table = x @ y.T
    both = nn.log_softmax(table, axis=1) + nn.log_softmax(table, axis=0)
    return -fnp.diagonal(both).mean()


def dropped_out(x: Any, w: Any, key: Any) -> Any:
    """Elements that are dropped at random in each step of a loop."""

    def step(k: Any, x: Any) -> Any:
        kept = random.bernoulli(random.fold_in(key, k), 0.9, x.shape)
        return x + fnp.where(kept, nn.relu(x @ w), 0.0)

    return (loops.fori_loop(0, 8, step, x) ** 2).sum()


def biased(x: Any, w: Any) -> Any:
    """Shares of scores with a bias by distance, which is the same in all layers."""
    places = fnp.arange(x.shape[0])
    bias = fnp.abs(places[:, None] - places).astype(np.float32)
    return x + nn.softmax(x @ w @ x.T * 0.1 - bias) @ x


def filtered(x: Any, h: Any) -> Any:
    """Weighted sums of the elements before each."""
    size = x.shape[1]
    parts = [h[k] * fnp.pad(x, ((0, 0), (k, 0)))[:, :size] for k in range(5)]
    return fnp.tanh(sum(parts))


X = array(64, 64)
ROWS = some(64, 64)
KEY = np.asarray(random.key(3))
PROGRAMS: dict[str, tuple[Step, tuple[Any, ...]]] = {
    # A branch computes again though all of its operands are complex.
    "complex": (steps(lambda z: z * fnp.exp(1j * fnp.abs(z)), 5), (complex_array(64, 64),)),
    # A loop in a branch changes a copy of an argument, which is there from the beginning.
    "running sums": (steps(lambda x: fnp.sin(fnp.cumsum(x, 0))), (X,)),
    "running sums, reversed": (steps(lambda x: fnp.tanh(loops.cumsum(x, 0, reverse=True))), (X,)),
    # The operands of a batch of products with vectors are reshaped, and computed for each that uses them.
    "bilinear": (
        steps(lambda x, w: fnp.tanh(fnp.einsum("bi,ijk,bj->bk", x, w, x)), 3),
        (array(128, 32), array(32, 32, 32) * 0.02),
    ),
    # A library takes in what repeats a sum that keeps its axes, and what comes behind that.
    "sums of columns": (
        steps(lambda x: fnp.sin(x) * x.sum(1, keepdims=True) * 0.1, 5),
        (array(16, 32, 16),),
    ),
    # It does not take in small arrays, nor sums that more than one equation uses.
    "outer products": (
        steps(lambda x: fnp.tanh(x + fnp.outer(x.sum(0), x.sum(1)) * 0.01)),
        (X,),
    ),
    "scaled by sums": (steps(lambda x: fnp.tanh(x) * x.sum() * 0.01, 8), (X,)),
    # A sum of negative numbers is negated, which is small.
    "weighted sums": (
        steps(lambda x, w: fnp.sin(x) - (w[:, None] * x).sum(0), 3),
        (X, array(64)),
    ),
    # What uses the result of what a library takes in behind a sum comes in an order of its own.
    "weighted sums, twice": (
        steps(lambda x, w: fnp.tanh(x - (w[:, None] * x).sum(0)), 2),
        (array(256, 64), array(256)),
    ),
    # A library takes in what comes before a softmax, and has the bias of all layers in memory.
    "biased": (steps(biased), (array(128, 32), array(32, 32) * 0.1)),
    # What is read at several places is computed for each of them, but not too often.
    "filtered": (steps(filtered), (array(64, 256), array(5))),
    "mirrored": (steps(lambda x: fnp.tanh(fnp.tril(x) + x.T)), (X,)),
    # It takes in what comes before a reshaped sum, and the edges of an array.
    "repeated": (steps(lambda x: fnp.tanh(fnp.repeat(x[:, ::2], 2, axis=1)) + x, 3), (X,)),
    "tiled": (steps(lambda x: fnp.sin(fnp.tile(x[:16, :16], (4, 4)) * x), 4), (X,)),
    # What is stopped on its way is as it was.
    "two heads": (two_heads, (array(128, 64), array(128, 64))),
    # What a library reads is in memory, also if it takes in more before it sums.
    "pairs": (steps(lambda x, y: fnp.sin(x) + fnp.cos(y * x) * y, 5), (X, array(64, 64))),
    # A branch is begun before what is ready at the same time.
    "selected": (
        steps(lambda x: fnp.where(x > 0, fnp.exp(-x), fnp.log1p(-fnp.minimum(x, 0)))),
        (X,),
    ),
    # An array of one number has the type of that number, also where something is compared with it.
    "clipped": (steps(lambda x: fnp.clip(fnp.sin(x) * 2, -1, 1) * x, 12), (X,)),
    # The places of random bits are the same in all steps of a loop.
    "dropped out": (dropped_out, (X, array(64, 64) * 0.1, KEY)),
    # What is added at positions is reshaped before, where it is computed for the array, too.
    "permuted rows": (steps(lambda x: fnp.tanh(x[ROWS] + fnp.sin(x))), (X,)),
    "scattered": (steps(lambda x: fnp.tanh(fnp.zeros_like(x).at[ROWS].add(x)) + x, 8), (X,)),
    # A library takes in no numbers of float16, which are kept in two bytes.
    "short": (
        steps(lambda x: fnp.exp(-x * x) * x + x),
        (X.astype(np.float16),),
    ),
    # An array to which its own rows are added is copied.
    "own rows": (steps(lambda x: fnp.tanh(x[ROWS] + x), 4), (X,)),
    # Elements at tables of positions are added to zeros, and copied before.
    "elements": (
        steps(lambda x: fnp.sin(x) + x[some(64, 64, 64), some(64, 64, 64).T], 4),
        (X,),
    ),
}


@pytest.mark.parametrize("budget", [0.0, 0.3])
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_compiled_gradient_keeps_within_the_budget(name: str, budget: float) -> None:
    f, (x, *rest) = PROGRAMS[name]
    g = checkpoint(f, budget=budget)
    (choice,) = explain_residuals(lambda x: g(x, *rest), x).choices
    used = jit(value_and_grad(g)).lower(x, *rest).compile().memory_analysis().temp
    assert used <= 1.05 * choice.allowed


def test_a_complex_function_is_computed_again() -> None:
    f, (z,) = PROGRAMS["complex"]

    def temporary(f: Step) -> int:
        return jit(grad(f)).lower(z).compile().memory_analysis().temp

    step = checkpoint(lambda z: z * fnp.exp(1j * fnp.abs(z)))
    assert temporary(steps(step, 5)) < 0.8 * temporary(f)
