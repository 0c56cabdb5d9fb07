"""Steps that wait for each other's numbers are compiled two or four to a turn of the loop.

What a loop carries goes through memory at the end of every turn. Where a step computes a few numbers from those of
the step before, and little else, that is what it waits for: on a CPU, prefix sums take half the time at four steps a
turn, and a recurrence of a dozen operations four fifths. A longer body hides it, and takes longer to compile.
"""

from __future__ import annotations

from dataclasses import replace

from fiveloop.core import Jaxpr
from fiveloop.core.engine import is_constant, whole_indexer
from fiveloop.core.extend import Aval, Eqn, Var, jaxprs_in, size_of
from fiveloop.loops.for_loop.primitive import ForParams
from fiveloop.loops.for_loop.unroll import AUTO
from fiveloop.loops.planning.record import Decision, Planned
from fiveloop.state import AbstractRef
from fiveloop.state.engine import get_p, swap_p

STEP = "unroll"
FEW = 4
"""Elements of the largest value of a body that waits for numbers, not for arrays."""
TURNS = ((16, 4), (48, 2))
"""Up to how many equations a body is repeated how often in a turn."""
LEAST_TURNS = 4
"""Turns below which nothing is gained."""


def unroll(eqn: Eqn) -> Planned:
    """A loop with several steps to a turn, if its caller leaves that open and its steps wait for each other."""
    p = eqn.params
    if p.unroll != AUTO or p.num_carry or not _waits(p):
        return Planned(eqn)
    count = next((steps for most, steps in TURNS if len(p.body.eqns) <= most), 1)
    if count == 1 or p.nsteps < LEAST_TURNS * count:
        return Planned(eqn)
    loop = eqn.replace(params=replace(p, unroll=count))
    why = f"a step waits for what the last one carries, so {count} make a turn of the loop"
    return Planned(loop, told=[Decision(STEP, "", True, why, eqn.source)])


def _waits(p: ForParams) -> bool:
    """Whether a step computes a few numbers from those of the step before, and nothing larger."""
    if any(jaxprs_in(eqn.params) for eqn in p.body.eqns):
        return False
    made = [v.aval for eqn in p.body.eqns for v in eqn.outvars]
    if not all(_is_few(aval) for aval in made):
        return False
    return any(_is_carried(p.body, ref) for ref in p.body.invars[p.first_ref + 1 :])


def _is_few(aval: Aval) -> bool:
    size = size_of(aval.shape)
    return is_constant(size) and size <= FEW


def _is_carried(body: Jaxpr, ref: Var) -> bool:
    """Whether each step reads all that a Ref of a few numbers holds, and writes it."""
    if (
        not isinstance(ref.aval, AbstractRef)
        or not _is_few(ref.aval)
        or ref.aval.dtype.kind not in "fc"
    ):
        return False
    whole = whole_indexer(ref.aval.shape)
    users = [e for e in body.eqns if ref in e.invars and e.params.indexer == whole]
    return {get_p, swap_p} <= {e.primitive for e in users}
