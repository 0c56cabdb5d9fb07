"""A loop's step that counts how often it runs in compiled programs, derivatives included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fiveloop.core import ShapeDtype, tree_leaves
from fiveloop.core.primitives import special
from fiveloop.state import pure_callback


class CountedSteps:
    """Counts the steps of compiled loops.

    >>> from fiveloop.core import jit
    >>> from fiveloop.loops import fori_loop
    >>> steps = CountedSteps()
    >>> run = jit(lambda x: fori_loop(0, 3, lambda i, val: steps.step(val), (np.int32(0), x)))
    >>> steps.of(run, np.float32(0.5))
    3
    """

    def __init__(self) -> None:
        self.calls = 0

    def step(self, val: Any) -> Any:
        """One step, whose slope depends on the number that the call gives."""
        k, x = val
        k = pure_callback(self._count, ShapeDtype((), "int32"), k)
        return k, special.sin(x + 0.1 * k)

    def _count(self, k: Any) -> Any:
        self.calls += 1
        return np.int32(k + 1)

    def of(self, run: Callable[..., Any], *args: Any) -> int:
        """How many steps a run makes, whose results are finite."""
        self.calls = 0
        assert all(np.isfinite(np.asarray(x)).all() for x in tree_leaves(run(*args)))
        return self.calls
