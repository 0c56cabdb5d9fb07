"""The memory of indices, windows and branches over time: what the simulation tells beside what XLA has counted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop import nn
from fiveloop.core import grad, jit, make_jaxpr
from fiveloop.loops import cond, scan
from fiveloop.remat import checkpoint
from fiveloop.remat.timeline import peak, upper

N, PLACES = np.ones((64, 64), np.float32), np.arange(400, dtype=np.int32)


def planned_and_told(fun: Any, args: Any) -> tuple[int, int]:
    planned = jit(fun).lower(*args).compile().memory_analysis().temp
    return planned, peak(make_jaxpr(fun)(*args))


def scattered(ws: Any, x: Any) -> Any:
    """Zeros to which elements are added are filled once, and copied for each array at once."""

    def loss(ws: Any) -> Any:
        h = x
        for w in ws:
            h = fnp.sort(fnp.tanh(h @ w)) + h
        return (h * h).sum()

    return grad(loss)(ws)


def edges(w: Any, u: Any, places: Any) -> Any:
    """The gradient of messages added to nodes: what is read outside of an array is zero, by a selection of its own."""

    def loss(w: Any, u: Any) -> Any:
        h = N @ w
        sent = (1 + fnp.tanh(h @ u)[places])[:, None] * h[places]
        return (fnp.zeros((64, 64), np.float32).at[places].add(sent) ** 2).sum()

    return grad(loss, argnums=(0, 1))(w, u)


def grid(g: Any, ws: Any, rows: Any, columns: Any) -> Any:
    """Positions along two axes are joined once for what reads and adds there, with which of them are inside."""

    def loss(g: Any, ws: Any) -> Any:
        for w in ws:
            g = g.at[rows, columns].add(fnp.tanh(g[rows, columns] @ w))
        return (g * g).mean()

    return grad(loss, argnums=(0, 1))(g, ws)


def windows(w: Any, x: Any) -> Any:
    """The gradient of windows of padded images: cotangents are cut at the edges, for each use anew, as by a slice."""

    def loss(w: Any, x: Any) -> Any:
        y = fnp.pad(fnp.concatenate([fnp.tanh(x), x], -1), ((0, 0), (1, 1), (1, 1), (0, 0)))
        n = x.shape[1]
        places = [y[:, i : i + n, j : j + n] for i in range(3) for j in range(3)]
        return (fnp.tanh(fnp.concatenate(places, -1) @ w) ** 2).sum()

    return grad(loss, argnums=(0, 1))(w, x)


def grouped(w: Any, x: Any) -> Any:
    """Shares that are reshaped for a product, and used as they are, are there in both forms."""

    def loss(w: Any) -> Any:
        q = (x @ w).reshape(64, 4, 16)
        s = nn.softmax(fnp.einsum("tgd,sd->gts", q, x[:, :16]))
        return (fnp.einsum("gts,sd->tgd", s, x) ** 2).sum()

    return grad(loss)(w)


def switched(ws: Any, xs: Any) -> Any:
    """The sums of cotangents that a branch in a loop gives are not written over those that it is given."""

    def loss(ws: Any) -> Any:
        def step(h: Any, i: Any) -> Any:
            x, first = i
            one, other = (lambda h, w=w: fnp.tanh(w @ h) for w in ws)
            return cond(first, one, other, h + x), None

        return (scan(step, xs[0], (xs, np.arange(8) % 2 == 0))[0] ** 2).sum()

    return grad(loss)(ws)


def between_branches(ws: Any, x: Any) -> Any:
    """What enters branches, or comes of them, is in tuples: what is ready runs first."""

    def loss(ws: Any) -> Any:
        g, h = fnp.cos(x), x
        for w in ws:
            h = checkpoint(lambda h, w: nn.leaky_relu(h @ w) @ w.T)(h, w)
            g = nn.leaky_relu(g @ w)
        return (h * h + g * g).sum()

    return grad(loss)(ws)


def turned(ws: Any, x: Any) -> Any:
    """What enters a branch with its axes in another order is copied there."""

    def loss(ws: Any) -> Any:
        h = x
        for w, v in ws:
            heads = (h @ w).reshape(64, 4, 16).transpose(1, 0, 2)
            mix = checkpoint(lambda q, v: fnp.tanh(q @ v) @ v.transpose(0, 2, 1))
            h = h + mix(heads, v).transpose(1, 0, 2).reshape(64, 64)
        return (h * h).sum()

    return grad(loss)(ws)


def chosen(ws: Any, places: Any) -> Any:
    """An array that an update in a branch makes a result of is not written over another one."""

    def loss(logits: Any) -> Any:
        taken = fnp.take_along_axis(logits, places[:, None], -1)
        return (nn.logsumexp(logits, -1) - taken[:, 0]).mean()

    def model(ws: Any) -> Any:
        x, w, out = ws
        hidden = checkpoint(lambda x, w: fnp.tanh(x @ w))(x, w)
        return checkpoint(loss)(checkpoint(lambda h, w: h @ w)(hidden, out))

    return grad(checkpoint(model))(ws)


@pytest.mark.parametrize(
    ("fun", "args"),
    [
        (scattered, ([N + k for k in range(3)], N)),
        (
            grid,
            (
                N[:16, :32].reshape(16, 16, 2),
                [N[:2, :2] + k for k in range(4)],
                PLACES % 16,
                PLACES % 16,
            ),
        ),
        (windows, (np.ones((72, 8), np.float32), np.ones((2, 16, 16, 4), np.float32))),
        (grouped, (N, N)),
        (switched, ([np.ones((256, 256), np.float32)] * 2, N[:8].repeat(4, axis=1))),
        (between_branches, ([N, N + 1], N)),
        (chosen, ((N, N, np.ones((64, 500), np.float32)), PLACES[:64])),
    ],
)
def test_the_peak_is_that_of_the_compiler(fun: Any, args: Any) -> None:
    planned, told = planned_and_told(fun, args)
    assert 0.95 * planned <= told <= 1.05 * planned


def test_what_is_read_outside_of_an_array_is_selected_before_a_library_sums() -> None:
    planned, told = planned_and_told(edges, (N, N[:, 0], PLACES[:256] % 64))
    assert planned <= 1.05 * told


def test_what_a_branch_is_given_transposed_is_counted_twice() -> None:
    args = [(N, np.ones((4, 16, 16), np.float32))] * 3, N
    planned, _ = planned_and_told(turned, args)
    assert planned <= 1.02 * upper(make_jaxpr(turned)(*args)).peak
