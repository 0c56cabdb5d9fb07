"""Checkpoints in loops and loops in checkpoints: values, derivatives, residuals and compiled memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import Policy, grad, jit, jvp, tree_leaves, vmap
from fiveloop.core.testing.compare import assert_all_close
from fiveloop.loops import for_loop, scan
from fiveloop.remat import checkpoint, checkpoint_name, policies, saved_residuals

LAYERS, ROWS, WIDTH = 12, 64, 32
WEIGHTS = np.random.default_rng(0).normal(size=(LAYERS, WIDTH, WIDTH)).astype(np.float32) * 0.2
X = np.random.default_rng(1).normal(size=(ROWS, WIDTH)).astype(np.float32)


def scanned(wrap: Callable[[Any], Any]) -> Callable[..., Any]:
    """Layers composed with `scan`."""

    def layer(h: Any, w: Any) -> tuple[Any, None]:
        a = checkpoint_name(fnp.tanh(h @ w), "hidden")
        return h + fnp.sin(a) * fnp.exp(-a), None

    return lambda ws, x: (scan(wrap(layer), x, ws)[0] ** 2).sum()


def looped(wrap: Callable[[Any], Any]) -> Callable[..., Any]:
    """A loop that reads, writes and accumulates into Refs within a checkpoint."""

    def run(ws: Any, x: Any) -> Any:
        def body(i: Any, refs: Any) -> None:
            h, total = refs

            def step() -> None:
                h[i + 1] = fnp.sin(h[i]) * x[i]
                total[...] += h[i + 1] * ws[0, i]

            wrap(step)()

        start = fnp.ones((9, WIDTH)) * x[0]
        _, total = for_loop(8, body, (start, fnp.zeros(WIDTH)))
        return (total**2).sum()

    return run


PROGRAMS = {"scan": scanned, "for": looped}
POLICIES: dict[str, Policy] = {
    "nothing": policies.nothing_saveable,
    "everything": policies.everything_saveable,
    "dots": policies.dots_saveable,
    "names": policies.save_only_these_names("hidden"),
}


def derivatives(f: Callable[..., Any]) -> Callable[..., Any]:
    return jit(
        lambda ws, x: [
            f(ws, x),
            *grad(f, argnums=(0, 1))(ws, x),
            jvp(lambda v: grad(f)(ws, v), (x,), (x,))[1],
            vmap(grad(f, argnums=1), in_axes=(None, 0))(ws, fnp.stack([x, x * 0.5])),
        ]
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_derivatives_through_loops(name: str) -> None:
    made = PROGRAMS[name]
    want = derivatives(made(lambda f: f))(WEIGHTS[:3, :, :], X[:8])
    for policy in ("nothing", "names"):
        wrap = lambda f, p=policy: checkpoint(f, policy=POLICIES[p])
        got = derivatives(made(wrap))(WEIGHTS[:3, :, :], X[:8])
        assert_all_close(tree_leaves(got), tree_leaves(want), policy)


def kept(policy: Policy) -> dict[str, int]:
    """The residuals of the scan: how many of each shape."""
    f = scanned(lambda step: checkpoint(step, policy=policy))
    shapes = [str(r.aval) for r in saved_residuals(f, WEIGHTS, X)]
    return {shape: shapes.count(shape) for shape in shapes}


def test_a_checkpointed_step_keeps_its_carry_alone() -> None:
    stacked = f"f32[{LAYERS},{ROWS},{WIDTH}]"
    assert kept(POLICIES["nothing"])[stacked] == 1
    assert kept(POLICIES["dots"])[stacked] == 2
    assert kept(POLICIES["names"])[stacked] == 2
    assert kept(POLICIES["everything"])[stacked] > 2


def temporary_bytes(policy: Policy) -> int:
    f = scanned(lambda step: checkpoint(step, policy=policy))
    return jit(grad(f)).lower(WEIGHTS, X).compile().memory_analysis().temp


def test_compiled_memory_follows_the_policy() -> None:
    sizes = {name: temporary_bytes(policy) for name, policy in POLICIES.items()}
    assert sizes["nothing"] < sizes["dots"] < sizes["everything"]
    assert sizes["nothing"] < 0.5 * sizes["everything"]
