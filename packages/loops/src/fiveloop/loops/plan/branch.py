"""Reads and writes that only one branch of a `cond` needs happen in that branch.

Residuals are the main example: a branch that is not taken has none, and returns zeros, which a step would select,
write, and read again for the derivative. Reads move into the branches. A write for which a branch has no value becomes
a loop of one turn or no turn: XLA copies an array that a branch returns, but not an array that a loop carries.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import and_

import numpy as np

from fiveloop.core import Jaxpr, Value, arrays, ir, prims, rules, trace
from fiveloop.loops.analysis.accesses import Around, with_bodies
from fiveloop.loops.plan.factors import Stacks
from fiveloop.loops.primitives import cond, while_loop
from fiveloop.loops.record import Decision, Planned
from fiveloop.state import primitives

STEP = "branch"
WRITTEN = "it is written only if the branch that is taken has values for it"
READ = "it is read in the branches that use it"
NOT_ZERO = "every branch writes it: where a branch gives zeros, the array may not have zeros yet"
LARGE = 1 << 14
"""Bytes of an element from which on moving it costs more than choosing whether to."""
GUARD = "write for a branch"
"""What the body of a loop around a write is called."""


def branch(eqn: ir.Eqn, around: Around) -> Planned:
    """A loop that reads and writes large elements only for the branches that have to do with them."""
    p = eqn.params
    if p.num_carry:
        return Planned(eqn)
    names = dict(zip(p.body.invars[1:], p.names, strict=True))
    body, told = _body(p.body, names, untouched(eqn, around))
    if body is p.body:
        return Planned(eqn, told=told)
    loop = rules.new_eqn(eqn.primitive, eqn.invars, replace(p, body=body), eqn.outvars, eqn.source)
    return Planned(loop, told=told)


def untouched(eqn: ir.Eqn, around: Around) -> set[ir.Var]:
    """The Refs that hold zeros where a step writes to them: its own slot, of what is zero before the loop."""
    stacks = Stacks(eqn, around)
    zeros = {v for v, made in around.made.items() if _spreads_zero(made)}
    binders = zip(eqn.invars, stacks.body.invars[1:], strict=True)
    return {v for a, v in binders if a in zeros and stacks.slot_access(v, primitives.swap_p)}


def _body(
    body: Jaxpr, names: Mapping[ir.Var, str], untouched: Collection[ir.Var] = ()
) -> tuple[Jaxpr, list[Decision]]:
    """A body, and what it chooses or calls."""
    found = _Moves(body, names, untouched)
    eqns = [found.choices.get(id(eqn), eqn) for eqn in body.eqns if id(eqn) not in found.moved]
    if found.moved:
        body = Jaxpr(body.invars, [*eqns, *found.writes], body.outvars, body.name)
    body, inner = with_bodies(body, names, _body)
    return body, [*found.told, *inner]


class _Moves:
    """The reads and writes of a body that belong to branches: equations to remove, and their replacements."""

    def __init__(
        self, body: Jaxpr, names: Mapping[ir.Var, str], untouched: Collection[ir.Var]
    ) -> None:
        self.names = names
        self.untouched = untouched
        self.told: list[Decision] = []
        self.moved: set[int] = set()
        self.choices: dict[int, ir.Eqn] = {}
        self.writes: list[ir.Eqn] = []
        self._uses = ir.use_counts(body)
        self._made = ir.makers(body)
        changed = ir.mutated_positions(body.effects)
        self._fixed = {v for k, v in enumerate(body.invars) if k not in changed}
        for eqn in body.eqns:
            if eqn.primitive is cond.cond_p:
                self._read(eqn)
            elif eqn.primitive is primitives.swap_p or eqn.primitive is primitives.addupdate_p:
                self._write(eqn)

    def _read(self, choice: ir.Eqn) -> None:
        """Move reads of which some branches alone use what they give into these."""
        operands = ir.vars_in_order(choice.invars[1:])
        reads = [
            read
            for a in operands
            if (read := self._made.get(a)) is not None
            and self._may_move(read)
            and _is_for_some(choice, a)
        ]
        if reads:
            self.choices[id(choice)] = _with_reads(choice, reads)
            self.moved |= {id(e) for e in reads}
            for read in reads:
                self._tell(read, READ, choice)

    def _may_move(self, eqn: ir.Eqn) -> bool:
        """Whether an equation reads, for one user alone, what no equation changes."""
        is_read = eqn.primitive is primitives.get_p and eqn.invars[0] in self._fixed
        return is_read and self._uses[eqn.outvars[0]] == 1 and is_large(eqn.outvars[0])

    def _write(self, eqn: ir.Eqn) -> None:
        """Guard a write, alone on its Ref, that changes nothing where some branches are taken."""
        ref, x = _ref(eqn), eqn.invars[1]
        choice = ir.maker(x, self._made, cond.cond_p)
        if choice is None or eqn.outvars or not is_large(x):
            return
        if ref not in self.names or self._uses[ref] != 1:
            return
        place = choice.outvars.index(x)
        made = [ir.maker(b.outvars[place], ir.makers(b)) for b in choice.params.branches]
        nothing = [k for k, e in enumerate(made) if e is not None and _spreads_zero(e)]
        if not 0 < len(nothing) < len(choice.params.branches):
            return
        if eqn.primitive is primitives.addupdate_p or ref in self.untouched:
            self.moved.add(id(eqn))
            self.writes += _guarded(eqn, choice.invars[0], nothing)
            self._tell(eqn, WRITTEN, choice)
        else:
            self._tell(eqn, NOT_ZERO, choice, done=False)

    def _tell(self, access: ir.Eqn, why: str, choice: ir.Eqn, done: bool = True) -> None:
        name = self.names.get(_ref(access), "a Ref")
        self.told.append(Decision(STEP, name, done, why, choice.source))


def _ref(access: ir.Eqn) -> ir.Var:
    ref = access.invars[0]
    assert isinstance(ref, ir.Var), "unreachable: a Ref is a variable"
    return ref


def is_large(x: ir.Atom) -> bool:
    """Whether an element takes so much room that moving it costs more than choosing whether to."""
    return ir.is_more(prims.bytes_of([x.aval]), LARGE)


def _is_for_some(choice: ir.Eqn, x: ir.Var) -> bool:
    """Whether some branches use an operand, and others do not."""
    place = choice.invars.index(x) - 1
    uses = [b.invars[place] in ir.used_by(b.eqns, b.outvars) for b in choice.params.branches]
    return any(uses) and not all(uses)


def _with_reads(choice: ir.Eqn, reads: ir.Eqns) -> ir.Eqn:
    """A choice whose branches read what they use, in the place of operands."""
    index, *operands = choice.invars
    gone = {e.outvars[0] for e in reads}
    kept = [a for a in operands if a not in gone]
    more = ir.vars_in_order([a for e in reads for a in e.invars])
    new = [a for a in more if a not in kept]
    branches = tuple(_reading(b, reads, operands, new) for b in choice.params.branches)
    params = replace(choice.params, branches=branches)
    return rules.new_eqn(cond.cond_p, [index, *kept, *new], params, choice.outvars, choice.source)


def _reading(b: Jaxpr, reads: ir.Eqns, operands: ir.Atoms, new: ir.Vars) -> Jaxpr:
    """A branch that begins with reads.

    b       : [*operands]                              -> [*outs]
    reading : [*operands that are not read, *new]      -> [*outs]
    """
    has = {a: v for a, v in zip(operands, b.invars, strict=True) if isinstance(a, ir.Var)}
    has.update({a: ir.Var(a.aval) for a in new})
    used = ir.used_by(b.eqns, b.outvars)
    places = [has[e.outvars[0]] for e in reads]
    eqns = [
        ir.rename(e, has).replace(outvars=(v,))
        for e, v in zip(reads, places, strict=True)
        if v in used
    ]
    invars = [v for v in b.invars if v not in places]
    return Jaxpr([*invars, *[has[a] for a in new]], [*eqns, *b.eqns], b.outvars, b.name)


def _guarded(write: ir.Eqn, index: ir.Atom, nothing: Sequence[int]) -> list[ir.Eqn]:
    """Equations that write unless the branch taken has nothing to write.

    operands : [index, ref, x, *index of the write]
    """
    avals = [a.aval for a in write.invars]

    def run(taken: Value, ref: Value, *rest: Value) -> list[Value]:
        is_wanted = reduce(and_, [taken != k for k in nothing])
        trace.bind(while_loop.while_p, *rest, is_wanted, ref, params=params)
        return []

    def turn(*args: Value) -> list[Value]:
        *rest, _, ref = args
        trace.bind(write.primitive, ref, *rest, params=write.params)
        return [arrays.Scalar(np.asarray(False))]

    binders = [*avals[1:], while_loop.PREDICATE, avals[0]]
    params = while_loop.WhileParams(
        trace.stage_closed(lambda *args: [args[-2]], binders, "is wanted"),
        trace.stage_closed(turn, binders, GUARD),
        len(avals) - 1,
    )
    made = trace.stage_closed(run, [cond.INDEX, *avals], "write")
    eqns, _ = ir.inlined(made, [index, *write.invars])
    return [e.replace(source=write.source) for e in eqns]


def is_guard(eqn: ir.Eqn) -> bool:
    """Whether an equation is a loop of at most one turn around a write."""
    return eqn.primitive is while_loop.while_p and eqn.params.body.name == GUARD


def _spreads_zero(eqn: ir.Eqn) -> bool:
    """Whether an equation makes an array of zeros."""
    x = eqn.invars[0] if eqn.primitive.name == "broadcast_in_dim" else None
    return isinstance(x, ir.Literal) and not np.any(np.asarray(x.value))
