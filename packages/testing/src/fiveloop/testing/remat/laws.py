"""The laws, for functions with checkpoints: those of state, once the oracle knows checkpoints, and that of budgets."""

from __future__ import annotations

from typing import Any

import numpy as np

from fiveloop.core.extend import eval_jaxpr, stage_closed
from fiveloop.remat import checkpoint
from fiveloop.testing.core.compare import assert_all_close
from fiveloop.testing.core.cube import vjp_of
from fiveloop.testing.core.samples import Sample
from fiveloop.testing.remat.program_steps import BUDGETS
from fiveloop.testing.state.laws import check_function as check_function


def check_law_budget(s: Sample, seed: int = 0) -> None:
    """Within a budget, a program has the results and the cotangents that it has without a checkpoint."""
    options = [*BUDGETS.values()][seed % len(BUDGETS)]

    def within(*args: Any) -> Any:
        return checkpoint(lambda *args: eval_jaxpr(s.jaxpr, args), **options)(*args)

    wrapped = Sample(stage_closed(within, s.jaxpr.in_avals), s.args)
    got, want = (vjp_of(each, np.random.default_rng(seed)).run() for each in (wrapped, s))
    assert_all_close(got, want, f"budget {options['budget']}: cotangent")
