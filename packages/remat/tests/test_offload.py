"""Offloaded residuals: moved to the host's memory and back where a platform has one, saved like others elsewhere."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import grad, jit, vmap
from fiveloop.remat import checkpoint, checkpoint_name, policies
from fiveloop.testing.core.laws import assert_close

W = np.full((4, 4), 0.1, np.float32)
X = np.arange(8, dtype=np.float32).reshape(2, 4)
SAVED = policies.save_only_these_names("hidden")
OFFLOADED = policies.save_and_offload_only_these_names(
    names_which_can_be_saved=[], names_which_can_be_offloaded=["hidden"]
)


def text_for(platform: str, fun: Callable[..., Any], *args: Any) -> str:
    """The StableHLO of a function for a platform that need not be here."""
    return jit(fun).lower(*args).as_text(platform=platform)


def moves(text: str) -> list[str]:
    """The memories to which a program moves values, in order, but for those that its main function returns."""
    found = re.findall(r'(%\w+) = .*annotate_device_placement.*_placement = "(\w+)"', text)
    returned = re.findall(r"%\w+", re.findall(r"\n    return .*", text)[0])
    return [memory for name, memory in found if name not in returned]


def layer(w: Any, x: Any) -> Any:
    return fnp.sin(checkpoint_name(fnp.tanh(x @ w), "hidden")) * x


def loss(policy: Any) -> Callable[..., Any]:
    return lambda w, x: checkpoint(layer, policy=policy)(w, x).sum()


def test_a_residual_goes_to_the_host_and_comes_back() -> None:
    text = text_for("cuda", grad(loss(OFFLOADED)), W, X)
    assert moves(text) == ["pinned_host", "device"]
    there, back = (text.index(f'"{memory}"') for memory in ("pinned_host", "device"))
    assert there < text.index("optimization_barrier") < back
    assert moves(text_for("cuda", grad(loss(SAVED)), W, X)) == []


@pytest.mark.parametrize("budget", [0.0, 1.0])
def test_what_is_offloaded_beside_a_budget_comes_back_with_the_cotangents(budget: float) -> None:
    def product(w: Any, x: Any) -> Any:
        """The derivative needs the labelled value itself, under every plan."""
        return checkpoint_name(fnp.tanh(x @ w), "hidden") @ w

    planned = checkpoint(product, policy=OFFLOADED, budget=budget)
    text = text_for("cuda", grad(lambda w, x: planned(w, x).sum()), W, X)
    there, back = (text.index(f'"{memory}"') for memory in ("pinned_host", "device"))
    assert there < text.index("optimization_barrier") < back


def test_the_program_for_a_cpu_is_as_if_the_values_were_saved() -> None:
    texts = [text_for("cpu", grad(loss(policy)), W, X) for policy in (OFFLOADED, SAVED)]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("wrap", [lambda f: f, jit], ids=["eager", "jit"])
def test_offloading_changes_no_derivative(wrap: Callable[..., Any]) -> None:
    lanes = np.stack([X, X + 1.0])
    assert_close(wrap(grad(loss(OFFLOADED)))(W, X), grad(loss(SAVED))(W, X))
    batched = wrap(vmap(grad(loss(OFFLOADED)), in_axes=(None, 0)))(W, lanes)
    assert_close(batched, vmap(grad(loss(SAVED)), in_axes=(None, 0))(W, lanes))
    second: Any = lambda policy: grad(lambda w: (grad(loss(policy))(w, X) ** 2).sum())
    assert_close(wrap(second(OFFLOADED))(W), second(SAVED)(W))


def test_an_offloaded_value_in_another_call_is_moved_where_it_is_made() -> None:
    inner: Any = lambda policy: lambda w, x: checkpoint(jit(layer), policy=policy)(w, x).sum()
    assert moves(text_for("cuda", grad(inner(OFFLOADED)), W, X)) == ["pinned_host", "device"]


def test_memories_have_the_names_that_the_policy_gives() -> None:
    policy = policies.offload_dot_with_no_batch_dims("device", "unpinned_host")
    assert moves(text_for("cuda", grad(loss(policy)), W, X)) == ["unpinned_host", "device"]


def test_saving_wins_over_offloading_and_offloading_over_recomputing() -> None:
    for policy, moved in [
        (OFFLOADED | SAVED, []),
        (OFFLOADED & SAVED, ["pinned_host", "device"]),
        (OFFLOADED & policies.nothing_saveable, []),
        (policies.first_of(OFFLOADED, SAVED), ["pinned_host", "device"]),
        (~OFFLOADED & policies.dots_saveable, []),
    ]:
        assert moves(text_for("cuda", grad(loss(policy)), W, X)) == moved
