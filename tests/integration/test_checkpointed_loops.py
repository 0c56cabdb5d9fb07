"""Checkpoints in loops and loops in checkpoints: values, derivatives, residuals and compiled memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import (
    Jaxpr,
    Policy,
    grad,
    jit,
    jvp,
    make_jaxpr,
    stop_gradient,
    tree_leaves,
    value_and_grad,
    vmap,
)
from fiveloop.core.extend import jaxprs_in
from fiveloop.core.rules import Slots
from fiveloop.loops import cond, for_loop, scan, while_loop
from fiveloop.remat import checkpoint, checkpoint_name, policies, saved_residuals
from fiveloop.state import new_ref
from fiveloop.testing.core.compare import assert_all_close

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


SQUARE = np.full((3, 3), 0.5, np.float32)
MATRIX = np.arange(9, dtype=np.float32).reshape(3, 3) / 10


def product(x: Any) -> Any:
    return checkpoint_name(MATRIX @ fnp.sin(x), "product")


def branches(x: Any) -> Any:
    return cond(x[0, 0] > 0, lambda: product(x), lambda: fnp.exp(product(x)))


def stacked(x: Any) -> Any:
    return scan(lambda c, v: (c, product(v) + v * v), 0.0, fnp.stack([x, x]))[1]


def within(x: Any) -> Any:
    """A checkpoint of a call in the body of a scan."""
    layer = checkpoint(lambda c: fnp.sin(jit(product)(c)), policy=policies.dots_saveable)
    return scan(lambda c, _: (layer(c), None), x, None, length=2)[0]


def counted(x: Any) -> Any:
    return while_loop(lambda c: c[0, 0] < -9.0, product, stop_gradient(x)) * x


def products(jaxpr: Jaxpr, times: int = 1) -> int:
    """How many products a run makes, all branches counted."""
    own = times * sum(eqn.primitive.name == "dot_general" for eqn in jaxpr.eqns)
    inner = (
        products(j, times * getattr(eqn.params, "nsteps", 1))
        for eqn in jaxpr.eqns
        for j in jaxprs_in(eqn.params)
    )
    return own + sum(inner)


@pytest.mark.parametrize(
    ("f", "wanted", "kept"),
    [(branches, 4, 1), (stacked, 4, 1), (within, 4, 2), (counted, 1, 1)],
)
def test_a_policy_is_obeyed_for_results_of_branches_and_loops(
    f: Any, wanted: int, kept: int
) -> None:
    """Each product is made once, and once more in the gradient, and one array is kept of it."""
    policy = policies.dots_saveable
    g = checkpoint(lambda x: fnp.sin(f(x)), policy=policy)
    jaxpr = make_jaxpr(grad(lambda x: g(x).sum()))(SQUARE)
    assert products(jaxpr) == wanted
    assert len(saved_residuals(g, SQUARE)) == kept + 1
    np.testing.assert_allclose(
        np.asarray(grad(lambda x: g(x).sum())(SQUARE)),
        np.asarray(grad(lambda x: fnp.sin(f(x)).sum())(SQUARE)),
        rtol=1e-5,
    )
    plain = [jvp(jit(grad(lambda x, f=f: fnp.sin(f(x)).sum())), (SQUARE,), (MATRIX,))[1]]
    kept_again = [jvp(jit(grad(lambda x: g(x).sum())), (SQUARE,), (MATRIX,))[1]]
    assert_all_close(kept_again, plain)


def test_branches_that_are_computed_again_save_what_goes_back_through_them() -> None:
    """Of each product there is one on the way forward, one again, and one on the way back."""

    def run(x: Any) -> Any:
        for _ in range(3):
            x = cond(x[0, 0] > 0, lambda x: fnp.exp(product(x)), lambda x: fnp.sin(product(x)), x)
        return x.sum()

    jaxpr = make_jaxpr(value_and_grad(checkpoint(run)))(SQUARE)
    assert products(jaxpr) == 3 * 2 * 3
    np.testing.assert_allclose(
        jit(grad(checkpoint(run)))(SQUARE), jit(grad(run))(SQUARE), rtol=1e-5, atol=1e-6
    )


def test_labels_in_loops_and_branches_are_told() -> None:
    """What a loop or a branch keeps goes by the label that the value has within."""
    policy = policies.save_only_these_names("product")

    def step(c: Any, v: Any) -> Any:
        h = cond(v[0, 0] > 0, lambda: fnp.exp(product(v)), lambda: fnp.sin(product(v)))
        return c + h, None

    scanned = checkpoint(lambda x: scan(step, x, fnp.stack([x, x]))[0], policy=policy)
    found = {r.origin for r in saved_residuals(scanned, SQUARE)}
    assert found == {"argument `x`", "named 'product'"}


def test_of_checkpoints_in_a_step_one_is_computed_again_after_the_other() -> None:
    def temporary(parts: int) -> int:
        def loss(ws: Any, x: Any) -> Any:
            def step(h: Any, w: Any) -> tuple[Any, None]:
                for k in range(parts):
                    h = checkpoint(lambda h, w: fnp.tanh(fnp.tanh(h @ w) @ w.T))(h, w[k])
                return h, None

            return scan(step, x, ws)[0].sum()

        ws, x = np.ones((2, parts, 32, 512), np.float32), np.ones((64, 32), np.float32)
        return jit(grad(loss)).lower(ws, x).compile().memory_analysis().temp

    assert temporary(8) < 3.5 * temporary(1), "the wide values of one part are there at a time"


def test_steps_within_a_checkpoint_are_computed_again_one_at_a_time() -> None:
    def run(w: Any, start: Any) -> Any:
        return scan(lambda h, _: (fnp.tanh(fnp.sin(h @ w)), None), start, None, length=50)[0].sum()

    def temporary(f: Any) -> Any:
        return jit(grad(f)).lower(WEIGHTS[0], X).compile().memory_analysis().temp

    assert temporary(checkpoint(run)) < 0.75 * temporary(run)


@pytest.mark.parametrize("slots", [1, 3])
def test_a_policy_may_have_loops_gone_back_through_from_saved_states(slots: int) -> None:
    def run(w: Any, h: Any) -> Any:
        h, _ = scan(lambda h, _: (fnp.tanh(h @ w), None), h, None, length=9)
        _, h = while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, fnp.sin(c[1] @ w)), (0, h))
        return h.sum()

    def schedule(eqn: Any) -> Any:
        return Slots(slots=slots) if eqn.primitive.name in ("for", "while") else policies.SAVE

    gradient = grad(checkpoint(run, policy=schedule))
    text = str(make_jaxpr(gradient)(WEIGHTS[0], X))
    assert text.count(f"slots={slots}") >= 2, "both loops are replayed"
    np.testing.assert_allclose(
        jit(gradient)(WEIGHTS[0], X), jit(grad(run))(WEIGHTS[0], X), rtol=1e-4, atol=1e-5
    )


def test_a_while_in_a_checkpoint_in_a_loop_keeps_no_ref_of_each_step() -> None:
    """Elements sink in an array, one after the other; the call that lets one sink is checkpointed."""
    size = 2_000

    @checkpoint
    def sink(y: Any, i: Any, p: Any) -> Any:
        def swap(i: Any) -> Any:
            y[i - 1], y[i] = y[i] * p, fnp.sin(y[i - 1])
            return i - 1

        return while_loop(lambda i: (i > 0) & (y[i] < y[i - 1]), swap, i)

    def f(x: Any, p: Any) -> Any:
        y = new_ref(x)

        def step(i: Any, _: Any) -> None:
            sink(y, i, p)

        for_loop(size, step, ())
        return fnp.sum(y[...] ** 2)

    x, v = np.random.default_rng(0).standard_normal((2, size))
    p = np.float64(0.9)
    compiled = jit(grad(f, (0, 1))).lower(x, p).compile()
    x_bar, p_bar = compiled(x, p)
    slope = jit(lambda x, p: jvp(f, (x, p), (v, np.float64(1.0)))[1])(x, p)
    np.testing.assert_allclose(np.dot(x_bar, v) + p_bar, slope, rtol=1e-9)
    assert compiled.copies == 0
    assert compiled.memory_analysis().temp < size / 5 * x.nbytes


@jit
def in_a_ref(x: Any) -> Any:
    """A call that makes a Ref, writes a value that is not linear in its input, and reads the Ref."""
    ref = new_ref(x)
    ref[...] = ref[...] * fnp.sin(ref[...])
    return ref[...]


@pytest.mark.parametrize(
    "program",
    [
        lambda x: cond(x > 0, lambda x: fnp.sin(in_a_ref(fnp.sin(x))), lambda x: x, x),
        lambda x: scan(lambda c, _: (fnp.sin(in_a_ref(fnp.sin(c))), None), x, None, length=3)[0],
        lambda x: for_loop(2, lambda _, r: r.__setitem__(..., in_a_ref(in_a_ref(r[...]))), x),
    ],
    ids=["cond", "scan", "for_loop"],
)
def test_calls_in_loops_and_branches_may_make_refs(program: Callable[[Any], Any]) -> None:
    x = np.float32(1.3)
    for twice in (grad, lambda f: grad(grad(f))):
        assert_all_close([twice(checkpoint(program))(x)], [twice(program)(x)], "gradient")
