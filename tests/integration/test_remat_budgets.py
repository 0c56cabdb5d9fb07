"""Budgets on the models of the remat bench: gradients are the same, and the compiled memory keeps within them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from benchmarks.remat.models import MODELS
from benchmarks.remat.models.fiveloop_library import LIBRARY

from fiveloop.core import grad, jit, tree_leaves
from fiveloop.remat import checkpoint
from fiveloop.remat.budget.plan import planned


def compiled(loss: Any, arguments: Any) -> tuple[int, list[np.ndarray]]:
    program = jit(grad(loss)).lower(*arguments).compile()
    grads = [np.asarray(leaf) for leaf in tree_leaves(program(*arguments))]
    return program.memory_analysis().temp, grads


@pytest.mark.parametrize("name", MODELS)
def test_gradients_and_memory(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = MODELS[name]
    arguments = model.arguments()
    sizes: list[int] = []

    def noted(p: Any, unknown: Any, source: Any) -> Any:
        found = planned(p, unknown, source)
        plans = next(v for k, v in p.jaxpr._memo.items() if k[0] == "plans")
        least, most = plans.candidates[0].bytes, plans.candidates[-1].bytes
        sizes.append(p.budget.bytes_of(least, most))
        return found

    monkeypatch.setattr(sys.modules["fiveloop.remat.checkpoint"], "planned", noted)

    def loss(params: Any, data: Any) -> Any:
        return model.loss(LIBRARY, params, data)

    _, want = compiled(loss, arguments)
    used, got = compiled(checkpoint(loss, budget=0.1), arguments)
    assert used <= 1.05 * sizes[0]
    for x, y in zip(got, want, strict=True):
        np.testing.assert_allclose(x, y, rtol=2e-4, atol=2e-5 * np.abs(y).max())
