"""Steps that wait for each other's numbers are compiled two or four to a turn of the loop.

What a loop carries goes through memory at the end of every turn, and small arrays are copied there. Where a step
computes a few numbers from those of the step before, and little else, that is what it waits for. A longer body hides
it, and takes longer to compile. A loop that reads and writes an array at indices is left alone: XLA might copy that.
"""

from __future__ import annotations

from dataclasses import replace

from fiveloop.core import Jaxpr
from fiveloop.core.engine import is_constant, whole_indexer
from fiveloop.core.extend import Eqn, Var, jaxprs_in, size_of
from fiveloop.loops.for_loop.unroll import AUTO
from fiveloop.loops.planning.record import Decision, Planned
from fiveloop.state import AbstractRef
from fiveloop.state.engine import addupdate_p, callback_p, get_p, swap_p

STEP = "unroll"
TURNS = ((4, 16, 4), (4, 48, 2), (1024, 32, 2))
"""Elements of the largest value of a body, its equations, both at most; and how many steps make a turn."""
LEAST_TURNS = 4
"""Turns below which nothing is gained."""


def unroll(eqn: Eqn) -> Planned:
    """A loop with several steps to a turn, if its caller leaves that open and its steps wait for each other."""
    p = eqn.params
    if p.unroll != AUTO or p.num_carry or any(map(is_long, p.body.eqns)):
        return Planned(eqn)
    count = steps_a_turn(p.body)
    refs = [r for r in p.body.invars[p.first_ref + 1 :] if isinstance(r.aval, AbstractRef)]
    if count == 1 or p.nsteps < LEAST_TURNS * count or not any(waits(p.body, r) for r in refs):
        return Planned(eqn)
    if any(is_read_back(p.body, ref) for ref in refs):
        return Planned(eqn)
    loop = eqn.replace(params=replace(p, unroll=count))
    why = f"a step waits for what the last one carries, so {count} make a turn of the loop"
    return Planned(loop, told=[Decision(STEP, "", True, why, eqn.source)])


def is_long(eqn: Eqn) -> bool:
    """Whether an equation is more than an operation: it runs bodies of its own, or Python."""
    return eqn.primitive is callback_p or bool(jaxprs_in(eqn.params))


def steps_a_turn(body: Jaxpr) -> int:
    """How many steps of a body make a turn, by its size."""
    sizes = [size_of(v.aval.shape) for eqn in body.eqns for v in eqn.outvars]
    if not all(map(is_constant, sizes)):
        return 1
    largest, count = max(sizes, default=0), len(body.eqns)
    return next((n for size, eqns, n in TURNS if largest <= size and count <= eqns), 1)


def waits(body: Jaxpr, ref: Var) -> bool:
    """Whether each step computes with all that a Ref holds, and changes it."""
    if ref.aval.dtype.kind not in "fc":
        return False
    users = [e for e in body.eqns if ref in e.invars and is_whole(e, ref)]
    reads = any(eqn.outvars for eqn in users)
    return any(e.primitive is addupdate_p or (e.primitive is swap_p and reads) for e in users)


def is_read_back(body: Jaxpr, ref: Var) -> bool:
    """Whether a Ref is changed at indices and read: then the steps of one turn would have to be ordered."""
    users = [e for e in body.eqns if ref in e.invars]
    is_changed = any(e.primitive is not get_p and not is_whole(e, ref) for e in users)
    return is_changed and any(e.outvars for e in users)


def is_whole(eqn: Eqn, ref: Var) -> bool:
    """Whether an equation takes all that a Ref holds."""
    return getattr(eqn.params, "indexer", None) == whole_indexer(ref.aval.shape)
