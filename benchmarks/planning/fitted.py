"""The loops that the cost models of planning are fitted to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import fiveloop.numpy as fnp
from benchmarks.planning.loops import integers, normal, numbers, uniform
from fiveloop.core import grad, jvp, vmap
from fiveloop.loops import cond, for_loop, fori_loop, scan
from fiveloop.nn import sigmoid, softmax
from fiveloop.remat import checkpoint

Built = tuple[Callable[..., Any], Sequence[Any]]


def prefix_sum() -> Built:
    """One element a step."""

    def run(x: Any) -> Any:
        def body(i: Any, y: Any) -> None:
            y[i + 1] = y[i] + x[i]

        return for_loop(20_000, body, fnp.zeros(20_001))

    return run, (normal(20_000),)


def recurrence() -> Built:
    """A scalar carry through a transcendental function."""

    def run(p: Any, x: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            h = fnp.tanh(p[0] * h + p[1] * x)
            return h, h

        return scan(step, fnp.float32(0.0), x)[1]

    return run, (numbers(0.5, 0.3), normal(10_000))


def small_rnn() -> Built:
    """A carry of 8 and a product with a small matrix."""
    return _rnn(8, 2_000)


def rnn() -> Built:
    """A carry of 128 and a product with a matrix."""
    return _rnn(128, 300)


def _rnn(width: int, length: int) -> Built:
    def run(w: Any, x: Any) -> Any:
        step = lambda h, x: (fnp.tanh(w @ h + x), None)
        return scan(step, fnp.zeros(width), x)[0]

    return run, (normal(width, width, scale=width**-0.5), normal(length, width))


def gru() -> Built:
    """Gates, and weights in every step, for a batch."""

    def run(w: Any, u: Any, x: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            z, r = fnp.split(sigmoid(x @ w[:, :128] + h @ u[:, :128]), 2, axis=1)
            n = fnp.tanh(x @ w[:, 128:] + (r * h) @ u[:, 128:])
            h = (1 - z) * n + z * h
            return h, h

        return scan(step, fnp.zeros((16, 64)), x)[1]

    return run, (normal(64, 192, scale=0.1), normal(64, 192, scale=0.1), normal(100, 16, 64))


def ctc() -> Built:
    """Alphas of connectionist temporal classification, in log space."""

    def run(logits: Any, labels: Any) -> Any:
        scores = logits - fnp.log(fnp.exp(logits).sum(-1, keepdims=True))
        scores = scores[:, labels]
        skip = fnp.where(labels[2:] != labels[:-2], 0.0, -1e9)

        def step(alpha: Any, score: Any) -> Any:
            one = fnp.concatenate([fnp.full(1, -1e9), alpha[:-1]])
            two = fnp.concatenate([fnp.full(2, -1e9), alpha[:-2] + skip])
            return fnp.logaddexp(fnp.logaddexp(alpha, one), two) + score, None

        first = fnp.full(labels.shape[0], -1e9).at[0].set(0.0)
        return scan(step, first, scores)[0][-2:]

    labels = np.zeros(81, np.int32)
    labels[1::2] = 1 + integers(28, 40)
    return run, (normal(200, 30), labels)


def viterbi() -> Built:
    """The best path: a maximum and where it is."""

    def run(scores: Any, moves: Any) -> Any:
        def step(best: Any, score: Any) -> Any:
            ways = best[:, None] + moves
            return ways.max(0) + score, ways.argmax(0)

        return scan(step, scores[0], scores[1:])

    return run, (normal(500, 32), normal(32, 32))


def hidden_markov() -> Built:
    """The likelihood of a hidden Markov model, scaled in each step."""

    def run(moves: Any, seen: Any) -> Any:
        moves = softmax(moves, 1)

        def step(alpha: Any, seen: Any) -> Any:
            alpha = (alpha @ moves) * seen
            scale = alpha.sum()
            return alpha / scale, fnp.log(scale)

        return scan(step, fnp.full(16, 1 / 16), seen)[1]

    return run, (normal(16, 16), uniform(1_000, 16, low=0.1))


def edit_distance() -> Built:
    """A table, cell by cell, row by row."""

    def run(costs: Any) -> Any:
        n, m = costs.shape

        def row(i: Any, d: Any) -> None:
            def cell(j: Any, nothing: Any) -> None:
                ways = fnp.minimum(d[i, j + 1] + 1.0, d[i + 1, j] + 1.0)
                d[i + 1, j + 1] = fnp.minimum(ways, d[i, j] + costs[i, j])

            for_loop(m, cell, None)

        first = fnp.zeros((n + 1, m + 1)).at[0].set(fnp.arange(m + 1.0))
        return for_loop(n, row, first.at[:, 0].set(fnp.arange(n + 1.0)))[-1, -1]

    return run, (uniform(100, 100, high=2.0),)


def shortest_paths() -> Built:
    """Floyd and Warshall's algorithm, a matrix a step."""

    def run(d: Any) -> Any:
        return fori_loop(0, 100, lambda k, d: fnp.minimum(d, d[:, k, None] + d[None, k]), d)

    return run, (uniform(100, 100),)


def knapsack() -> Built:
    """A row that is compared with itself, moved."""

    def run(weights: Any, values: Any) -> Any:
        def item(best: Any, one: Any) -> Any:
            weight, value = one
            at = fnp.arange(1_000) - weight
            taken = fnp.where(at >= 0, best[fnp.maximum(at, 0)] + value, 0.0)
            return fnp.maximum(best, taken), None

        return scan(item, fnp.zeros(1_000), (weights, values))[0]

    return run, (1 + integers(50, 200), uniform(200))


def heat() -> Built:
    """A stencil on a line."""

    def run(x: Any) -> Any:
        def step(i: Any, u: Any) -> Any:
            inside = u[1:-1] + 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2])
            return fnp.concatenate([u[:1], inside, u[-1:]])

        return fori_loop(0, 300, step, x)

    return run, (normal(1_000),)


def bodies() -> Built:
    """Leapfrog steps of bodies that attract each other."""
    return _bodies(lambda step: step)


def checkpointed_bodies() -> Built:
    """The same, each step under a checkpoint."""
    return _bodies(checkpoint)


def _bodies(wrap: Callable[..., Any]) -> Built:
    def run(x: Any, v: Any) -> Any:
        def pull(x: Any) -> Any:
            d = x[None] - x[:, None]
            return (d * ((d * d).sum(-1, keepdims=True) + 0.1) ** -1.5).sum(1)

        def step(state: Any, nothing: Any) -> Any:
            x, v = state
            v = v + 0.005 * pull(x)
            x = x + 0.01 * v
            return (x, v + 0.005 * pull(x)), None

        return scan(wrap(step), (x, v), length=200)[0]

    return run, (normal(12, 3), normal(12, 3, seed=1))


def lorenz() -> Built:
    """Runge and Kutta's steps of three numbers."""

    def run(p: Any, x: Any) -> Any:
        def slope(x: Any) -> Any:
            return fnp.stack(
                [p[0] * (x[1] - x[0]), x[0] * (p[1] - x[2]) - x[1], x[0] * x[1] - p[2] * x[2]]
            )

        def step(i: Any, x: Any) -> Any:
            a = slope(x)
            b = slope(x + 0.005 * a)
            c = slope(x + 0.005 * b)
            d = slope(x + 0.01 * c)
            return x + 0.01 / 6 * (a + 2 * b + 2 * c + d)

        return fori_loop(0, 1_000, step, x)

    return run, (numbers(10, 28, 8 / 3), numbers(1, 1, 1))


def kalman() -> Built:
    """A filter of four numbers, with one measurement a step."""

    def run(noise: Any, seen: Any) -> Any:
        move = fnp.eye(4) + 0.1 * fnp.eye(4, k=2)
        look = fnp.eye(4)[:1]

        def step(state: Any, y: Any) -> Any:
            x, p = state
            x, p = move @ x, move @ p @ move.T + noise[0] * fnp.eye(4)
            s = (look @ p @ look.T)[0, 0] + noise[1]
            gain = (p @ look.T)[:, 0] / s
            error = y - x[0]
            p = p - gain[:, None] * (look @ p)
            return (x + gain * error, p), error * error / s + fnp.log(s)

        return scan(step, (fnp.zeros(4), fnp.eye(4)), seen)[1]

    return run, (numbers(0.1, 0.2), normal(1_000))


def adam() -> Built:
    """Steps of Adam on a least-squares problem."""

    def run(w: Any, a: Any, b: Any) -> Any:
        def step(state: Any, i: Any) -> Any:
            w, m, v = state
            g = a.T @ (a @ w - b)
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            return (w - 0.01 * m / (fnp.sqrt(v + 1e-6)), m, v), None

        return scan(step, (w, fnp.zeros(64), fnp.zeros(64)), fnp.arange(200))[0][0]

    return run, (normal(64), normal(128, 64), normal(128))


def four_nested() -> Built:
    """Scans of four steps, four deep."""

    def run(x: Any) -> Any:
        def nest(depth: int, c: Any) -> Any:
            if not depth:
                return fnp.sin(c) * 1.01
            return scan(lambda c, nothing: (nest(depth - 1, c), None), c, length=4)[0]

        return nest(4, x)

    return run, (normal(16),)


def lanes_of_scalars() -> Built:
    """A batch of scalar scans."""

    def run(a: Any, xs: Any) -> Any:
        one = lambda a, xs: scan(lambda h, x: (fnp.tanh(a * h + x), None), fnp.float32(0), xs)[0]
        return vmap(one)(a, xs)

    return run, (uniform(32), normal(32, 4_000))


def power_iteration() -> Built:
    """A product and a norm a step."""

    def run(a: Any) -> Any:
        def step(i: Any, x: Any) -> Any:
            y = a @ x
            return y / fnp.sqrt((y * y).sum())

        return fori_loop(0, 100, step, fnp.ones(100))

    return run, (normal(100, 100),)


def substitution() -> Built:
    """A triangular system, row by row, in place."""

    def run(a: Any, b: Any) -> Any:
        def row(i: Any, x: Any) -> None:
            x[i] = (b[i] - a[i] @ x[...] + a[i, i] * x[i]) / a[i, i]

        return for_loop(200, row, fnp.zeros(200))

    return run, (np.tril(normal(200, 200, scale=0.05)) + np.eye(200, dtype=np.float32), normal(200))


def elimination() -> Built:
    """Gauss elimination, a column a step."""

    def run(a: Any) -> Any:
        def column(k: Any, a: Any) -> Any:
            below = fnp.arange(64) > k
            factors = fnp.where(below, a[:, k] / a[k, k], 0.0)
            return a - factors[:, None] * a[k]

        return fori_loop(0, 64, column, a)

    return run, (normal(64, 64) + 8 * np.eye(64, dtype=np.float32),)


def polynomial() -> Built:
    """Horner's rule on a vector."""

    def run(coefficients: Any, x: Any) -> Any:
        return scan(lambda y, c: (y * x + c, None), fnp.zeros(1_000), coefficients)[0]

    return run, (normal(200, scale=0.1), uniform(1_000))


def sieve() -> Built:
    """Writes at strides, in an inner loop whose number of steps is computed."""

    def run(n: Any) -> Any:
        def number(i: Any, prime: Any) -> None:
            def cross(k: Any, nothing: Any) -> None:
                prime[i * (k + 2)] = False

            cond(
                prime[i] & (i > 1),
                lambda: for_loop(5_000 // fnp.maximum(i, 1) - 1, cross, None),
                lambda: None,
            )

        return for_loop(71, number, fnp.ones(5_001, bool)).sum() + n

    return run, (np.int32(0),)


def histogram() -> Built:
    """Additions at indices from data."""

    def run(k: Any, w: Any) -> Any:
        def add(i: Any, h: Any) -> None:
            h[k[i]] += w[i]

        return for_loop(20_000, add, fnp.zeros(100))

    return run, (integers(100, 20_000), normal(20_000))


def logistic_map() -> Built:
    """Many independent chains of a few operations."""

    def run(r: Any, x: Any) -> Any:
        return fori_loop(0, 500, lambda i, x: r * x * (1 - x), x)

    return run, (uniform(500, low=2.0, high=3.0), uniform(500))


def online_softmax() -> Built:
    """Attention, block by block, with a running maximum."""

    def run(q: Any, k: Any, v: Any) -> Any:
        def block(state: Any, kv: Any) -> Any:
            top, total, out = state
            scores = q @ kv[0].T
            higher = fnp.maximum(top, scores.max(1))
            shrink, p = fnp.exp(top - higher), fnp.exp(scores - higher[:, None])
            out = out * shrink[:, None] + p @ kv[1]
            return (higher, total * shrink + p.sum(1), out), None

        first = fnp.full(64, -1e9), fnp.zeros(64), fnp.zeros((64, 32))
        _, total, out = scan(block, first, (k, v))[0]
        return out / total[:, None]

    return run, (normal(64, 32), normal(32, 64, 32, seed=1), normal(32, 64, 32, seed=2))


def diagonal_states() -> Built:
    """A state-space layer: elements that decay."""

    def run(a: Any, b: Any, x: Any) -> Any:
        decay = fnp.exp(-fnp.exp(a))
        return scan(
            lambda h, x: (decay * h + b * x[:, None], (h * b).sum(1)), fnp.zeros((64, 16)), x
        )[1]

    return run, (normal(64, 16), normal(64, 16), normal(500, 64))


def layers() -> Built:
    """A deep network as a scan over its weights."""

    def run(w: Any, x: Any) -> Any:
        def layer(x: Any, w: Any) -> Any:
            y = fnp.tanh(x @ w[0])
            return x + y @ w[1], None

        return scan(layer, x, w)[0]

    return run, (normal(24, 2, 128, 128, scale=0.05), normal(32, 128))


def digital_filter() -> Built:
    """A second-order filter: the last two outputs are carried."""

    def run(p: Any, x: Any) -> Any:
        def sample(state: Any, x: Any) -> Any:
            one, two = state
            y = x - p[0] * one - p[1] * two
            return (y, one), y

        return scan(sample, (fnp.float32(0), fnp.float32(0)), x)[1]

    return run, (numbers(-0.5, 0.2), normal(20_000))


def forward_over_forward() -> Built:
    """Two directions through nested scans."""

    def chain(x: Any) -> Any:
        step = lambda c, i: (fnp.sin(c) + 0.1 * i, None)
        return scan(lambda c, i: scan(step, c, fnp.arange(25.0)), x, length=40)[0]

    def run(x: Any) -> Any:
        one = lambda x: jvp(chain, (x,), (fnp.ones_like(x),))[1]
        return jvp(one, (x,), (fnp.ones_like(x),))[1]

    return run, (normal(8),)


def second_order() -> Built:
    """Two directions through an oscillator: many numbers are carried, and made of the same function."""

    def path(x: Any) -> Any:
        def step(i: Any, state: Any) -> Any:
            x, v = state
            v = v - 0.1 * fnp.tanh(x)
            return x + 0.1 * v, v

        return fori_loop(0, 2_000, step, (x, x))[0]

    def run(x: Any) -> Any:
        one = lambda x: jvp(path, (x,), (fnp.ones_like(x),))[1]
        return jvp(one, (x,), (fnp.ones_like(x),))[1]

    return run, (np.float32(0.3),)


def functions_in_a_chain() -> Built:
    """A function of a function of a function of what is carried."""

    def run(x: Any) -> Any:
        step = lambda h, x: (fnp.sin(fnp.exp(fnp.tanh(h))) + x, None)
        return scan(step, fnp.zeros(16), x)[0]

    return run, (normal(2_000, 16),)


def soft_gates() -> Built:
    """Gates that decay by a softplus, written out."""

    def run(a: Any, x: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            rate = fnp.log1p(fnp.exp(x + a))
            return fnp.exp(-rate) * h + rate * fnp.tanh(x), None

        return scan(step, fnp.zeros(256), x)[0]

    return run, (normal(256), normal(500, 256))


def narrow_lstm() -> Built:
    """A cell of width 8: beside its products a function costs little."""

    def run(w: Any, x: Any) -> Any:
        def step(state: Any, x: Any) -> Any:
            h, c = state
            i, f, g, o = fnp.split(x @ w[0] + h @ w[1], 4, axis=-1)
            c = sigmoid(f) * c + sigmoid(i) * fnp.tanh(g)
            return (sigmoid(o) * fnp.tanh(c), c), None

        return scan(step, (fnp.zeros((1, 8)), fnp.zeros((1, 8))), x)[0][0]

    return run, (normal(2, 8, 32, scale=0.1), normal(1_000, 1, 8))


def lanes_in_groups() -> Built:
    """Lanes of which a few take a dear branch."""

    def run(x: Any) -> Any:
        def dear(x: Any) -> Any:
            return fori_loop(0, 30, lambda i, y: fnp.sin(y) + 0.1 * y, x)

        one = lambda x: cond(x[0] > 1.3, dear, lambda x: x * 2.0, x, vmap="group")
        return vmap(one)(x)

    return run, (normal(256, 64),)


def training() -> Built:
    """Steps of gradient descent through a scan, in a scan."""

    def run(w: Any, x: Any, y: Any) -> Any:
        def loss(w: Any) -> Any:
            h = scan(lambda h, x: (fnp.tanh(x @ w[0] + h @ w[1]), None), fnp.zeros((8, 32)), x)[0]
            return ((h - y) ** 2).sum()

        return scan(lambda w, nothing: (w - 0.01 * grad(loss)(w), None), w, length=10)[0]

    return run, (normal(2, 32, 32, scale=0.2), normal(40, 8, 32), normal(8, 32))


def functions_of_lanes() -> Built:
    """A recurrence of 128 lanes through a function."""
    return lambda x: fori_loop(0, 2_000, lambda i, x: x - 0.01 * fnp.tanh(x), x), (normal(128),)


def arithmetic_of_lanes() -> Built:
    """A polynomial of 128 lanes."""
    return lambda x: fori_loop(0, 2_000, lambda i, x: x + 0.01 * (x - x * x * x), x), (normal(128),)


def few_lanes() -> Built:
    """A polynomial of 32 lanes."""
    return lambda x: fori_loop(0, 2_000, lambda i, x: x + 0.01 * (x - x * x * x), x), (normal(32),)


def three_pendulums() -> Built:
    """Steps of a Runge-Kutta rule, with a sine in each of its four parts."""

    def run(x: Any, v: Any) -> Any:
        def slope(x: Any, v: Any) -> tuple[Any, Any]:
            return v, -fnp.sin(x)

        def step(i: Any, s: Any) -> Any:
            x, v = s
            a, b = slope(x, v)
            c, d = slope(x + 0.005 * a, v + 0.005 * b)
            e, f = slope(x + 0.005 * c, v + 0.005 * d)
            g, h = slope(x + 0.01 * e, v + 0.01 * f)
            return x + 0.01 / 6 * (a + 2 * c + 2 * e + g), v + 0.01 / 6 * (b + 2 * d + 2 * f + h)

        return fori_loop(0, 2_000, step, (x, v))

    return run, (normal(3), normal(3))
