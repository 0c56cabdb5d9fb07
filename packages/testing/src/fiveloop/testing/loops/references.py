"""References of the loop primitives: plain Python loops over Cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fiveloop.loops.schedules import binomial, online
from fiveloop.testing.core.oracle import (
    Cell,
    OracleError,
    Run,
    define_nested_reference,
    define_reference,
)

MOST_STEPS = 1000
"""After how many steps a `while` counts as one that does not end."""


def _for(values: Sequence[Any], p: Any, run: Run) -> list[Any]:
    first = p.num_consts + len(p.body.outvars)
    consts, carry = list(values[: p.num_consts]), list(values[p.num_consts : first])
    given = values[first:]
    # A value among the last operands is the contents of a Ref of the loop's own.
    refs = [x if isinstance(x, Cell) else Cell(np.array(x)) for x in given]
    steps = range(p.nsteps)
    if p.counted:
        count = min(int(consts[0]), p.nsteps)
        steps = steps[:count] if p.counted == "lowest" else steps[p.nsteps - count :]
    for i in reversed(steps) if p.reverse else steps:
        carry = run(p.body, [np.asarray(i, np.int32), *consts, *carry, *refs])
    states = [ref.array for ref, x in zip(refs, given, strict=True) if not isinstance(x, Cell)]
    return [*carry, *states]


define_nested_reference("for", _for)


def _cond(values: Sequence[Any], p: Any, run: Run) -> list[Any]:
    index, *operands = values
    return run(p.branches[int(index)], operands)


def _while(values: Sequence[Any], p: Any, run: Run) -> list[Any]:
    first = p.num_consts + len(p.body.outvars)
    consts, carry, refs = values[: p.num_consts], list(values[p.num_consts : first]), values[first:]
    before = []
    for _ in range(MOST_STEPS):
        before.append([x.array.copy() if isinstance(x, Cell) else x for x in (*carry, *refs)])
        if not run(p.cond, [*consts, *carry, *refs])[0]:
            return [*carry, *_saved(p, before)]
        carry = run(p.body, [*consts, *carry, *refs])
    raise OracleError(f"a while loop has not ended after {MOST_STEPS} steps")


def _saved(p: Any, states: Sequence[Sequence[Any]]) -> list[Any]:
    """What a loop has saved of its states: the first ones, then some of a stride that doubles."""
    if not any(p.kept):
        return []
    schedule = online.Online(p.slots)
    stored, places = binomial.Stored(1, 0), dict[int, int]()
    for step in range(len(states) - 1):
        if step == schedule.next(stored):
            stored = schedule.after_next(stored)
            places[int(schedule.place(stored, schedule.count(stored) - 1))] = step
    kept = [k for k, keep in enumerate(p.kept) if keep]
    arrays = [np.zeros((p.slots + 1, *np.shape(states[0][k])), states[0][k].dtype) for k in kept]
    for place, step in places.items():
        for array, k in zip(arrays, kept, strict=True):
            array[place] = states[step][k]
    return [*np.asarray(stored, np.int64), *arrays]


def _replay(values: Sequence[Any], p: Any, run: Run) -> list[Any]:
    """Every state of the forward pass is kept for the backward pass."""
    count, *given = values[: p.num_operands]  # a cache changes nothing
    refs = [v.aval.accumulates for v in p.backward.invars[1:]]
    cells = [Cell(np.array(x)) if r else x for x, r in zip(given, refs, strict=True)]
    consts, forward, backward = p.parts(cells)
    before = []
    for k in range(int(count)):
        before.append([Cell(x.array.copy()) for x in forward])
        run(p.forward, [np.asarray(k), *consts, *forward])
    for k in reversed(range(int(count)) if backward else ()):
        run(p.backward, [np.asarray(k), *consts, *before[k], *backward])
    return [x.array for x in (*forward, *backward)]


define_nested_reference("replay", _replay)
define_reference("progress", lambda values, p: [])
define_nested_reference("cond", _cond)
define_nested_reference("while", _while)
