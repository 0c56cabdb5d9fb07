"""The model and its training step, on sizes small enough for float64 and finite differences."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from char_transformer.costs import (
    COMPARED,
    chosen_loss,
    compared,
    compile_step,
    policy_costs,
    policy_named,
)
from char_transformer.model import ModelSize, init_params, logits, mean_nats
from char_transformer.sample import next_logits, sample_text
from char_transformer.steps import Adam, gradients, init_state, train_steps

from fiveloop import numpy as fnp
from fiveloop import random
from fiveloop.core import (
    Value,
    jit,
    tree_flatten,
    tree_leaves,
    tree_map,
    tree_unflatten,
    value_and_grad,
)
from fiveloop.loops import for_loop

SIZE = ModelSize(num_symbols=11, layers=2, width=8, heads=2, hidden=16, context=6)
Tree = dict[str, Any]


def small_params(seed: int = 0, dtype: npt.DTypeLike = np.float64) -> Tree:
    """Draw parameters none of which is zero: zeros would hide the gradients of all below them."""
    params = init_params(random.key(seed), SIZE, dtype)
    noise = np.random.default_rng(seed)
    return dict(
        tree_map(lambda x: x + fnp.asarray(0.3 * noise.normal(size=x.shape), x.dtype), params)
    )


def small_windows(batch: int = 3, seed: int = 0) -> npt.NDArray[np.int32]:
    shape = (batch, SIZE.context + 1)
    return np.random.default_rng(seed).integers(0, SIZE.num_symbols, shape).astype(np.int32)


def loss_under(name: str | None) -> Any:
    policy = None if name is None else policy_named(name)

    def loss(params: Tree, windows: Value) -> Value:
        return mean_nats(params, windows, SIZE, policy)

    return loss


@pytest.mark.parametrize("policy", [None, *COMPARED])
def test_gradients_agree_with_finite_differences(policy: str | None) -> None:
    params, windows = small_params(), small_windows()
    loss = jit(loss_under(None))
    grads = jit(value_and_grad(loss_under(policy)))(params, windows)[1]
    noise = np.random.default_rng(1)
    leaves, treedef = tree_flatten(params)
    step = 1e-5
    for i, grad in enumerate(tree_leaves(grads)):
        direction = noise.normal(size=grad.shape)
        ends = []
        for sign in (1.0, -1.0):
            moved = [x + sign * step * direction if j == i else x for j, x in enumerate(leaves)]
            ends.append(float(loss(tree_unflatten(treedef, moved), windows)))
        slope = (ends[0] - ends[1]) / (2 * step)
        assert float((np.asarray(grad) * direction).sum()) == pytest.approx(
            slope, rel=1e-6, abs=1e-9
        )


def test_a_score_depends_on_the_tokens_up_to_its_own_alone() -> None:
    params, windows = small_params(), small_windows()[:, :-1]
    changed = windows.copy()
    changed[:, 4] = (changed[:, 4] + 1) % SIZE.num_symbols
    scores = jit(lambda p, w: logits(p, w, SIZE))
    before, after = (np.asarray(scores(params, w)) for w in (windows, changed))
    assert (before[:, :4] == after[:, :4]).all()
    assert (before[:, 4:] != after[:, 4:]).any()


def test_gradients_do_not_depend_on_the_number_of_microbatches() -> None:
    params, windows = small_params(), small_windows(batch=4)
    whole, halves, quarters = (
        jit(lambda p, w: gradients(loss_under(None), p, w))(params, windows.reshape(n, 4 // n, -1))
        for n in (1, 2, 4)
    )
    for parts in (halves, quarters):
        for one, other in zip(tree_leaves(whole), tree_leaves(parts), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)


def test_the_loss_curve_is_the_same_under_every_policy() -> None:
    stream = np.stack([small_windows(batch=4, seed=i) for i in range(8)]).reshape(8, 2, 2, -1)
    curves = []
    for name in (None, *COMPARED):
        loss = loss_under(name)
        steps = jit(lambda s, w, loss=loss: train_steps(s, w, loss, Adam(steps=8, warmup=2)))
        curves.append(np.asarray(steps(init_state(small_params()), stream)[1]))
    for curve in curves[1:]:
        np.testing.assert_allclose(curve, curves[0], rtol=1e-12)
    assert len(set(curves[0].tolist())) == 8


def test_training_steps_equal_adam_written_in_numpy() -> None:
    adam = Adam(steps=6, warmup=2)
    stream = np.stack([small_windows(batch=2, seed=i) for i in range(6)]).reshape(6, 1, 2, -1)
    loss = loss_under(None)
    state, losses = jit(lambda s, w: train_steps(s, w, loss, adam))(
        init_state(small_params()), stream
    )
    tree, value_and_grads = small_params(), jit(value_and_grad(loss))
    leaves, treedef = tree_flatten(tree)
    params = [np.asarray(x) for x in leaves]
    mean, square = ([np.zeros_like(x) for x in params] for _ in range(2))
    for t in range(6):
        value, grads = value_and_grads(tree, stream[t, 0])
        assert float(losses[t]) == pytest.approx(float(value), rel=1e-9)
        rate = adam.rate * min((t + 1) / 2, 1) * (0.5 + 0.5 * np.cos(np.pi * max(t - 2, 0) / 4))
        for i, grad in enumerate(map(np.asarray, tree_leaves(grads))):
            mean[i] = 0.9 * mean[i] + 0.1 * grad
            square[i] = 0.98 * square[i] + 0.02 * grad**2
            step = mean[i] / (1 - 0.9 ** (t + 1))
            params[i] = params[i] - rate * step / (
                np.sqrt(square[i] / (1 - 0.98 ** (t + 1))) + 1e-8
            )
        tree = tree_unflatten(treedef, map(fnp.asarray, params))
    for ours, theirs in zip(tree_leaves(state["params"]), params, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)
    assert int(state["step"]) == 6


def test_scores_with_cached_keys_and_values_equal_those_of_the_whole_window() -> None:
    params, tokens = small_params(), small_windows(batch=1)[:, : SIZE.context]
    whole = np.asarray(jit(lambda p, t: logits(p, t, SIZE))(params, tokens))[0]

    def one_by_one(params: Tree, tokens: Value) -> Value:
        cache = fnp.zeros((SIZE.layers, SIZE.heads, SIZE.context, SIZE.head_width), np.float64)
        scores = fnp.zeros((SIZE.context, SIZE.num_symbols), np.float64)

        def body(i: Value, refs: Any) -> None:
            refs["scores"][i] = next_logits(
                params, tokens[i], i, refs["keys"], refs["values"], SIZE
            )

        start = {"keys": cache, "values": cache, "scores": scores}
        return for_loop(SIZE.context, body, start)["scores"]

    np.testing.assert_allclose(jit(one_by_one)(params, tokens[0]), whole, rtol=1e-9, atol=1e-12)


def test_a_sample_starts_with_its_prompt_and_depends_on_its_seed_alone() -> None:
    params, prompt = small_params(dtype=np.float32), np.array([3, 1, 4], np.int32)
    one, same, other = (
        sample_text(params, prompt, SIZE, length=20, seed=seed) for seed in (0, 0, 1)
    )
    assert one[:3] == other[:3] == [3, 1, 4]
    assert len(one) == 23
    assert one == same
    assert one != other
    assert all(0 <= token < SIZE.num_symbols for token in one)


def test_costs_are_measured_for_each_policy_and_budget() -> None:
    state = init_state(small_params(dtype=np.float32))
    names = compared("1MB")
    assert names[:3] == compared(None)[:3]
    assert names[3:] == ("1MB", "0%", "50%")
    # A policy and a budget, to spare the time of compiling all.
    costs = policy_costs(state, small_windows(batch=4).reshape(2, 2, -1), SIZE, names[2:4])
    assert [(cost.policy, cost.is_budget) for cost in costs] == [
        ("nothing_saveable", False),
        ("1MB", True),
    ]
    assert all(cost.temporary_bytes > 0 and cost.seconds > 0.0 for cost in costs)


def test_twelve_layers_need_less_than_half_the_memory_when_nothing_is_saved() -> None:
    size = ModelSize(num_symbols=103, layers=12)
    state = init_state(init_params(random.key(0), size))
    batch = np.zeros((2, 8, size.context + 1), np.int32)
    everything, nothing = (
        compile_step(state, batch, chosen_loss(name, size)).memory_analysis().temp
        for name in ("everything_saveable", "nothing_saveable")
    )
    assert nothing < 0.5 * everything
