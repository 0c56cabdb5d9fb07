"""The laws, for functions with loops: those of state, once the oracle knows the loops, and that of planning."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fiveloop.core import Jaxpr
from fiveloop.core.extend import mutated_positions, typecheck, with_jaxprs
from fiveloop.core.passes import run_passes
from fiveloop.core.util import select_by
from fiveloop.loops.options import DEFAULT, STEPS, Planning
from fiveloop.loops.primitives.for_loop import for_p
from fiveloop.testing.core.compare import assert_all_close
from fiveloop.testing.core.oracle import Cell
from fiveloop.testing.core.samples import Sample, contents
from fiveloop.testing.state.laws import check_function as check_function

UNPLANNED = Planning(**dict.fromkeys(STEPS, False))


def with_planning(jaxpr: Jaxpr, planning: Planning) -> Jaxpr:
    """The jaxpr with other planning steps on, in all its loops; what was done when they were traced stays."""
    return jaxpr.remember(("with planning", planning), lambda: _with_planning(jaxpr, planning))


def _with_planning(jaxpr: Jaxpr, planning: Planning) -> Jaxpr:
    def changed(params: Any) -> Any:
        return with_jaxprs(params, lambda inner: with_planning(inner, planning))

    eqns = [eqn.replace(params=changed(eqn.params)) for eqn in jaxpr.eqns]
    eqns = [
        e.replace(params=replace(e.params, off=planning.off)) if e.primitive is for_p else e
        for e in eqns
    ]
    return jaxpr.replace(eqns=eqns)


def check_law_planning(s: Sample, seed: int = 0) -> None:
    """The passes give the same with all planning steps, with one of them off, and with none."""
    step = STEPS[seed % len(STEPS)]
    num_outs, changed = len(s.jaxpr.outvars), mutated_positions(s.jaxpr.effects)
    is_changed = [k in changed for k, x in enumerate(s.args) if isinstance(x, Cell)]
    results = s.run()
    # The passes give what is left in the Refs that change, behind the results.
    want = [*results[:num_outs], *select_by(is_changed, results[num_outs:])]
    for planning in (DEFAULT, replace(DEFAULT, **{step: False}), UNPLANNED):
        ready = run_passes(with_planning(s.jaxpr, planning))
        typecheck(ready)
        got = Sample(ready, tuple(map(contents, s.args))).run()
        assert_all_close(got, want, f"{planning}: result")
