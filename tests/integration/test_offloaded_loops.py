"""Residuals of loops in another memory: the stack lies there, and a slice is fetched a step ahead."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import grad, jit, make_jaxpr
from fiveloop.core.backend import client
from fiveloop.core.extend import as_value, to_array
from fiveloop.core.lower.dispatch import prepared
from fiveloop.core.lower.module import Lowered
from fiveloop.loops import for_loop, fori_loop, scan, while_loop
from fiveloop.remat import checkpoint, checkpoint_name, policies, saved_residuals

WS = np.random.default_rng(0).standard_normal((5, 3, 3)).astype(np.float32)
X = np.linspace(-1.0, 1.0, 6, dtype=np.float32).reshape(2, 3)
SAVED = policies.save_only_these_names("hidden")
OFFLOADED = policies.save_and_offload_only_these_names(
    names_which_can_be_saved=[], names_which_can_be_offloaded=["hidden"]
)
MOVE = re.compile(
    r"stablehlo\.custom_call @annotate_device_placement\((%[\w#]+)\) \{.*?\}\} : \((.*?)\) -> .*"
)


def layer(w: Any, x: Any) -> Any:
    return fnp.sin(checkpoint_name(fnp.tanh(x @ w), "hidden")) * x


def checkpointed_steps(policy: Any, **options: Any) -> Callable[..., Any]:
    step = checkpoint(lambda x, w: (layer(w, x), None), policy=policy)
    return lambda ws, x: scan(step, x, ws, **options)[0].sum()


def checkpointed_loop(policy: Any) -> Callable[..., Any]:
    run = lambda ws, x: scan(lambda x, w: (layer(w, x), None), x, ws)[0]
    return lambda ws, x: checkpoint(run, policy=policy)(ws, x).sum()


def two_deep(policy: Any) -> Callable[..., Any]:
    def row(x: Any, w: Any) -> Any:
        return fori_loop(0, 3, lambda i, x: layer(w, x), x), None

    run = lambda ws, x: scan(row, x, ws)[0]
    return lambda ws, x: checkpoint(run, policy=policy)(ws, x).sum()


def open_ended(policy: Any) -> Callable[..., Any]:
    def run(ws: Any, x: Any) -> Any:
        body = lambda val: (val[0] + 1, layer(ws[0], val[1]))
        below = lambda val: val[0] < fnp.where(x[0, 0] < 0.0, 4, 3)
        return while_loop(below, body, (0, x), max_steps=6)[1]

    return lambda ws, x: checkpoint(run, policy=policy)(ws, x).sum()


LOOPS: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "checkpointed steps": checkpointed_steps,
    "reversed": lambda policy: checkpointed_steps(policy, reverse=True),
    "unrolled": lambda policy: checkpointed_steps(policy, unroll=2),
    "checkpointed loop": checkpointed_loop,
    "two deep": two_deep,
    "open ended": open_ended,
}


def lowered(platform: str, fun: Callable[..., Any]) -> Lowered:
    return prepared(make_jaxpr(fun)(WS, X)).lowered(platform=platform)


@pytest.mark.parametrize("name", LOOPS)
def test_the_program_for_a_cpu_is_as_if_the_values_were_saved(name: str) -> None:
    texts = [lowered("cpu", grad(LOOPS[name](policy))).text for policy in (OFFLOADED, SAVED)]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("name", LOOPS)
def test_the_program_with_transfers_computes_the_gradient(name: str) -> None:
    fun = grad(LOOPS[name](OFFLOADED), argnums=(0, 1))
    program = lowered("cuda", fun)
    assert MOVE.search(program.text)
    # Here is no other memory: each transfer becomes an identity.
    here = MOVE.sub(r"stablehlo.optimization_barrier \1 : \2", program.text)
    executable = client.compile_text(here, program.out_avals)
    given = [a for a, kept in zip((WS, X), program.kept, strict=True) if kept]
    buffers = [to_array(as_value(x)).buffer for x in (*program.consts, *given)]
    got = [np.asarray(b) for b in executable.execute(buffers)]
    wanted = jit(grad(LOOPS[name](None), argnums=(0, 1)))(WS, X)
    for g, want in zip(got, wanted, strict=False):
        np.testing.assert_allclose(g, want, rtol=1e-5, atol=1e-6)


def test_a_slice_is_fetched_before_the_loop_and_in_each_step_for_the_next() -> None:
    text = lowered("cuda", grad(checkpointed_steps(OFFLOADED))).text
    forward, between, backward = re.split(r"= stablehlo\.while", text)[0:3]
    assert [part.count('"pinned_host"') for part in (forward, between, backward)] == [0, 1, 0]
    assert [part.count('"device"') for part in (forward, between, backward)] == [0, 1, 2]
    # What a step uses was fetched by the step before, which has passed it on; the other is the program's result.
    fetched, _ = re.findall(r"(%\d+) = stablehlo\.custom_call", backward)
    assert re.search(rf"stablehlo\.return .*{fetched}\b", backward)


@pytest.mark.parametrize("policy", [OFFLOADED, lambda eqn: policies.Offload()])
def test_states_that_a_loop_saves_at_a_time_stay_on_the_device(policy: Any) -> None:
    def run(ws: Any, x: Any) -> Any:
        return scan(lambda x, w: (layer(w, x), None), x, ws, checkpoints=2)[0]

    loss = lambda ws, x: checkpoint(run, policy=policy)(ws, x).sum()
    assert not MOVE.search(lowered("cuda", grad(loss)).text)
    for doc in (scan.__doc__, fori_loop.__doc__, for_loop.__doc__, while_loop.__doc__):
        assert "stay in the memory of the device, also under a policy that offloads" in " ".join(
            str(doc).split()
        )


@pytest.mark.parametrize("around", ["scan", "step"])
def test_a_labelled_carry_is_moved_where_the_policy_reaches_it(around: str) -> None:
    """A policy around the loop does; that of a checkpoint of the step does not judge what the loop itself saves."""

    def step(x: Any, w: Any) -> tuple[Any, None]:
        return checkpoint_name(x + fnp.sin(x @ w), "hidden"), None

    wrapped = checkpoint(step, policy=OFFLOADED) if around == "step" else step
    run = lambda ws, x: scan(wrapped, x, ws)[0].sum()
    f = checkpoint(run, policy=OFFLOADED) if around == "scan" else run
    (kept,) = [r for r in saved_residuals(f, WS, X) if r.trips > 1]
    text = jit(grad(f)).lower(WS, X).as_text(platform="cuda")
    moves = text.count("annotate_device_placement")
    assert (kept.verdict, moves > 0) == (("offload", True) if around == "scan" else ("save", False))
