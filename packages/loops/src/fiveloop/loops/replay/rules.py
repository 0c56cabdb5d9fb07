"""Everything fiveloop knows about `replay`. Read the row here, then the cell you need."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from fiveloop.core import Value, prims, rules, trace, transforms
from fiveloop.loops.primitives import replay
from fiveloop.loops.replay import batch, dce, jvp, split, transpose
from fiveloop.loops.schedules import binomial, simulation
from fiveloop.state import predicate


def replay_bodies(p: replay.ReplayParams) -> list[rules.Body]:
    """The steps that are computed again from saved states, and the backward pass."""
    many = transforms.OPEN if p.steps is None else 1
    steps = many if p.steps is None else p.steps
    again = -(-_advanced(p, steps) // many) if steps > 1 else 0
    return [
        rules.Body(p.forward, "loop", max(again, 1), open=p.steps is None),
        rules.Body(p.backward, "loop", steps // many, slots=p.num_slots, open=p.steps is None),
    ]


def _advanced(p: replay.ReplayParams, steps: int) -> int:
    """How many steps are run for a later state: those of a sweep, too, if the loop has not saved the states itself."""
    if not isinstance(p.slots, binomial.Binomial):
        return int(binomial.advances(steps, p.num_slots))
    swept = 0 if any(p.cached) or not p.slots.sweeps else steps
    return swept + _advanced_by(p.slots, steps)


_advanced_by = lru_cache(256)(simulation.advanced)


def replay_predicate(
    pred: Value, operands: Sequence[Value], guard: predicate.Guard, p: replay.ReplayParams
) -> list[Value]:
    """No step if the condition does not hold."""
    n, *rest = operands
    steps = prims.select(pred, n, transforms.zeros_of(n.aval))
    return trace.bind(replay.replay_p, steps, *rest, params=p)


rules.define(
    replay.replay_p,
    abstract_eval=replay.replay_abstract_eval,
    typecheck=replay.replay_typecheck,
    lower=rules.Refusal("the pass `replay` makes loops of it: run the passes first"),
    jvp=jvp.replay_jvp,
    batch=batch.replay_batch,
    transpose=transpose.replay_transpose,
    split=split.replay_split,
    dce=dce.replay_dce,
    bodies=replay_bodies,
)
predicate.define_predicate(replay.replay_p, replay_predicate, always=True)
