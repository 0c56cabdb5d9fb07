"""The models of the remat bench: their gradients are finite, and the same under every checkpoint."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.remat.models import KEPT, MODELS, Library, Model
from benchmarks.remat.models.fiveloop_library import LIBRARY

from fiveloop.core import jit, make_jaxpr, tree_leaves, value_and_grad
from fiveloop.remat import checkpoint, policies


def gradients(model: Model, library: Library = LIBRARY) -> list[np.ndarray]:
    fun = jit(value_and_grad(lambda p, d: model.loss(library, p, d)))
    return [np.asarray(leaf) for leaf in tree_leaves(fun(*model.arguments()))]


@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_the_same_under_a_checkpoint_of_each_block(name: str) -> None:
    plain = gradients(MODELS[name])
    block = checkpoint(policy=policies.save_only_these_names(KEPT))
    saved = gradients(MODELS[name], replace(LIBRARY, block=block))
    assert all(np.isfinite(g).all() and np.abs(g).max() > 0 for g in plain)
    for got, want in zip(saved, plain, strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-5 * np.abs(want).max())


@pytest.mark.parametrize("name", MODELS)
def test_each_model_labels_a_value_that_is_worth_saving(name: str) -> None:
    model = MODELS[name]
    jaxpr = make_jaxpr(lambda p, d: model.loss(LIBRARY, p, d))(*model.arguments())
    assert f"name={KEPT}" in str(jaxpr)
