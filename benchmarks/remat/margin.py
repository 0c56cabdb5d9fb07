"""The margin of budgets, measured: `python benchmarks/remat/margin.py [family ...]`.

Programs that are not those of the remat bench, of many kinds and sizes, are planned; of each some plans are compiled,
and their temporary bytes are printed beside those that the planner gives them, with its margins. The distribution of
the ratios follows at the end: the margins are too small if many are above 1.05, and too large if all are far below 1.
Take it again when the simulation or the compiler changes, put the margins into `fiveloop.remat.budget.plan`, and run
the remat bench, whose models are held out.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

import fiveloop.numpy as fnp
from fiveloop.core import grad, jit, make_jaxpr
from fiveloop.core.extend import jvp_jaxpr
from fiveloop.loops import scan
from fiveloop.remat import checkpoint
from fiveloop.remat.budget import plan

Loss = Callable[..., Any]
Made = tuple[str, Loss, tuple[Any, ...]]
DRAWN = np.random.default_rng(1)
PLANS = 3
"""How many plans of each program are compiled: the first, the last, and some between."""


def normal(*shape: int) -> np.ndarray:
    """Random numbers of a size that keeps the size of what they multiply."""
    scale = shape[-2] ** -0.5 if len(shape) > 1 else 1.0
    return (scale * DRAWN.standard_normal(shape)).astype(np.float32)


def normalised(x: Any) -> Any:
    """Values of mean zero and variance one along the last axis."""
    centred = x - fnp.mean(x, axis=-1, keepdims=True)
    return centred / fnp.sqrt(fnp.mean(centred * centred, axis=-1, keepdims=True) + 1e-5)


def softmax(x: Any) -> Any:
    """Positive values of sum one along the last axis."""
    e = fnp.exp(x - fnp.max(x, axis=-1, keepdims=True))
    return e / fnp.sum(e, axis=-1, keepdims=True)


def perceptron(layers: int, width: int, batch: int, kind: str) -> Made:
    """Layers written out: plain, residual, or normalised and residual."""
    ws = [normal(width, width) for _ in range(layers)]

    def loss(ws: Any, x: Any) -> Any:
        for w in ws:
            if kind == "plain":
                x = fnp.tanh(x @ w)
            elif kind == "residual":
                x = x + fnp.sin(x @ w) * fnp.exp(-x * x)
            else:
                x = x + fnp.maximum(normalised(x) @ w, 0.0) @ w
        return fnp.mean(x * x)

    return f"perceptron {kind} {layers}x{width}x{batch}", loss, (ws, normal(batch, width))


def attention(layers: int, time: int, width: int, batch: int, looped: bool) -> Made:
    """Layers of attention and two products, written out or run by `scan`."""
    params = (normal(layers, width, 3 * width), normal(layers, width, width))

    def layer(x: Any, p: Any) -> tuple[Any, None]:
        q, k, v = (
            fnp.reshape(normalised(x) @ p[0], (batch, time, 3, width))[:, :, j] for j in range(3)
        )
        x = x + softmax(q @ k.transpose(0, 2, 1) * width**-0.5) @ v
        return x + fnp.tanh(x @ p[1]) @ p[1].T, None

    def loss(params: Any, x: Any) -> Any:
        if looped:
            x, _ = scan(layer, x, params)
        else:
            for j in range(layers):
                x, _ = layer(x, (params[0][j], params[1][j]))
        return fnp.mean(x * x)

    return (
        f"attention {'scan ' if looped else ''}{layers}x{time}x{width}x{batch}",
        loss,
        (params, normal(batch, time, width)),
    )


def recurrent(steps: int, width: int, batch: int, gated: bool) -> Made:
    """A recurrent network over time, plain or gated."""
    w, u = normal(width, 3 * width), normal(width, 3 * width)

    def step(h: Any, x: Any, w: Any, u: Any) -> tuple[Any, Any]:
        a, b = x @ w, h @ u
        if not gated:
            h = fnp.tanh(a[:, :width] + b[:, :width])
            return h, fnp.sum(h)
        z = 1 / (1 + fnp.exp(-(a + b)[:, :width]))
        r = 1 / (1 + fnp.exp(-(a + b)[:, width : 2 * width]))
        h = (1 - z) * h + z * fnp.tanh(a[:, 2 * width :] + r * b[:, 2 * width :])
        return h, fnp.sum(h * h)

    def loss(params: Any, xs: Any) -> Any:
        h = fnp.zeros((batch, width), np.float32)
        h, sums = scan(lambda h, x: step(h, x, *params), h, xs)
        return fnp.mean(h) + fnp.mean(sums)

    return (
        f"recurrent {'gated ' if gated else ''}{steps}x{width}x{batch}",
        loss,
        ((w, u), normal(steps, batch, width)),
    )


def drawn(size: int, width: int, seed: int) -> Made:
    """A random straight program on square matrices."""
    draw = np.random.default_rng(seed)
    w = normal(width, width)
    steps = [
        lambda x, y: fnp.sin(x) * y,
        lambda x, y: fnp.tanh(x @ w),
        lambda x, y: x.T @ y * (1 / width),
        lambda x, y: normalised(x) + y,
        lambda x, y: softmax(x),
        lambda x, y: fnp.where(x > y, x, 0.1 * y),
        lambda x, y: x - fnp.sum(x * y, axis=0) * (1 / width),
        lambda x, y: fnp.exp(-x * x) + y,
    ]
    which = draw.integers(0, len(steps), size)
    back = draw.integers(1, 6, size)

    def loss(x: Any) -> Any:
        made = [x]
        for k, far in zip(which, back, strict=True):
            made.append(steps[k](made[-1], made[-min(far, len(made))]))
        return fnp.mean(made[-1] * made[-1])

    return f"drawn {size}x{width} #{seed}", loss, (normal(width, width),)


def convolved(blocks: int, places: int, width: int, batch: int) -> Made:
    """Convolutions of three places, with a skip over each two and pooling between."""
    ws = [normal(3 * width, width) for _ in range(2 * blocks)]

    def conv(x: Any, w: Any) -> Any:
        edge = fnp.zeros_like(x[:, :1])
        shifted = [
            fnp.concatenate([edge, x[:, :-1]], axis=1),
            x,
            fnp.concatenate([x[:, 1:], edge], axis=1),
        ]
        return fnp.concatenate(shifted, axis=-1) @ w

    def loss(ws: Any, x: Any) -> Any:
        for j in range(blocks):
            x = x + conv(fnp.maximum(conv(x, ws[2 * j]), 0.0), ws[2 * j + 1])
            if j % 2 and x.shape[1] > 4:
                x = (x[:, ::2] + x[:, 1::2]) * 0.5
        return fnp.mean(x * x)

    return f"convolved {blocks}x{places}x{width}x{batch}", loss, (ws, normal(batch, places, width))


FAMILIES: dict[str, Callable[[], Iterator[Made]]] = {
    "perceptron": lambda: (
        perceptron(layers, width, batch, kind)
        for kind in ("plain", "residual", "normalised")
        for layers, width, batch in ((4, 32, 64), (10, 64, 256), (24, 96, 32))
    ),
    "attention": lambda: (
        attention(layers, time, width, batch, looped)
        for looped in (False, True)
        for layers, time, width, batch in ((2, 32, 16, 4), (4, 64, 32, 2), (8, 16, 48, 8))
    ),
    "recurrent": lambda: (
        recurrent(steps, width, batch, gated)
        for gated in (False, True)
        for steps, width, batch in ((16, 16, 64), (100, 32, 8), (400, 24, 4))
    ),
    "drawn": lambda: (
        drawn(size, width, seed)
        for seed, (size, width) in enumerate([(10, 64), (20, 48), (40, 64)] * 5)
    ),
    "convolved": lambda: (
        convolved(*sizes) for sizes in ((3, 64, 16, 4), (6, 32, 32, 8), (10, 128, 8, 2))
    ),
}


def planner_of(loss: Loss, args: tuple[Any, ...]) -> plan.Planner:
    """The plans of a loss in all of its arguments."""
    jaxpr = make_jaxpr(loss)(*args)
    size = len(jaxpr.invars)
    made, _ = jvp_jaxpr(jaxpr, (True,) * size)
    return plan.Planner(made, (False,) * size + (True,) * size, None)


def measured(loss: Loss, args: tuple[Any, ...], budget: int) -> int:
    """The temporary bytes of the gradient within a budget."""
    within = checkpoint(loss, budget=budget)
    return (
        jit(grad(within, argnums=tuple(range(len(args)))))
        .lower(*args)
        .compile()
        .memory_analysis()
        .temp
    )


def main(names: list[str]) -> None:
    """Print the plans of each program, and what they need of what they are given."""
    shares: list[float] = []
    for family in names or FAMILIES:
        for name, loss, args in FAMILIES[family]():
            found = planner_of(loss, args).candidates
            places = np.linspace(0, len(found) - 1, min(PLANS, len(found))).round()
            row: list[str] = []
            for candidate in [found[int(k)] for k in places]:
                given = candidate.bytes
                used = measured(loss, args, given)
                shares.append(used / given)
                row.append(f"{used:,} / {given:,} = {used / given:.3f}")
            print(f"{name:36}", *[f"{r:36}" for r in row], flush=True)
    cuts = np.quantile(shares, [0, 0.1, 0.5, 0.9, 0.98, 1])
    print(
        f"{len(shares)} plans; they need of what they are given:",
        " ".join(f"{c:.3f}" for c in cuts),
    )


if __name__ == "__main__":
    main(sys.argv[1:])
