"""Products that a loop adds up become one contraction after it.

The derivative of weights that a loop uses in every step is a sum of outer products, each as large as the weights.
Where nothing in the loop reads the sum, the factors are kept instead, and contracted over the steps in the end.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import prod

from fiveloop.core import Jaxpr
from fiveloop.core.engine import (
    bytes_of,
    dot_general_p,
    neg_p,
    select_by,
    transpose_p,
    whole_indexer,
)
from fiveloop.core.extend import (
    NO_PARAMS,
    Atom,
    Eqn,
    Var,
    add_p,
    mutated_positions,
    new_eqn,
    size_of,
)
from fiveloop.loops.for_loop.primitive import for_p, is_state
from fiveloop.loops.for_loop.stacks import slot_indexer, write_slot, zeros_eqn
from fiveloop.loops.planning.derived import without_operand
from fiveloop.loops.planning.record import Decision, Planned
from fiveloop.state import AbstractRef
from fiveloop.state.engine import IndexParams, addupdate_p, get_p

LEAST_SUM = 1024
"""Elements of a sum below which it is added up in the loop."""
MOST_TERMS = 8
"""Terms that a step's own contraction adds up, beyond which it stays in the loop."""
MOST_KEPT = 16
"""How many times the room of the sum the factors may take that have not been kept anyway."""


STEP = "sink"
SUNK = "the factors of its terms are kept, and contracted after the loop"


def sink(eqn: Eqn) -> Planned:
    """A loop, and the contractions that take the place of what it would add up."""
    done = Planned(eqn)
    while True:
        found = _next(done.loop, done.told)
        if found is None:
            return done
        products, sums = found
        before, loop, after = products.sink(sums)
        told = Decision(STEP, _name(done.loop, products.ref), True, SUNK, sums[0].source)
        done = Planned(loop, [*done.before, *before], [*after, *done.after], [*done.told, told])


def _next(eqn: Eqn, told: list[Decision]) -> tuple[Products, list[Eqn]] | None:
    """The products of the first sum that is worth it; `told` is given why others are not."""
    if eqn.params.num_carry:
        return None
    body: Jaxpr = eqn.params.body
    for ref in body.invars[1 + eqn.params.num_consts :]:
        sums = _sums(body, ref)
        if not sums:
            continue
        why = f"it has fewer than {LEAST_SUM:,} elements"
        if size_of(ref.aval.shape) >= LEAST_SUM:
            products = Products(eqn, ref)
            why = _why_not(products, sums)
            if not why:
                return products, sums
        reason = f"it is added up in the loop: {why}"
        stays = Decision(STEP, _name(eqn, ref), False, reason, sums[0].source)
        if stays not in told:
            told.append(stays)
    return None


def _name(eqn: Eqn, ref: Var) -> str:
    p = eqn.params
    name: str = p.record.names_of(len(eqn.invars))[p.body.invars.index(ref) - 1]
    return name


def _why_not(products: Products, sums: list[Eqn]) -> str:
    """Why the products that a sum adds up are not kept, if they are not."""
    if not all(products.take(e.invars[1]) for e in sums):
        return products.why
    return "" if products.pay else "the factors of all steps would take more room"


def _sums(body: Jaxpr, ref: Var) -> list[Eqn]:
    """The equations that add to a whole Ref, if that is all that is done with it."""
    if not isinstance(ref.aval, AbstractRef):
        return []
    found = [e for e in body.eqns if ref in e.invars]
    whole = IndexParams(whole_indexer(ref.aval.shape))
    are_sums = all(e.primitive is addupdate_p and e.params == whole for e in found)
    return found if are_sums else []


class Products:
    """The products that a loop adds to a Ref: which equations make them, of which factors."""

    def __init__(self, eqn: Eqn, ref: Var) -> None:
        self.eqn = eqn
        self.ref = ref
        self.body: Jaxpr = eqn.params.body
        self.made = {v: e for e in self.body.eqns for v in e.outvars}
        self.uses = Counter(a for e in self.body.eqns for a in e.invars if isinstance(a, Var))
        self.why = ""
        self.terms: list[Eqn] = []
        self.factors: dict[Var, int | None] = {}

    def take(self, x: Atom) -> bool:
        """Take the equations that make `x`: products, and what is linear in them; whether there are no others."""
        eqn = self.made.get(x) if isinstance(x, Var) else None
        if eqn is None or self.uses[eqn.outvars[0]] != 1:
            self.why = "what a step adds is used for something else, too, or is not made in it"
            return False
        if eqn.primitive in (transpose_p, neg_p, add_p):
            taken = all(self.take(a) for a in eqn.invars)
        else:
            taken = eqn.primitive is dot_general_p and self._take_factors(eqn)
            if eqn.primitive is not dot_general_p:
                self.why = f"what a step adds is no product, but comes from `{eqn.primitive}`"
        self.terms.append(eqn)
        return taken

    def _take_factors(self, eqn: Eqn) -> bool:
        factors = [a for a in eqn.invars if isinstance(a, Var) and a in self.made]
        shape, axes = eqn.invars[0].aval.shape, eqn.params.contract[0]
        for x in factors:
            self.factors[x] = self._kept(x)
        if len(factors) != 2:
            self.why = "a factor is the same in all steps"
        elif prod(shape[k] for k in axes) > MOST_TERMS:
            self.why = f"a step's own product adds up more than {MOST_TERMS} terms"
        return not self.why

    def _kept(self, x: Var) -> int | None:
        """The operand in whose slots a factor has been kept: it is read at the counter, and nothing changes it."""
        read, i = self.made[x], self.body.invars[0]
        if read.primitive is not get_p or read.invars[1:] != (i,):
            return None
        stack = read.invars[0]
        place = self.body.invars.index(stack) if stack in self.body.invars else 0
        own = place and place not in mutated_positions(self.body.effects)
        is_slot = read.params.indexer == slot_indexer(stack.aval)
        fits = own and is_slot and stack.aval.shape[0] == self.eqn.params.nsteps
        return place - 1 if fits else None

    @property
    def pay(self) -> bool:
        """Whether the factors take little room, or no more than those that have been kept anyway."""
        steps = self.eqn.params.nsteps
        new = steps * bytes_of(x.aval for x, kept in self.factors.items() if kept is None)
        old = steps * bytes_of(x.aval for x, kept in self.factors.items() if kept is not None)
        room = max(old, MOST_KEPT * bytes_of([self.ref.aval]))
        return bool(steps > 1 and new <= room)

    def sink(self, sums: list[Eqn]) -> tuple[list[Eqn], Eqn, list[Eqn]]:
        """What makes room for the factors, the loop that keeps them, and what adds up their products."""
        new = [x for x, kept in self.factors.items() if kept is None]
        stacks = [zeros_eqn(x.aval.strong().batched(self.eqn.params.nsteps)) for x in new]
        filled = [Var(e.outvars[0].aval) for e in stacks]
        loop, result = self._loop_without(sums, new, stacks, filled)
        kept: dict[Var, Atom] = dict(zip(new, filled, strict=True))
        after: list[Eqn] = []
        for x, place in self.factors.items():
            if place is not None:
                kept[x] = self._stack_after(place, after)
        after += self._contractions(kept)
        after += self._added([kept[e.invars[1]] for e in sums], result)  # type: ignore[index]
        return stacks, loop, after

    def _loop_without(
        self, sums: list[Eqn], new: list[Var], stacks: list[Eqn], filled: list[Var]
    ) -> tuple[Eqn, Var | None]:
        """The loop without the sum, that writes factors to slots; the result that the sum was."""
        eqn, body = self.eqn, self.body
        place = body.invars.index(self.ref) - 1
        states = is_state(eqn.params, [a.aval for a in eqn.invars])
        refs = [Var(AbstractRef(e.outvars[0].aval)) for e in stacks]
        writes = [write_slot(r, body.invars[0], x) for r, x in zip(refs, new, strict=True)]
        gone = {id(e) for e in (*sums, *self.terms)}
        eqns = [*[e for e in body.eqns if id(e) not in gone], *writes]
        keep = [k != place for k in range(len(eqn.invars))]
        outs = iter(eqn.outvars)
        results = [next(outs) if state else None for state in states]
        outvars = [v for v, k in zip(results, keep, strict=True) if v is not None and k]
        invars = [body.invars[0], *select_by(keep, body.invars[1:]), *refs]
        operands = [*select_by(keep, eqn.invars), *[e.outvars[0] for e in stacks]]
        record = without_operand(eqn.params.record, keep, len(stacks))
        params = replace(eqn.params, body=Jaxpr(invars, eqns, (), body.name), record=record)
        return new_eqn(for_p, operands, params, [*outvars, *filled], eqn.source), results[place]

    def _stack_after(self, place: int, after: list[Eqn]) -> Atom:
        """What is in the slots of an operand that the loop does not change."""
        operand = self.eqn.invars[place]
        if not isinstance(operand.aval, AbstractRef):
            return operand
        whole = IndexParams(whole_indexer(operand.aval.shape))
        after.append(new_eqn(get_p, [operand], whole, source=self.eqn.source))
        return after[-1].outvars[0]

    def _contractions(self, kept: dict[Var, Atom]) -> list[Eqn]:
        """The products of all steps, added up, and what is linear in them; `kept` has their results in the end."""
        found: list[Eqn] = []
        for eqn in self.terms:
            params = eqn.params
            if eqn.primitive is dot_general_p:
                left, right = params.contract
                one, two = params.batch
                params = replace(
                    params,
                    contract=((0, *_moved(left)), (0, *_moved(right))),
                    batch=(_moved(one), _moved(two)),
                )
            invars = [kept[a] for a in eqn.invars]  # type: ignore[index]  # they are variables
            found.append(new_eqn(eqn.primitive, invars, params, source=eqn.source))
            kept[eqn.outvars[0]] = found[-1].outvars[0]
        return found

    def _added(self, totals: list[Atom], result: Var | None) -> list[Eqn]:
        """Add the totals to what the Ref held before the loop, or to what it holds."""
        operand = self.eqn.invars[self.body.invars.index(self.ref) - 1]
        if result is None:
            whole = IndexParams(whole_indexer(operand.aval.shape))
            return [new_eqn(addupdate_p, [operand, x], whole, ()) for x in totals]
        eqns: list[Eqn] = []
        for k, x in enumerate(totals):
            out = [result] if k == len(totals) - 1 else None
            eqns.append(new_eqn(add_p, [operand, x], NO_PARAMS, out, self.eqn.source))
            operand = eqns[-1].outvars[0]
        return eqns


def _moved(axes: tuple[int, ...]) -> tuple[int, ...]:
    """The axes, behind that of the steps."""
    return tuple(k + 1 for k in axes)
