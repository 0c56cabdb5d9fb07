"""Short steps that depend on the carry of the step before: two to eight per iteration.

What a loop carries goes through memory at the end of every turn, and small arrays are copied there. Where a step
computes a few numbers from those of the step before, and little else, that is what it waits for. A longer body hides
it, and takes longer to compile. A loop that reads and writes an array in place waits as well: for the counter, and for
what was written there. It is left alone if its places are not known from the counter, for then the steps of one turn
have to be ordered by comparing them.

XLA compiles what leads to each written value into a kernel of its own, and computes again in it what several of them
share. For a few numbers that is nothing. Steps on arrays are only put together where they are one kernel: they work
element by element, towards one value. In such a kernel functions such as exp take longer for two steps than twice for
one, and so does arithmetic on more than a few dozen elements.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fiveloop.core import Jaxpr, ir, prims, rules, transforms
from fiveloop.core.ir import indexer
from fiveloop.core.primitives import special
from fiveloop.loops import options, record
from fiveloop.loops.analysis.accesses import accesses_of
from fiveloop.loops.plan.carry import ChainFinder
from fiveloop.loops.primitives.for_loop import end_flag, for_p
from fiveloop.state import AbstractRef, primitives
from fiveloop.state.io.primitive import callback_p

STEP = "unroll"
_RUNS: Mapping[ir.Primitive[Any], str] = {
    callback_p: "calls Python",
    for_p: "runs an inner loop",
    special.threefry2x32_p: "makes random bits",
}
TURNS = ((4, 20, 4), (4, 40, 2), (40, 32, 2))
"""Elements of the largest value of a body, its equations, both at most; and how many steps make a turn.

Fitted on two versions of jaxlib to the loops of `benchmarks/planning/fitted.py`: `benchmarks/planning/fit.py`.
"""
FEW = 4
"""Elements of the largest value up to which a step may be several kernels."""
STACKED = 20
"""Elements of the largest value up to which a step is left alone that stacks the array which it carries.

Two or four steps to a turn took 1.02 to 1.26 times as long; from 24 elements on .8 to 1.04. A step that multiplies a
matrix of more than `FEW` elements took .95 to 1.3 times as long. Measured on two versions of jaxlib with twenty loops
of 2 to 40 elements and their gradients.
"""
FUNCTION, OF_ONE_KERNEL, OF_SEVERAL = 16, 2, 4
"""Operations an element from which on an equation is a function such as exp; and how many elements of such functions a
step on small arrays may compute: if it is one kernel, and if it is several. With numbers alone it may compute any.

Above these, two steps to a turn took up to 1.9 times as long on two versions of jaxlib; above 40 elements arithmetic
alone took up to 3.8 times. Measured on 50 steps, of 1 to 1,024 elements.
"""
LONG, BRIEF = 100_000, 70
"""Steps of a loop from which on, and operations of a step up to which, a turn has twice as many steps as by `TURNS`.

Only then does the time that they save pay for compiling them: 12 ms, in 200 runs. A step of more operations hides
what it waits for; with a function such as sin, eight of them take longer than four.
"""
_READ = (primitives.get_p, prims.broadcast_in_dim_p)
_WRITTEN = (primitives.swap_p, primitives.addupdate_p)
BUSY = 4
"""Accesses of an array in place, in a step, from which on it waits; an addition is two.

With fewer, a step alone may need no order of its reads and writes, which the steps of one turn need: on jaxlib 0.10.2
one read and one write at the same place, four steps to a turn, take 1.2 times as long. Measured on the loops of
`benchmarks/planning` that do so, those of `inplace` and the pointful ones of `loops`.
"""
LEAST_TURNS = 4
"""Turns below which nothing is gained."""


def unroll(eqn: ir.Eqn) -> record.Planned:
    """A loop with several steps to a turn, if its caller leaves that open and its steps wait for each other."""
    p = eqn.params
    if p.unroll != options.AUTO or p.num_carry:
        return record.Planned(eqn)
    refs = [r for r in p.body.invars[p.first_ref + 1 :] if isinstance(r.aval, AbstractRef)]
    carried = [ref for ref in refs if _is_carried(p.body, ref)]
    why = _why_not(eqn, refs, carried)
    if why is not None:
        waits_for = carried or end_flag(p.body) is not None
        tells = waits_for and p.nsteps > 1 and p.record.tells
        no = record.Decision(STEP, "", False, f"a turn is one step: {why[0]}", why[1])
        return record.Planned(eqn, told=[no] if tells else [])
    count = steps_a_turn(p.body, p.nsteps)
    loop = eqn.replace(params=replace(p, unroll=count))
    done = f"a step depends on the step before, so {count} steps run in one iteration"
    return record.Planned(loop, told=[record.Decision(STEP, "", True, done, eqn.source)])


def _why_not(eqn: ir.Eqn, refs: ir.Vars, carried: ir.Vars) -> tuple[str, ir.Source | None] | None:
    """Why a turn is one step, and where; None if it is more."""
    p = eqn.params
    if end_flag(p.body) is not None:
        return "it may end after any", eqn.source
    for e in filter(is_long, p.body.eqns):
        return f"it {_RUNS.get(e.primitive, f'runs `{e.primitive}`')}", e.source
    back = [ref for ref in refs if is_read_back(p.body, ref)]
    if not any(waits(p.body, ref) for ref in refs) and not any(is_busy(p.body, r) for r in back):
        kind = carried[0].aval.dtype.name if carried else "no carried number"
        return (
            f"it depends on the step before by {kind}, and not by a floating-point number",
            eqn.source,
        )
    count = steps_a_turn(p.body, p.nsteps)
    if count == 1:
        return _size(eqn)
    if p.nsteps < LEAST_TURNS * count:
        return f"{p.nsteps} steps are too few for several turns of {count}", eqn.source
    known = ChainFinder(p)
    for ref in back:
        name = p.name_of(ref)
        accesses = accesses_of(p.body, ref)
        if accesses is None:
            return f"it changes `{name}` other than at indices", eqn.source
        for access in accesses:
            if access.index(known.numbers, known.fixed) is None:
                why = "at indices that do not come from the counter"
                return f"it reads `{name}` and changes it {why}", access.eqn.source
    return None


def is_long(eqn: ir.Eqn) -> bool:
    """Whether an equation is more than an operation: it runs bodies of its own, or Python, or enciphers."""
    return eqn.primitive in _RUNS or bool(ir.jaxprs_in(eqn.params))


def steps_a_turn(body: Jaxpr, nsteps: int) -> int:
    """How many of a loop's steps make a turn, by the size of its body; one more if no step is left over then."""
    sizes = [ir.size_of(v.aval.shape) for eqn in body.eqns for v in eqn.outvars]
    if not all(map(ir.is_constant, sizes)):
        return 1
    largest, count = max(sizes, default=0), len(body.eqns)
    if _longer(body, largest) is not None:
        return 1
    turn = next((n for size, eqns, n in TURNS if largest <= size and count <= eqns), 1)
    if turn < 4 or nsteps < LEAST_TURNS * turn:
        return turn
    if nsteps >= LONG and transforms.body_work(body) <= BRIEF:
        turn *= 2
    return turn + 1 if nsteps % turn and nsteps % (turn + 1) == 0 else turn


def _longer(body: Jaxpr, largest: int) -> tuple[str, ir.Eqn] | None:
    """Why several steps to a turn take longer, and for which equation; None if they do not."""
    other = _other_kernel(body)
    if largest > FEW and other is not None:
        why = f"a step on {largest:,} elements is more than one kernel: `{other.primitive}`"
        return why, other
    stacks = _stacks_carry(body) if other is None and 1 < largest <= STACKED else None
    if stacks is not None:
        return "a step stacks what it carries, in a kernel of its own", stacks
    longer = next((e for e in body.eqns if _multiplies_matrix(e)), _too_many(body, largest))
    if longer is None:
        return None
    return f"several steps to a turn take longer to compute `{longer.primitive}`", longer


def _stacks_carry(body: Jaxpr) -> ir.Eqn | None:
    """The equation that writes a value to a slot which is carried, too."""
    writes = [e for e in body.eqns if e.primitive in _WRITTEN and not e.outvars]
    carried = {e.invars[1] for e in writes if is_whole(e, e.invars[0])}
    slots = (e for e in writes if not is_whole(e, e.invars[0]))
    return next((e for e in slots if e.invars[1] in carried), None)


def _multiplies_matrix(eqn: ir.Eqn) -> bool:
    """Whether an equation multiplies a matrix of more than a few elements."""
    if eqn.primitive is not prims.dot_general_p:
        return False
    return any(ir.is_more(ir.size_of(a.aval.shape), FEW) for a in eqn.invars)


def _other_kernel(body: Jaxpr) -> ir.Eqn | None:
    """The first equation that makes a step more than one kernel: it is not elementwise, or writes a second value."""
    written: ir.Atom | None = None
    for eqn in body.eqns:
        if eqn.primitive in _WRITTEN and not eqn.outvars:
            written = written or eqn.invars[1]
            if eqn.invars[1] is not written:
                return eqn
        elif eqn.primitive not in _READ and not rules.by_element_rules.find(eqn.primitive):
            return eqn
    return None


def _too_many(body: Jaxpr, largest: int) -> ir.Eqn | None:
    """A function such as exp of which a step computes too many elements for several steps to a turn."""
    found = [
        (size, eqn)
        for eqn in body.eqns
        if rules.by_element_rules.find(eqn.primitive)
        if (size := ir.size_of(eqn.outvars[0].aval.shape))
        if transforms.equation_cost(eqn).flops >= FUNCTION * size
    ]
    few = 0 if largest > FEW else OF_ONE_KERNEL if _other_kernel(body) is None else OF_SEVERAL
    return found[0][1] if largest > 1 and sum(size for size, _ in found) > few else None


def waits(body: Jaxpr, ref: ir.Var) -> bool:
    """Whether each step computes with all that a Ref holds, and changes it."""
    if ref.aval.dtype.kind not in "fc":
        return False
    users = [e for e in ir.users(body).get(ref, ()) if is_whole(e, ref)]
    reads = any(eqn.outvars for eqn in users)
    return any(
        e.primitive is primitives.addupdate_p or (e.primitive is primitives.swap_p and reads)
        for e in users
    )


def is_read_back(body: Jaxpr, ref: ir.Var) -> bool:
    """Whether a Ref is changed at indices and read: then the steps of one turn would have to be ordered."""
    users = ir.users(body).get(ref, ())
    is_changed = any(e.primitive is not primitives.get_p and not is_whole(e, ref) for e in users)
    return is_changed and any(e.outvars for e in users)


def is_busy(body: Jaxpr, ref: ir.Var) -> bool:
    """Whether a step reads and writes an array so often that several steps to a turn take less time."""
    users = ir.users(body).get(ref, ())
    return len(users) + sum(e.primitive is primitives.addupdate_p for e in users) >= BUSY


def is_whole(eqn: ir.Eqn, ref: ir.Atom) -> bool:
    """Whether an equation takes all that a Ref holds."""
    return getattr(eqn.params, "indexer", None) == indexer.whole_indexer(ref.aval.shape)


def _is_carried(body: Jaxpr, ref: ir.Var) -> bool:
    """Whether a step takes all that a Ref holds, and changes it."""
    users = ir.users(body).get(ref, ())
    reads, writes = any(e.outvars for e in users), any(not e.outvars for e in users)
    return reads and writes and all(is_whole(e, ref) for e in users)


def _size(eqn: ir.Eqn) -> tuple[str, ir.Source | None]:
    """What of a body is too large."""
    made = [(ir.size_of(v.aval.shape), e) for e in eqn.params.body.eqns for v in e.outvars]
    if not all(ir.is_constant(size) for size, _ in made):
        return "the sizes of what it computes are not known", eqn.source
    size, largest = max(made, key=lambda pair: pair[0])
    most = max(most for most, _, _ in TURNS)
    if size > most:
        return f"it computes an array of {size:,} elements, more than {most:,}", largest.source
    longer = _longer(eqn.params.body, size)
    if longer is not None:
        why, which = longer
        return why, which.source
    return f"it is long, {len(eqn.params.body.eqns)} operations", eqn.source
