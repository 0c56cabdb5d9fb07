"""Products that a loop sums become one contraction after it.

The derivative of weights that a loop uses in every step is a sum of outer products, each as large as the weights.
Where nothing in the loop reads the sum, the factors are stacked instead, and contracted over the steps after the
loop, if the cost model expects this to take less time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from fiveloop.core import Jaxpr, Value, arrays, ir, prims, rules, trace, transforms, util
from fiveloop.core.index import access
from fiveloop.core.ir.indexer import Indexer, Span
from fiveloop.loops.analysis.accesses import ALONE, Around, all_of, read_whole
from fiveloop.loops.for_loop.residuals import MOST_KEPT
from fiveloop.loops.plan.factors import Places, Stacks, contents_type, joined_from
from fiveloop.loops.primitives import cond
from fiveloop.loops.primitives.for_loop import INDEX, ForParams, by_operand, for_p
from fiveloop.loops.record import MACHINERY, Decision, Planned
from fiveloop.state import AbstractRef, primitives

RATES = (0.06, 0.035, 5.0)
"""Nanoseconds of a step: for each element of a sum that it adds up, for each byte of factors that it keeps instead, and
for keeping any.

Fitted on two versions of jaxlib to sums of 64 to 16,384 elements whose terms are products of 1 to 64 terms, with
factors that are kept anyway and not: `benchmarks/planning/rates.py sums`.
"""
MOST_TERMS, MOST_TERMS_IN_PLACE = 64, 128
"""Terms of a step's own product, beyond which adding it up is nothing beside the product; and the same where no factor
takes new room."""

BLOCK = 256
"""Rows of factors that are contracted at once, where some may not be filled."""

STEP = "sink"
NO_SIZE = "its size is not known"
SUNK = "the factors of its terms are saved, and contracted after the loop"


def sink(eqn: ir.Eqn, around: Around = ALONE) -> Planned:
    """A loop, and the contractions that take the place of what it would add up."""
    done = Planned(eqn)
    while True:
        found = _next(done.loop, around, done.told)
        if found is None:
            return done
        before, loop, after = found.sink()
        around = around.and_then(after)
        told = Decision(STEP, done.loop.params.name_of(found.ref), True, SUNK, found.sums[0].source)
        done = Planned(loop, [*done.before, *before], [*after, *done.after], [*done.told, told])


def _next(eqn: ir.Eqn, around: Around, told: list[Decision]) -> Products | None:
    """The products of the first sum that is worth it; `told` is given why others are not."""
    if eqn.params.num_carry:
        return None
    body: Jaxpr = eqn.params.body
    others: list[Decision] = []
    for ref in body.invars[1 + eqn.params.num_consts :]:
        sums = _sums(body, ref)
        if not sums:
            others += _not_only_added(eqn, ref) if eqn.params.record.tells else []
            continue
        size = ir.size_of(ref.aval.shape)
        why = NO_SIZE
        if ir.is_constant(size):
            products = [Products(eqn, around, ref, sums, reuses) for reuses in (False, True)]
            for each in products:
                if not each.why:
                    return each
            why = products[0].why
        reason = f"it is added up in the loop: {why}"
        stays = Decision(STEP, eqn.params.name_of(ref), False, reason, sums[0].source)
        if stays not in told:
            told.append(stays)
    told += others
    return None


def _not_only_added(eqn: ir.Eqn, ref: ir.Var) -> list[Decision]:
    """Why products are added up in the loop that go to a Ref with which a step does something else, too."""
    p = eqn.params
    if p.nsteps < 2 or p.record.called.call == "accumulate_grads":
        return []
    why = _why_not(p.body, ref) if isinstance(ref.aval, AbstractRef) else None
    if why is None:
        return []
    return [
        Decision(
            STEP, eqn.params.name_of(ref), False, f"it is added up in the loop: {why[0]}", why[1]
        )
    ]


def _sums(body: Jaxpr, ref: ir.Var) -> ir.Eqns:
    """The equations that add to a whole Ref, if a step else only adds to elements of it."""
    if not isinstance(ref.aval, AbstractRef):
        return []
    found = ir.users(body).get(ref, ())
    if any(e.primitive is not primitives.addupdate_p or ref in e.invars[1:] for e in found):
        return []
    return [e for e in found if e.params == all_of(ref)]


class Products:
    """The products that a loop adds to a Ref: which equations make them, of which factors, and where these are kept.

    With `reuses`, in the place of what the loop reads for the last time; a factor that is joined from several is kept
    in parts then. `why` says why they are added up in the loop, if they are.
    """

    places: Places

    def __init__(
        self, eqn: ir.Eqn, around: Around, ref: ir.Var, sums: ir.Eqns, reuses: bool
    ) -> None:
        self.eqn = eqn
        self.ref = ref
        self.sums = sums
        self.reuses = reuses
        body: Jaxpr = eqn.params.body
        self.body = body
        self.made = ir.makers(body)
        self.uses = ir.use_counts(body)
        self.why = ""
        self.terms: list[ir.Eqn] = []
        self.factors: dict[ir.Var, tuple[list[ir.Var], int]] = {}
        if all(self._take(e.invars[1]) for e in sums):
            self.places = Places(Stacks(eqn, around))
            parts = dict.fromkeys(x for found, _ in self.factors.values() for x in found)
            self.places.find(list(parts), reuses)
            self.why = self._why_it_costs()

    def _take(self, x: ir.Atom) -> bool:
        """Take the equations that make `x`: products, and linear functions of products; whether there are no others."""
        eqn = ir.maker(x, self.made)
        if eqn is None or self.uses[eqn.outvars[0]] != 1:
            self.why = "the product that a step adds is used elsewhere, too, or is made outside of the step"
            return False
        if eqn.primitive in (prims.transpose_p, prims.neg_p, prims.add_p):
            taken = all(self._take(a) for a in eqn.invars)
        else:
            taken = eqn.primitive is prims.dot_general_p and self._take_factors(eqn)
            if eqn.primitive is not prims.dot_general_p:
                self.why = f"a step adds no product, but the result of `{eqn.primitive}`"
        self.terms.append(eqn)
        return taken

    def _take_factors(self, eqn: ir.Eqn) -> bool:
        factors = [a for a in eqn.invars if isinstance(a, ir.Var) and a in self.made]
        most = MOST_TERMS_IN_PLACE if self.reuses else MOST_TERMS
        shape, axes = eqn.invars[0].aval.shape, eqn.params.contract[0]
        terms = ir.size_of([shape[k] for k in axes])
        if len(factors) != 2:
            self.why = "a factor is the same in all steps"
        elif not ir.is_constant(terms):
            self.why = "how many terms a step's own product adds up is not known"
        elif terms > most:
            self.why = f"a step's own product adds up more than {most} terms"
        for side, x in enumerate(factors):
            parts, axis = joined_from(x, self.made) if self.reuses else ([x], 0)
            is_free = axis in eqn.params.free(side, x.aval.ndim)
            found = (parts, axis) if is_free or len(parts) == 1 else ([x], 0)
            if self.factors.setdefault(x, found) != found:
                self.why = "a factor that is joined from several is used in two ways"
        return not self.why

    def _why_it_costs(self) -> str:
        """Why the factors are not kept: they take too much room, or keeping them takes longer than adding up."""
        nsteps, new = self.eqn.params.nsteps, self.places.new_bytes
        room = max(self.places.kept_bytes, MOST_KEPT * prims.bytes_of([self.ref.aval]))
        if new > (0 if self.reuses else room) or nsteps < 2:
            return "the factors of all steps would take more memory"
        added, kept, any_kept = RATES
        adding = added * ir.size_of(self.ref.aval.shape)
        keeping = kept * new / nsteps + any_kept
        if adding < keeping:
            return f"that takes about {adding:.0f} ns a step, keeping the factors {keeping:.0f} ns"
        return ""

    def sink(self) -> tuple[list[ir.Eqn], ir.Eqn, list[ir.Eqn]]:
        """Equations that allocate the factors, the loop that stacks them, and equations that sum their products."""
        empties = self.places.empties
        loop, results = self._loop_without(empties)
        after: list[ir.Eqn] = []
        arrays: dict[ir.Var, ir.Atom] = {}
        places = {**self.places.kept, **self.places.reused, **self.places.new}
        for x, ref in places.items():
            array = self._array_after(ref, results, after)
            arrays[x] = _steps_first(array, self.places.axes.get(x, 0), after)
        for x, moved in self.places.moved.items():
            stack = self._array_after(moved.ref, results, after)  # type: ignore[arg-type]
            filled = next((a for a in arrays.values() if a in results.values()), stack)
            arrays[x] = moved.array(stack, self._outside(moved.start), filled, after)
        after += self._added(self._totals(arrays, after), results)
        return empties, loop, after

    def _totals(self, arrays: Mapping[ir.Var, ir.Atom], after: list[ir.Eqn]) -> list[ir.Atom]:
        """The sums over the steps; where a loop may end early, over the steps taken."""
        p = self.eqn.params
        if not p.counted:
            return self._sums_over(arrays, after)
        count, stacks = self.eqn.invars[0], [*arrays.values()]
        summed = partial(_summed, self._terms(arrays, BLOCK), self._terms(arrays, p.nsteps), p)
        made = trace.stage_closed(summed, [a.aval.strong() for a in (count, *stacks)])
        eqns, totals = ir.inlined(made, [count, *stacks])
        after += eqns
        return totals

    def _terms(self, arrays: Mapping[ir.Var, ir.Atom], most: int) -> Jaxpr:
        """The sums over all rows of the arrays, or over so many of them.

        terms : [*rows] -> [*sums]
        """
        count = min(most, self.eqn.params.nsteps)
        rows = {x: ir.Var(a.aval.strong().unbatched(0).batched(count)) for x, a in arrays.items()}
        eqns: list[ir.Eqn] = []
        return Jaxpr([*rows.values()], eqns, self._sums_over(rows, eqns))

    def _sums_over(self, arrays: Mapping[ir.Var, ir.Atom], after: list[ir.Eqn]) -> list[ir.Atom]:
        """What is added up, over all rows of the arrays."""
        made = self._contractions(arrays, after)
        return [made[e.invars[1]] for e in self.sums]  # type: ignore[index]  # they are variables

    def _loop_without(self, empties: ir.Eqns) -> tuple[ir.Eqn, dict[ir.Var, ir.Var]]:
        """The loop without the sums, that writes factors to slots; the results, by the Refs whose contents they are.

        Without the Ref, too, unless a step adds to elements of it.
        """
        eqn, body, new = self.eqn, self.body, list(self.places.new.values())
        finals = zip(body.invars[1:], by_operand(eqn.params, eqn.invars, eqn.outvars), strict=True)
        results = {ref: out for ref, out in finals if out is not None}
        results.update((ref, ir.Var(contents_type(ref))) for ref in new)
        gone = {id(e) for e in (*self.sums, *self.terms)}
        eqns = [*[e for e in body.eqns if id(e) not in gone], *self.places.writes]
        stays = any(self.ref in e.invars for e in eqns)
        if stays and self.ref in results:
            results[self.ref] = ir.Var(results[self.ref].aval)
        keep = [stays or ref is not self.ref for ref in body.invars[1:]]
        invars = [body.invars[0], *util.select_by(keep, body.invars[1:]), *new]
        operands = [*util.select_by(keep, eqn.invars), *[e.outvars[0] for e in empties]]
        params = replace(eqn.params, body=Jaxpr(invars, eqns, (), body.name))
        outvars = [v for ref, v in results.items() if stays or ref is not self.ref]
        return rules.new_eqn(for_p, operands, params, outvars, eqn.source), results

    def _array_after(
        self, ref: ir.Var, results: Mapping[ir.Var, ir.Var], after: list[ir.Eqn]
    ) -> ir.Atom:
        """What a Ref of the loop holds after it."""
        if any(ref is e.invars[0] for e in self.places.writes):
            return results[ref]
        place = self.body.invars.index(ref)
        if place in ir.mutated_positions(self.body.effects) and ref in results:
            return results[ref]
        operand = self.eqn.invars[place - 1]
        if not isinstance(operand.aval, AbstractRef):
            return operand
        after.append(read_whole(operand, source=self.eqn.source))
        return after[-1].outvars[0]

    def _outside(self, atom: ir.Atom) -> ir.Atom:
        """What a constant of the body is outside of the loop."""
        if not isinstance(atom, ir.Var):
            return atom
        found: ir.Atom = self.eqn.invars[self.body.invars.index(atom) - 1]
        return found

    def _contractions(
        self, arrays: Mapping[ir.Var, ir.Atom], after: list[ir.Eqn]
    ) -> dict[ir.Var, ir.Atom]:
        """The products of all steps, added up, and what is linear in them, by what they were in a step."""
        made: dict[ir.Var, ir.Atom] = {}
        for eqn in self.terms:
            if eqn.primitive is prims.dot_general_p:
                left, right = ([arrays[x] for x in self.factors[a][0]] for a in eqn.invars)  # type: ignore[index]
                pieces = [[_product(eqn, x, y, after) for y in right] for x in left]
                rows = [_joined(row, self._axis(eqn, 1), after) for row in pieces]
                made[eqn.outvars[0]] = _joined(rows, self._axis(eqn, 0), after)
                continue
            invars = [made[a] for a in eqn.invars]  # type: ignore[index]  # they are variables
            after.append(rules.new_eqn(eqn.primitive, invars, eqn.params, source=eqn.source))
            made[eqn.outvars[0]] = after[-1].outvars[0]
        return made

    def _axis(self, eqn: ir.Eqn, side: int) -> int:
        """Which axis of a product is that along which a factor is joined."""
        x, p = eqn.invars[side], eqn.params
        _, axis = self.factors[x]  # type: ignore[index]
        first = len(p.batch[0]) + (len(p.free(0, eqn.invars[0].aval.ndim)) if side else 0)
        free = p.free(side, x.aval.ndim)
        return first + free.index(axis) if axis in free else 0

    def _added(self, totals: ir.Atoms, results: Mapping[ir.Var, ir.Var]) -> list[ir.Eqn]:
        """Add the totals to what the Ref held before the loop, or to what it holds after it."""
        eqn, place = self.eqn, self.body.invars.index(self.ref) - 1
        result = by_operand(eqn.params, eqn.invars, eqn.outvars)[place]
        held = results.get(self.ref)
        operand = eqn.invars[place] if held is None or held is result else held
        if result is None:
            return [
                rules.new_eqn(primitives.addupdate_p, [operand, x], all_of(self.ref), ())
                for x in totals
            ]
        eqns: list[ir.Eqn] = []
        for k, x in enumerate(totals):
            out = [result] if k == len(totals) - 1 else None
            eqns.append(rules.new_eqn(prims.add_p, [operand, x], ir.NO_PARAMS, out, eqn.source))
            operand = eqns[-1].outvars[0]
        return eqns


def _product(eqn: ir.Eqn, left: ir.Atom, right: ir.Atom, after: list[ir.Eqn]) -> ir.Atom:
    """The product of what two factors are in all steps, added up over these."""
    contract, batch = eqn.params.contract, eqn.params.batch
    params = replace(
        eqn.params,
        contract=((0, *_moved(contract[0])), (0, *_moved(contract[1]))),
        batch=(_moved(batch[0]), _moved(batch[1])),
    )
    after.append(rules.new_eqn(prims.dot_general_p, [left, right], params, source=eqn.source))
    return after[-1].outvars[0]


def _steps_first(array: ir.Atom, axis: int, after: list[ir.Eqn]) -> ir.Atom:
    """The array with the axis of steps in front, where products do not have to move it."""
    if not axis:
        return array
    order = (axis, *[k for k in range(array.aval.ndim) if k != axis])
    after.append(rules.new_eqn(prims.transpose_p, [array], prims.TransposeParams(order)))
    return after[-1].outvars[0]


def _joined(parts: ir.Atoms, axis: int, after: list[ir.Eqn]) -> ir.Atom:
    if len(parts) == 1:
        return parts[0]
    after.append(rules.new_eqn(prims.concatenate_p, parts, prims.ConcatenateParams(axis)))
    return after[-1].outvars[0]


def _moved(axes: tuple[int, ...]) -> tuple[int, ...]:
    """The axes, behind that of the steps."""
    return tuple(k + 1 for k in axes)


def _summed(
    block: Jaxpr, all_rows: Jaxpr, p: ForParams, count: Value, *stacks: Value
) -> list[Value]:
    """The sums over the rows that the steps of a counted loop have filled.

    Where these are all rows, and more than a block, XLA adds them up faster at once than block by block.

    block, all_rows : [*rows] -> [*sums]
    """
    of_blocks = partial(_sums_of_blocks, block, p)
    if p.nsteps <= BLOCK:
        return of_blocks(count, *stacks)
    avals = [count.aval, *[x.aval for x in stacks]]
    at_once = lambda _, *rows: transforms.eval_jaxpr(all_rows, rows)
    sums = (
        trace.stage_closed(of_blocks, avals, "filled rows"),
        trace.stage_closed(at_once, avals, "all rows"),
    )
    is_full = prims.convert(count >= p.nsteps, cond.INDEX.dtype)
    return trace.bind(cond.cond_p, is_full, count, *stacks, params=cond.CondParams(sums))


def _sums_of_blocks(terms: Jaxpr, p: ForParams, count: Value, *stacks: Value) -> list[Value]:
    count = prims.minimum(count, _number(p.nsteps))
    size = terms.in_avals[0].shape[0]
    turns = (count + (size - 1)) // size
    first = _number(0) if p.counted == "lowest" else p.nsteps - count
    sums = [transforms.zeros_of(a) for a in terms.out_avals]
    # body : [k, turns, first, stop, *stacks, *sums] -> []
    avals = [*[INDEX] * 4, *[x.aval for x in stacks], *[AbstractRef(x.aval) for x in sums]]
    body = trace.stage_closed(partial(_add_block, terms, p.nsteps, size), avals, "sum of blocks")
    most = -(-p.nsteps // size)
    operands = [turns, first, first + count, *stacks]
    params = ForParams(
        most, body, len(operands), unroll=1, counted="lowest", off=p.off, record=MACHINERY
    )
    return trace.bind(for_p, *operands, *sums, params=params)


def _add_block(
    terms: Jaxpr, steps: int, size: int, k: Value, _: Value, first: Value, stop: Value, *args: Value
) -> list[Value]:
    """Add the terms of a block of filled rows; the last ones may have been in the block before, or not filled."""
    stacks, sums = util.split_list(args, [len(terms.invars)])
    low = first + size * k
    start = prims.minimum(low, _number(steps - size))
    row = start + prims.iota(INDEX.dtype, (size,))
    counts = prims.bitwise_and(row >= low, row < stop)
    blocks = [_block(x, start, counts) for x in stacks]
    for ref, x in zip(sums, transforms.eval_jaxpr(terms, blocks), strict=True):
        ref[...] = ref[...] + x
    return []


def _block(stack: Value, start: Value, counts: Value) -> Value:
    """The rows of a stack from a given row on, with zeros in rows that do not count."""
    (size,) = counts.shape
    spans = [Span(None, size), *[Span(0, n) for n in stack.shape[1:]]]
    rows = access.take(stack, Indexer(tuple(spans)), [start], resolved=True)
    return prims.select(
        prims.broadcast_in_dim(counts, rows.shape, [0]), rows, transforms.zeros_of(rows.aval)
    )


def _number(k: int) -> Value:
    return arrays.as_value(np.int32(k))


def _why_not(body: Jaxpr, ref: ir.Var) -> tuple[str, ir.Source | None] | None:
    made = ir.makers(body)
    users = ir.users(body).get(ref, ())
    sums = [e for e in users if e.primitive is primitives.addupdate_p and e.params == all_of(ref)]
    if not _is_large(ref):
        return None
    if any(_is_product(e.invars[1], made) for e in sums):
        others = [e for e in users if e not in sums]
        return ("a step uses it for something else, too", others[0].source) if others else None
    return _carried_sum(users, made)


def _carried_sum(
    users: ir.Eqns, made: Mapping[ir.Var, ir.Eqn]
) -> tuple[str, ir.Source | None] | None:
    """The same for a sum that is carried as a value: read, added to, and written."""
    if [e.primitive for e in users] != [primitives.get_p, primitives.swap_p]:
        return None
    total = ir.maker(users[1].invars[1], made, prims.add_p)
    if total is None or users[0].outvars[0] not in total.invars:
        return None
    if not any(_is_product(a, made) for a in total.invars):
        return None
    return (
        "it is carried as a value; only what is added to a Ref, `r[...] += x`, is contracted",
        total.source,
    )


def _is_large(ref: ir.Var) -> bool:
    """Whether adding up a sum takes longer than keeping factors at all."""
    size, (added, _, any_kept) = ir.size_of(ref.aval.shape), RATES
    return ir.is_constant(size) and added * size >= any_kept


def _is_product(x: ir.Atom, made: Mapping[ir.Var, ir.Eqn]) -> bool:
    return ir.maker(x, made, prims.dot_general_p) is not None
