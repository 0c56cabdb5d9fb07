"""Loops and branches in each other: what a derivative takes grows with how deep they are, not with a power of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from fiveloop.core import Jaxpr, grad, ir, make_jaxpr, transforms
from fiveloop.core.primitives.special import sin
from fiveloop.core.transforms import needed_body
from fiveloop.loops import cond, scan


def nested(depth: int, x: Any) -> Any:
    """So many scans, each of a branch that holds the next."""
    if not depth:
        return sin(x @ x)

    def step(c: Any, _: None) -> tuple[Any, None]:
        return cond(c[0, 0] > 0, lambda c: nested(depth - 1, c), lambda c: -c, c), None

    return scan(step, x, None, length=2)[0]


def bodies_searched(depth: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many bodies of loops are searched for dead code in a trace of the gradient."""
    searched = []

    def searching(body: Jaxpr, wanted: Sequence[ir.Var]) -> Jaxpr:
        searched.append(body)
        return needed_body(body, wanted)

    with monkeypatch.context() as patch:
        patch.setattr(transforms, "needed_body", searching)
        make_jaxpr(grad(lambda x: nested(depth, x).sum()))(np.ones((2, 2)))
    return len(searched)


def test_dead_code_is_searched_for_once_at_each_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = [bodies_searched(depth, monkeypatch) for depth in (2, 3, 4, 5)]
    added = np.diff(counts)
    assert max(added) <= 2 * min(added)


def test_a_jaxpr_without_dead_code_is_the_same_one_afterwards() -> None:
    jaxpr = make_jaxpr(lambda x: nested(2, x))(np.ones((2, 2)))
    small, mask = transforms.dce(jaxpr, (True,))
    assert mask == (True,)
    assert transforms.dce(small, (True,), False)[0] is small
    assert not transforms.dce(small, (False,))[0].outvars
