"""Loops whose time beside jax is set down, each written once for both libraries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from benchmarks.loops import steps
from benchmarks.model import Program
from benchmarks.planning.loops import integers, normal, total, uniform


@dataclass(frozen=True)
class Library:
    """What the loops are written with."""

    numpy: Any
    scan: Callable[..., Any]
    grad: Callable[..., Any]
    jvp: Callable[..., Any]
    vmap: Callable[..., Any]
    checkpoint: Callable[..., Any]
    sigmoid: Callable[..., Any]
    leaves: Callable[..., Any]


Built = tuple[Callable[..., Any], Sequence[Any]]


def ctc(lib: Library) -> Built:
    """The gradient of a CTC loss: alphas in log space, 200 steps, 40 labels."""
    xp = lib.numpy
    labels = np.zeros(81, np.int32)
    labels[1::2] = 1 + integers(28, 40)
    skip = np.where(labels[2:] != labels[:-2], 0.0, -1e9).astype(np.float32)
    first = np.where(np.arange(81) < 1, 0.0, -1e9).astype(np.float32)

    def loss(logits: Any) -> Any:
        scores = (logits - xp.log(xp.exp(logits).sum(-1, keepdims=True)))[:, labels]

        def step(alpha: Any, score: Any) -> Any:
            one = xp.concatenate([xp.full(1, -1e9), alpha[:-1]])
            two = xp.concatenate([xp.full(2, -1e9), alpha[:-2] + skip])
            return xp.logaddexp(xp.logaddexp(alpha, one), two) + score, None

        end = lib.scan(step, xp.asarray(first), scores)[0]
        return -xp.logaddexp(end[-1], end[-2])

    return lib.grad(loss), (normal(200, 30),)


def viterbi(lib: Library) -> Built:
    """The best of 32 states in each of 500 steps, and from where it is reached."""

    def run(scores: Any, moves: Any) -> Any:
        def step(best: Any, score: Any) -> Any:
            ways = best[:, None] + moves
            return ways.max(0) + score, ways.argmax(0)

        return lib.scan(step, scores[0], scores[1:])

    return run, (normal(500, 32), normal(32, 32))


def lanes(lib: Library) -> Built:
    """The gradient of a batch of 32 scalar scans of 4,000 steps."""

    def one(a: Any, xs: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            h = lib.numpy.tanh(a * h + x)
            return h, h

        return lib.scan(step, lib.numpy.float32(0), xs)[1]

    return lib.grad(lambda a, xs: lib.vmap(one)(a, xs).sum(), (0, 1)), (
        uniform(32),
        normal(32, 4_000),
    )


def four_nested(lib: Library) -> Built:
    """The gradient of scans of four steps, four deep."""

    def nest(depth: int, c: Any) -> Any:
        if not depth:
            return lib.numpy.sin(c) * 1.01
        return lib.scan(lambda c, _: (nest(depth - 1, c), None), c, None, length=4)[0]

    return lib.grad(lambda x: nest(4, x).sum()), (normal(16),)


def adam(lib: Library) -> Built:
    """Twenty Adam steps of an LSTM over 64 steps, in one scan."""
    xp = lib.numpy

    def loss(w: Any, x: Any, y: Any) -> Any:
        named = {"wx": w[0], "wh": w[1], "b": 0.0}
        cell = partial(steps.lstm_cell, xp, lib.sigmoid, named)
        zeros = xp.zeros((16, 64), xp.float32)
        (h, _), _ = lib.scan(lambda s, x: (cell(s, x), None), (zeros, zeros), x)
        return ((h - y) ** 2).mean()

    def run(w: Any, x: Any, y: Any) -> Any:
        def step(state: Any, _: Any) -> Any:
            w, m, v = state
            g = lib.grad(loss)(w, x, y)
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            return (w - 0.01 * m / xp.sqrt(v + 1e-4), m, v), None

        return lib.scan(step, (w, xp.zeros_like(w), xp.zeros_like(w)), None, length=20)[0][0]

    return run, (normal(2, 64, 256, scale=0.1), normal(64, 16, 64), normal(16, 64))


def forward_over_forward(lib: Library) -> Built:
    """Two directions through nested scans, of 40 and of 25 steps."""
    xp = lib.numpy

    def chain(x: Any) -> Any:
        inner = lambda c, i: (xp.sin(c) + 0.1 * i, None)
        outer = lambda c, _: (lib.scan(inner, c, xp.arange(25.0))[0], None)
        return lib.scan(outer, x, None, length=40)[0]

    def run(x: Any) -> Any:
        one = lambda x: lib.jvp(chain, (x,), (xp.ones_like(x),))[1]
        return lib.jvp(one, (x,), (xp.ones_like(x),))[1]

    return run, (normal(8),)


def n_body(lib: Library) -> Built:
    """The gradient of 1,000 steps of 12 bodies, each step under a checkpoint."""
    mass = uniform(12, low=0.5, high=1.5) / 12

    def run(place: Any, speed: Any) -> Any:
        step = lambda state, _: (steps.kick_and_drift(lib.numpy, state[0], state[1], mass), None)
        return total(lib.scan(lib.checkpoint(step), (place, speed), None, length=1_000)[0])

    return lib.grad(run, (0, 1)), (normal(12, 3), normal(12, 3, scale=0.1))


ROWS = {
    "ctc": ctc,
    "viterbi": viterbi,
    "lanes": lanes,
    "four_nested": four_nested,
    "adam": adam,
    "forward_over_forward": forward_over_forward,
    "n_body": n_body,
}


def straight_line(lib: Library, scans: int) -> Program:
    """So many scans, one after the other, each with a body of its own."""

    def run(x: Any) -> dict[str, Any]:
        for k in range(scans):
            x = lib.scan(
                lambda c, _, k=k: (lib.numpy.sin(c) * (1.0 + k / 1000), None), x, None, length=10
            )[0]
        return {"x": x}

    return Program(run, (normal(8),))


def program(lib: Library, name: str) -> Program:
    """One of the loops in a library; its results are named by number."""
    fun, args = ROWS[name](lib)
    return Program(
        lambda *args: {str(k): x for k, x in enumerate(lib.leaves(fun(*args)))}, tuple(args)
    )
