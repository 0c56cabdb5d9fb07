"""The loops that show what the fitted cost models are worth: written before any was fitted, and not changed since."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import fiveloop.numpy as fnp
from benchmarks.planning.loops import integers, normal, numbers, uniform
from fiveloop import random
from fiveloop.core import vmap
from fiveloop.loops import cond, for_loop, fori_loop, scan
from fiveloop.nn import sigmoid, softmax
from fiveloop.remat import checkpoint

Built = tuple[Callable[..., Any], Sequence[Any]]


def delta_rule() -> Built:
    """Linear attention that corrects what its matrix holds."""

    def run(q: Any, k: Any, v: Any) -> Any:
        def step(s: Any, x: Any) -> Any:
            q, k, v = x
            s = s + 0.1 * fnp.outer(v - s @ k, k)
            return s, s @ q

        return scan(step, fnp.zeros((32, 32)), (q, k, v))[1]

    return run, tuple(normal(300, 32, scale=0.2, seed=s) for s in range(3))


def gated_mean() -> Built:
    """A recurrent network whose gates do not look at the state."""

    def run(w: Any, x: Any) -> Any:
        gates = sigmoid(x @ w)
        return scan(
            lambda h, gx: ((1 - gx[0]) * h + gx[0] * gx[1],) * 2, fnp.zeros(64), (gates, x)
        )[1]

    return run, (normal(64, 64, scale=0.1), normal(1_000, 64))


def matrix_memory() -> Built:
    """A memory of outer products with a gate for each head."""

    def run(p: Any, x: Any) -> Any:
        def step(state: Any, x: Any) -> Any:
            c, n = state
            q, k, v = x @ p[0], x @ p[1], x @ p[2]
            forget = sigmoid(x.sum())
            c, n = forget * c + fnp.outer(v, k), forget * n + k
            return (c, n), (c @ q) / fnp.maximum(abs(n @ q), 1.0)

        return scan(step, (fnp.zeros((16, 16)), fnp.zeros(16)), x)[1]

    return run, (normal(3, 16, 16, scale=0.2), normal(400, 16))


def random_field() -> Built:
    """The partition function of a conditional random field."""

    def run(moves: Any, scores: Any) -> Any:
        def step(alpha: Any, score: Any) -> Any:
            ways = alpha[:, None] + moves
            top = ways.max(0)
            return top + fnp.log(fnp.exp(ways - top).sum(0)) + score, None

        return scan(step, scores[0], scores[1:])[0]

    return run, (normal(24, 24), normal(300, 24))


def soft_warping() -> Built:
    """Dynamic time warping with a soft minimum, cell by cell."""

    def run(x: Any, y: Any) -> Any:
        def row(above: Any, x: Any) -> Any:
            def cell(left: Any, given: Any) -> Any:
                corner, up, y = given
                ways = -fnp.stack([corner, up, left])
                here = (x - y) ** 2 - fnp.log(fnp.exp(ways - ways.max()).sum()) - ways.max()
                return here, here

            rest = scan(cell, fnp.float32(1e4), (above[:-1], above[1:], y))[1]
            return fnp.concatenate([fnp.full(1, 1e4), rest]), None

        first = fnp.full(y.shape[0] + 1, 1e4).at[0].set(0.0)
        return scan(row, first, x)[0][-1]

    return run, (normal(80), normal(90, seed=1))


def alignment() -> Built:
    """Needleman and Wunsch's table, with a Ref."""

    def run(a: Any, b: Any) -> Any:
        def row(i: Any, t: Any) -> None:
            def cell(j: Any, nothing: Any) -> None:
                match = fnp.where(a[i] == b[j], 1.0, -1.0)
                best = fnp.maximum(t[i, j] + match, t[i, j + 1] - 2.0)
                t[i + 1, j + 1] = fnp.maximum(best, t[i + 1, j] - 2.0)

            for_loop(b.shape[0], cell, None)

        return for_loop(a.shape[0], row, fnp.zeros((a.shape[0] + 1, b.shape[0] + 1)))

    return run, (integers(4, 120), integers(4, 130, seed=1))


def jacobi() -> Built:
    """A stencil in the plane, with a fixed border."""

    def run(u: Any) -> Any:
        def sweep(i: Any, u: Any) -> Any:
            inside = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
            return u.at[1:-1, 1:-1].set(inside)

        return fori_loop(0, 100, sweep, u)

    return run, (normal(64, 64),)


def waves() -> Built:
    """The wave equation, of which two states are carried."""

    def run(speed: Any, u: Any) -> Any:
        def step(state: Any, nothing: Any) -> Any:
            u, before = state
            bend = fnp.roll(u, 1) - 2 * u + fnp.roll(u, -1)
            after = 2 * u - before + speed * bend
            return (after, u), after[0]

        return scan(step, (u, u), length=400)[1]

    return run, (uniform(256, high=0.3), normal(256))


def pendulum() -> Built:
    """Symplectic steps of two numbers."""

    def run(p: Any, start: Any) -> Any:
        def step(state: Any, nothing: Any) -> Any:
            angle, speed = state
            speed = speed - p[0] * 0.01 * fnp.sin(angle) - p[1] * 0.01 * speed
            return (angle + 0.01 * speed, speed), angle

        return scan(step, (start[0], start[1]), length=5_000)[1]

    return run, (numbers(9.8, 0.1), numbers(1.0, 0.0))


def springs() -> Built:
    """Verlet steps of a chain of springs."""

    def run(stiffness: Any, x: Any) -> Any:
        def step(i: Any, state: Any) -> Any:
            x, v = state
            stretch = fnp.diff(x) - 1.0
            force = stiffness * stretch
            f = fnp.concatenate([force, fnp.zeros(1)]) - fnp.concatenate([fnp.zeros(1), force])
            v = v + 0.01 * f
            return x + 0.01 * v, v

        return fori_loop(0, 500, step, (x, fnp.zeros(100)))[0]

    return run, (uniform(99), np.arange(100, dtype=np.float32) + normal(100, scale=0.1))


def extended_kalman() -> Built:
    """A filter with a bent measurement."""

    def run(q: Any, seen: Any) -> Any:
        def step(state: Any, y: Any) -> Any:
            x, p = state
            x = x + 0.1 * fnp.stack([x[1], -fnp.sin(x[0])])
            f = fnp.eye(2) + 0.1 * fnp.stack(
                [fnp.array([0.0, 1.0]), fnp.stack([-fnp.cos(x[0]), fnp.float32(0)])]
            )
            p = f @ p @ f.T + q * fnp.eye(2)
            h = fnp.stack([fnp.cos(x[0]), fnp.float32(0)])
            s = h @ p @ h + 0.1
            k = p @ h / s
            return (x + k * (y - fnp.sin(x[0])), p - fnp.outer(k, h @ p)), x[0]

        return scan(step, (fnp.zeros(2), fnp.eye(2)), seen)[1]

    return run, (np.float32(0.01), normal(800))


def momentum() -> Built:
    """Gradient descent with momentum on a logistic regression."""

    def run(w: Any, x: Any, y: Any) -> Any:
        def step(i: Any, state: Any) -> Any:
            w, m = state
            m = 0.9 * m + x.T @ (sigmoid(x @ w) - y) / 200
            return w - 0.5 * m, m

        return fori_loop(0, 200, step, (w, fnp.zeros(40)))[0]

    return run, (normal(40), normal(200, 40), uniform(200).round())


def conjugate_gradients() -> Built:
    """So many steps of the method of conjugate gradients."""

    def run(b: Any, a: Any) -> Any:
        def step(i: Any, state: Any) -> Any:
            x, r, p, rr = state
            ap = a @ p
            alpha = rr / (p @ ap)
            x, r = x + alpha * p, r - alpha * ap
            new = r @ r
            return x, r, r + new / rr * p, new

        return fori_loop(0, 20, step, (fnp.zeros(128), b, b, b @ b))[0]

    m = normal(128, 128, scale=0.1)
    return run, (normal(128), m @ m.T + np.eye(128, dtype=np.float32))


def rotations() -> Built:
    """Givens rotations of two rows at a time, in place."""

    def run(a: Any) -> Any:
        def rotate(k: Any, r: Any) -> None:
            x, y = r[k], r[k + 1]
            length = fnp.sqrt(x[0] ** 2 + y[0] ** 2 + 0.1)
            c, s = x[0] / length, y[0] / length
            r[k] = c * x + s * y
            r[k + 1] = c * y - s * x

        return for_loop(199, rotate, a)

    return run, (normal(200, 50),)


def triangular_inverse() -> Built:
    """The inverse of a triangular matrix, a row a step."""

    def run(a: Any) -> Any:
        def row(i: Any, x: Any) -> None:
            e = (fnp.arange(48) == i).astype("float32")
            x[i] = (e - a[i] @ x[...] + a[i, i] * x[i]) / a[i, i]

        return for_loop(48, row, fnp.zeros((48, 48)))

    return run, (np.tril(normal(48, 48, scale=0.1)) + np.eye(48, dtype=np.float32),)


def chebyshev() -> Built:
    """A recurrence of two terms on a vector."""

    def run(c: Any, x: Any) -> Any:
        def step(state: Any, c: Any) -> Any:
            before, now, total = state
            return (now, 2 * x * now - before, total + c * now), None

        return scan(step, (fnp.ones_like(x), x, fnp.zeros_like(x)), c)[0][2]

    return run, (normal(300, scale=0.1), uniform(500, low=-1.0))


def decaying_peak() -> Built:
    """A maximum that is forgotten."""

    def run(x: Any) -> Any:
        def step(peak: Any, x: Any) -> Any:
            peak = fnp.maximum(0.99 * peak, x)
            return peak, peak

        return scan(step, fnp.float32(0), x)[1]

    return run, (normal(15_000),)


def relaxation() -> Built:
    """Bellman and Ford: each edge shortens the way to its end, in place."""

    def run(start: Any, end: Any, length: Any) -> Any:
        def sweep(i: Any, d: Any) -> None:
            def edge(k: Any, nothing: Any) -> None:
                d[end[k]] = fnp.minimum(d[end[k]], d[start[k]] + length[k])

            for_loop(2_000, edge, None)

        return for_loop(10, sweep, fnp.full(300, 1e9).at[0].set(0.0))

    return run, (integers(300, 2_000), integers(300, 2_000, seed=1), uniform(2_000))


def coins() -> Built:
    """Ways to change an amount: an element that depends on one some places back."""

    def run(values: Any) -> Any:
        def coin(k: Any, ways: Any) -> None:
            def amount(j: Any, nothing: Any) -> None:
                ways[j] += fnp.where(j >= values[k], ways[fnp.maximum(j - values[k], 0)], 0.0)

            for_loop(1_000, amount, None)

        return for_loop(8, coin, fnp.zeros(1_001).at[0].set(1.0))

    return run, (1 + integers(50, 8),)


def matrix_chain() -> Built:
    """A product of many matrices."""

    def run(a: Any) -> Any:
        return scan(lambda p, a: (p @ a, None), fnp.eye(24), a)[0]

    return run, (normal(200, 24, 24, scale=0.2),)


def changing_variance() -> Built:
    """The likelihood of a series whose variance follows its squares."""

    def run(p: Any, x: Any) -> Any:
        def step(s: Any, x: Any) -> Any:
            s = p[0] + p[1] * x * x + p[2] * s
            return s, fnp.log(s) + x * x / s

        return scan(step, fnp.float32(1.0), x)[1]

    return run, (numbers(0.1, 0.1, 0.8), normal(5_000))


def advantages() -> Built:
    """Generalised advantage estimates, backward in time, for a batch."""

    def run(values: Any, rewards: Any) -> Any:
        def step(later: Any, given: Any) -> Any:
            value, after, reward = given
            now = reward + 0.99 * after - value + 0.94 * later
            return now, now

        first = fnp.zeros(64)
        return scan(step, first, (values[:-1], values[1:], rewards), reverse=True)[1]

    return run, (normal(1_001, 64), normal(1_000, 64))


def spikes() -> Built:
    """Neurons that leak, fire, and are reset."""

    def run(w: Any, x: Any) -> Any:
        def step(state: Any, x: Any) -> Any:
            v, fired = state
            v = 0.9 * v * (1 - fired) + x + w @ fired
            fired = (v > 1.0).astype("float32")
            return (v, fired), fired

        return scan(step, (fnp.zeros(64), fnp.zeros(64)), x)[1]

    return run, (normal(64, 64, scale=0.1), uniform(500, 64))


def residual_layers() -> Built:
    """Layers with a norm, each under a checkpoint."""

    def run(w: Any, x: Any) -> Any:
        def layer(x: Any, w: Any) -> Any:
            y = x / fnp.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)
            gate = sigmoid(y @ w[0])
            return x + (gate * (y @ w[1])) @ w[2], None

        return scan(checkpoint(layer), x, w)[0]

    return run, (normal(16, 3, 96, 96, scale=0.05), normal(64, 96))


def convolutions() -> Built:
    """Layers of convolutions on a line, by shifted products."""

    def run(w: Any, x: Any) -> Any:
        def layer(x: Any, w: Any) -> Any:
            left, right = fnp.roll(x, 1, 0), fnp.roll(x, -1, 0)
            return x + fnp.tanh(left @ w[0] + x @ w[1] + right @ w[2]), None

        return scan(layer, x, w)[0]

    return run, (normal(12, 3, 32, 32, scale=0.1), normal(256, 32))


def experts() -> Built:
    """A mixture of experts, one after the other."""

    def run(w: Any, gates: Any, x: Any) -> Any:
        weights = softmax(x @ gates, 1)

        def expert(y: Any, given: Any) -> Any:
            w, weight = given
            return y + weight[:, None] * fnp.tanh(x @ w[0]) @ w[1], None

        return scan(expert, fnp.zeros_like(x), (w, weights.T))[0]

    return run, (normal(8, 2, 64, 64, scale=0.1), normal(64, 8), normal(128, 64))


def couplings() -> Built:
    """A normalising flow: halves that scale and move each other."""

    def run(w: Any, x: Any) -> Any:
        def layer(state: Any, w: Any) -> Any:
            a, b, total = state
            scale = fnp.tanh(a @ w[0])
            return (b * fnp.exp(scale) + a @ w[1], a, total + scale.sum()), None

        return scan(layer, (x[:, :32], x[:, 32:], fnp.float32(0)), w)[0]

    return run, (normal(20, 2, 32, 32, scale=0.1), normal(64, 64))


def inner_sums() -> Built:
    """A loop that adds up in a loop, and multiplies what comes out."""

    def run(x: Any) -> Any:
        def row(c: Any, x: Any) -> Any:
            inner = scan(lambda s, x: (s + fnp.sin(c * x), None), fnp.float32(0), x)[0]
            return c * 0.5 + 0.01 * inner, inner

        return scan(row, fnp.float32(1), x)[1]

    return run, (normal(100, 100),)


def lanes_that_end() -> Built:
    """Lanes that end early, each at its own step."""

    def run(a: Any) -> Any:
        def one(a: Any) -> Any:
            step = lambda x, nothing: (x + 0.1 * (a / x - x), x)
            return scan(step, fnp.float32(1), length=200, until=lambda x: abs(x * x - a) < 1e-3)[0]

        return vmap(one)(a)

    return run, (uniform(128, low=0.5, high=4.0),)


def three_nested() -> Built:
    """Loops in loops in loops on a Ref of rows."""

    def run(x: Any) -> Any:
        def a(i: Any, y: Any) -> None:
            def b(j: Any, nothing: Any) -> None:
                def c(k: Any, nothing: Any) -> None:
                    y[j, k + 1] = 0.5 * y[j, k + 1] + fnp.tanh(y[j, k])

                for_loop(9, c, None)

            for_loop(10, b, None)

        return for_loop(20, a, x)

    return run, (normal(10, 10),)


def walk() -> Built:
    """A walk on a graph: the next index is what is read."""

    def run(after: Any, start: Any) -> Any:
        def step(i: Any, state: Any) -> None:
            at, visits = state
            visits[at[...]] += 1
            at[...] = after[at[...]]

        return for_loop(20_000, step, (start, fnp.zeros(500, np.int32)))[1]

    return run, (integers(500, 500), np.int32(0))


def life() -> Built:
    """The game of life on a torus."""

    def run(alive: Any) -> Any:
        def step(i: Any, x: Any) -> Any:
            rows = x + fnp.roll(x, 1, 0) + fnp.roll(x, -1, 0)
            near = rows + fnp.roll(rows, 1, 1) + fnp.roll(rows, -1, 1) - x
            return ((near == 3) | ((x == 1) & (near == 2))).astype("int32")

        return fori_loop(0, 100, step, alive)

    return run, (integers(2, 64, 64),)


def gibbs() -> Built:
    """Draws in every step, from a key and the step's number."""

    def run(bias: Any) -> Any:
        key = random.key(0)

        def step(i: Any, x: Any) -> Any:
            p = sigmoid(bias + 0.5 * (fnp.roll(x, 1) + fnp.roll(x, -1)))
            return (random.uniform(random.fold_in(key, i), (128,)) < p).astype("float32")

        return fori_loop(0, 200, step, fnp.zeros(128))

    return run, (normal(128),)


def branches_in_steps() -> Built:
    """A branch a step, one of which is dear, on an array in place."""

    def run(x: Any) -> Any:
        def step(i: Any, y: Any) -> Any:
            dear = lambda y: y.at[i].set(fnp.sin(y[i - 1]) + fnp.exp(-(y[i] ** 2)))
            return cond(y[i] > 0.5, dear, lambda y: y.at[i].add(0.1 * y[i - 1]), y)

        return fori_loop(1, 2_000, step, x)

    return run, (normal(2_000),)
