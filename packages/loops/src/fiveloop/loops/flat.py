"""A loop whose steps run loops on Refs, as one `while`: each turn of it runs a block, which says what block is next.

The backward pass of a loop begins with the contents that its Refs had before it. For an inner `while` all of these
would be saved in each step of the outer loop, however few elements are written. A single loop saves a few values per
step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from fiveloop.core import Jaxpr, Value, arrays, ir, prims, rules, trace, transforms, util
from fiveloop.core.closed_call import ClosedCallParams, closed_call_p
from fiveloop.core.dataclass import dataclass, field, replace
from fiveloop.loops.analysis import accesses
from fiveloop.loops.analysis.array_life import promote_carried
from fiveloop.loops.for_loop.slots import NO_BODY, numbered_body
from fiveloop.loops.primitives import slots
from fiveloop.loops.primitives.cond import INDEX, CondParams, cond_p
from fiveloop.loops.primitives.for_loop import ForParams, for_p, stateful
from fiveloop.loops.primitives.while_loop import WhileParams, parts, while_p
from fiveloop.loops.record import Decision, Record
from fiveloop.loops.schedules.binomial import Binomial, Slots
from fiveloop.state import AbstractRef, primitives

LOOPS = (for_p, while_p)
MOST_COPIED = 100
"""How many equations are copied to save a turn."""


def flat_call(eqn: ir.Eqn, kept: ir.Dim) -> ir.Eqn:
    """A call of one loop in the place of a loop over loops, if these have to keep large Refs.

    Where that does not pay, it is the loop as it is, whose record says why. `kept` is how many bytes the derivative
    would keep of each step of the outer loop.
    """

    def made() -> Jaxpr | Record:
        flow = _Flow(eqn, kept)
        obstacle = flow.obstacle()
        return flow.jaxpr() if obstacle is None else flow.record(False, obstacle)

    key = ("flat", replace(eqn.params, body=NO_BODY), kept, *[a.aval for a in eqn.invars])
    found: Jaxpr | Record = eqn.params.body.remember(key, made)
    if isinstance(found, Jaxpr):
        return _call(found, eqn)
    unchanged = found == eqn.params.record
    return eqn if unchanged else eqn.replace(params=replace(eqn.params, record=found))


def _call(jaxpr: Jaxpr, eqn: ir.Eqn) -> ir.Eqn:
    params = ClosedCallParams(jaxpr)
    return rules.new_eqn(closed_call_p, eqn.invars, params, eqn.outvars, eqn.source)


def call_on_refs(eqn: ir.Eqn) -> ir.Eqn | None:
    """A call of a `while` with Refs for the arrays that it carries and only indexes; None if there are none."""

    def made() -> Jaxpr:
        binders, outs = [[ir.Var(a.aval) for a in xs] for xs in (eqn.invars, eqn.outvars)]
        eqns = promote_carried(eqn.replace(invars=binders, outvars=outs))
        return Jaxpr(binders, eqns, outs, eqn.params.body.name)

    key = ("on refs", replace(eqn.params, body=NO_BODY), *[a.aval for a in eqn.invars])
    jaxpr: Jaxpr = eqn.params.body.remember(key, made)
    return _call(jaxpr, eqn) if len(jaxpr.eqns) > 1 else None


_ZERO = ir.Literal(arrays.as_value(np.int64(0)))


@dataclass(frozen=True, slots=True, eq=False)
class _Choice:
    """One of several blocks, or of further choices, by a number or a truth value."""

    by: ir.Atom
    ways: Sequence[_Way]


_OPEN = _Choice(_ZERO, ())


@dataclass(slots=True, eq=False)
class _Block:
    """Equations that run one after the other; then `sets` are set, all at once, and `next` says which block is next."""

    eqns: list[ir.Eqn] = field(default_factory=list)
    sets: dict[ir.Var, ir.Atom] = field(default_factory=dict)
    next: _Way = _OPEN

    @property
    def made(self) -> set[ir.Var]:
        """The variables that it makes."""
        return {v for eqn in self.eqns for v in eqn.outvars}

    @property
    def choices(self) -> list[ir.Atom]:
        """What the choices of the next block are made by."""
        return [way.by for way in _ways(self.next) if isinstance(way, _Choice)]

    @property
    def targets(self) -> list[_Block]:
        """The blocks that may be next."""
        return [way for way in _ways(self.next) if isinstance(way, _Block)]

    def taken(self) -> list[ir.Var]:
        """The variables that it uses and does not make."""
        atoms = [a for eqn in self.eqns for a in eqn.invars]
        used = ir.vars_in_order([*atoms, *self.sets.values(), *self.choices])
        return [v for v in used if v not in self.made]

    def early(self) -> list[ir.Eqn] | None:
        """The equations that the choice of the next block needs; None if it needs what the block or its Refs give."""
        known = ir.invariant(self.eqns, self.taken())
        if not ir.used_vars(self.choices) <= known:
            return None
        pure = [e for e in self.eqns if not e.effects and known.issuperset(e.outvars)]
        return ir.prune(pure, self.choices)

    def go_on(self, eqns: ir.Eqns) -> dict[ir.Var, ir.Atom]:
        """Add equations of a block that comes after it; what its variables are here."""
        names = dict(self.sets)
        self.eqns += ir.copied_eqns(eqns, names)
        return names

    def run(
        self, ins: Iterable[ir.Var], values: Iterable[Value], outs: Iterable[ir.Atom]
    ) -> list[Value]:
        """What `outs` are after it, which begins with these values."""
        made = self.made
        binders = [ir.Var(v.aval) if v in made else v for v in ins]
        return transforms.eval_jaxpr(Jaxpr(binders, self.eqns, list(outs)), list(values))


_Way = _Block | _Choice


def _ways(way: _Way) -> list[_Way]:
    """A choice and all that it leads to, in the order in which they are read."""
    further = way.ways if isinstance(way, _Choice) else ()
    return [way, *[w for each in further for w in _ways(each)]]


def _led(way: _Way, to: Mapping[_Block, _Way], names: Mapping[ir.Var, ir.Atom]) -> _Way:
    """A choice by other variables, which leads to others in the place of some blocks."""
    if isinstance(way, _Block):
        return to.get(way, way)
    return _Choice(ir.renamed(way.by, names), [_led(w, to, names) for w in way.ways])


class _Flow:
    """The blocks of a loop and of its inner loops, from the `entry` before the loop to the `end` after it.

    `changed` are the Refs that the loop changes: inner loops over them are entered. `untaped` are the Refs among them
    that an inner loop without a tape uses, `names` are the names of inner loops, and `kept` is as for `flat_call`.
    """

    def __init__(self, eqn: ir.Eqn, kept: ir.Dim) -> None:
        eqn = eqn.replace(invars=[ir.Var(a.aval) for a in eqn.invars])
        self.eqn = eqn
        self.changed = ir.changed_refs(eqn)
        self.kept = kept
        self.untaped = set[ir.Var]()
        self.names = list[str]()
        self.slots: Slots | None = None
        self.entry = self.end = _Block()
        self.blocks = list[_Block]()
        self.outs = self._entered(eqn)
        self.blocks.remove(self.end)
        self._share_refs()

    def obstacle(self) -> str | None:
        """Why one loop does not pay: it does if inner loops keep Refs far larger than all that the blocks compute."""
        if not self.untaped:
            return "no loop within keeps Refs"
        made = prims.bytes_of(v.aval for block in self.blocks for v in block.made)
        least = slots.SMALL + slots.LEAST_SHARE * made
        room = prims.bytes_of(v.aval for v in self.untaped)
        inner, outer = self._inner(), self.eqn.params.body.name
        acting = {e.primitive.name for block in self.blocks for e in block.eqns if ir.acts(e)}
        if acting:
            # Lanes of one loop are not at the same step, and one step is several turns.
            names = ", ".join(f"`{name}`" for name in sorted(acting))
            return (
                f"it and the loops of {inner} are not one in the derivative: {names} must happen step by step, for "
                "all lanes together"
            )
        # The one loop takes more steps than a schedule for so many at most may be for.
        if isinstance(self.slots, Binomial) and self.slots.most is not None:
            return (
                f"it and the loops of {inner} are not one in the derivative: {self.slots} is for at most "
                f"{self.slots.most} steps, and one loop would take the steps of all"
            )
        few = self.kept if not ir.is_more(self.kept, least) else room
        if ir.is_more(few, least):
            return None
        what = (
            f"saves {few} bytes of each step of `{outer}`"
            if few is self.kept
            else f"changes {few} bytes of Refs"
        )
        return (
            f"it and the loops of {inner} are not one in the derivative, which {what}: one loop pays above {least} "
            f"bytes, {slots.SMALL} and {slots.LEAST_SHARE} times what a turn computes"
        )

    def jaxpr(self) -> Jaxpr:
        """The single loop, with the equations before and after it: `[*operands] -> [*results]`."""
        self._choose_early()
        self._join()
        at_first = {*self.eqn.invars, *self.entry.made}
        taken = dict.fromkeys(v for block in [*self.blocks, self.end] for v in block.taken())
        taken |= dict.fromkeys(ir.vars_in_order(self.outs))
        fixed, held = [[v for v in taken if (v in at_first) is there] for there in (True, False)]
        consts, refs = util.partition([v.aval.accumulates for v in fixed], fixed)
        begun = [v for v in held if v in self.entry.sets]

        def run(*args: Value) -> list[Value]:
            found = self.entry.run(
                self.eqn.invars,  # type: ignore[arg-type]  # its operands are variables
                args,
                [*self.entry.choices, *[self.entry.sets[v] for v in begun], *fixed],
            )
            choices, found = util.split_list(found, [len(self.entry.choices)])
            first = self._number(self.entry.next, iter(choices))
            values = dict(zip([*begun, *fixed], found, strict=True))
            # What no block before the loop sets is set in it before it is used.
            carry = [values[v] if v in values else transforms.zeros_of(v.aval) for v in held]
            operands = [*[values[v] for v in consts], first, *carry, *[values[v] for v in refs]]
            ends = trace.bind(while_p, *operands, params=self._params(consts, held, refs))
            values.update(zip(held, ends[1:], strict=True))
            return self.end.run(values.keys(), values.values(), self.outs)

        return trace.stage_closed(run, [a.aval for a in self.eqn.invars], self.eqn.params.body.name)

    def _params(self, consts: ir.Vars, held: ir.Vars, refs: ir.Vars) -> WhileParams:
        """The loop over the blocks, which carries the number of the next one.

        cond, body : [*consts, next, *held, *refs] -> [pred], [next, *held]
        """
        p: ForParams | WhileParams = self.eqn.params
        num = len(consts)
        ins = [*consts, *held, *refs]

        def run(block: _Block, *args: Value) -> list[Value]:
            left = [block.sets.get(v, v) for v in held]
            found = block.run(ins, args, [*block.choices, *left])
            choices, values = util.split_list(found, [len(block.choices)])
            return [self._number(block.next, iter(choices)), *values]

        avals = [v.aval.strong() for v in ins]
        hints = [v.hint for v in ins]
        branches = [
            trace.stage_closed(partial(run, block), avals, p.body.name, hints)
            for block in self.blocks
        ]
        choosing = CondParams(tuple(branches))

        def turn(*args: Value) -> list[Value]:
            return trace.bind(cond_p, args[num], *args[:num], *args[num + 1 :], params=choosing)

        def more(*args: Value) -> list[Value]:
            return [args[num] < len(self.blocks)]

        avals.insert(num, INDEX)
        hints.insert(num, "part")
        return WhileParams(
            trace.stage_closed(more, avals, p.body.name, hints),
            trace.stage_closed(turn, avals, p.body.name, hints),
            num,
            slots=self.slots,
            record=self.record(
                True,
                f"it and the loops of {self._inner()} in its steps are one in the derivative, which keeps a few values "
                f"of each turn, and not {self.kept} bytes of each step of `{p.body.name}`",
            ),
        )

    def _number(self, way: _Way, choices: Iterator[Value]) -> Value:
        """The number of the block that is next."""
        if isinstance(way, _Block):
            number = len(self.blocks) if way is self.end else self.blocks.index(way)
            return arrays.as_value(np.int32(number))
        by = prims.convert(next(choices), INDEX.dtype)
        found, *others = [self._number(each, choices) for each in way.ways]
        for k, other in enumerate(others, 1):
            found = prims.select(prims.equal(by, k), other, found)
        return found

    def _choose_early(self) -> None:
        """Make a block that knows at its beginning which one is next a block for each of these; those before it choose.

        The end of a step of a `for` goes on with the next step then, in the same turn.
        """
        for block in [*self.blocks]:
            is_large = len(block.eqns) > MOST_COPIED
            if is_large or block in block.targets or not block.choices:
                continue
            early = block.early()
            if early is None:
                continue
            parts = {t: replace(block, eqns=[*block.eqns], next=t) for t in block.targets}
            self.blocks.remove(block)
            self.blocks += parts.values()
            for before in [self.entry, *self.blocks]:
                if block in before.targets:
                    way = _led(block.next, parts, before.go_on(early))
                    before.next = _led(before.next, {block: way}, {})

    def _join(self) -> None:
        """Let each block go on with the next one where there is but one, if not much is copied for that."""
        for block in self.blocks:
            while isinstance(after := block.next, _Block) and after is not self.end:
                shared = sum(after in b.targets for b in self.blocks) > 1
                if shared and len(after.eqns) > MOST_COPIED:
                    break
                names = block.go_on(after.eqns)
                block.sets = names | {v: ir.renamed(a, names) for v, a in after.sets.items()}
                block.next = _led(after.next, {}, names)
        begun, reached = self.entry.targets, set[_Block]()
        while begun:
            block = begun.pop()
            begun += [] if block in reached else block.targets
            reached.add(block)
        self.blocks = [block for block in self.blocks if block in reached]

    def _inner(self) -> str:
        return ", ".join(f"`{name}`" for name in dict.fromkeys(self.names))

    def record(self, done: bool, reason: str) -> Record:
        """The record of the loop, with the reason for which it and those within are one, or are not."""
        record: Record = self.eqn.params.record
        if not record.tells or not self.untaped:
            return record
        return record.with_decisions([Decision("flatten", "", done, reason, self.eqn.source)])

    def _new_block(self) -> _Block:
        self.blocks.append(_Block())
        return self.blocks[-1]

    def _leave(self, way: _Way, sets: Iterable[tuple[ir.Var, ir.Atom]], at: _Block) -> None:
        """End the last block, and go on writing another one."""
        self.end.next, self.end.sets = way, dict(sets)
        self.end = at

    def _inlined(self, jaxpr: Jaxpr, operands: ir.Atoms) -> list[ir.Atom]:
        """The results of a jaxpr, whose equations are added to the last block, or become new ones."""
        names: dict[ir.Var, ir.Atom] = dict(zip(jaxpr.invars, operands, strict=True))
        for eqn in jaxpr.eqns:
            here = ir.rename(eqn, names)
            if self._is_entered(here):
                names.update(zip(eqn.outvars, self._entered(here), strict=True))
            else:
                self.end.eqns += ir.copied_eqns([eqn], names)
        return [ir.renamed(a, names) for a in jaxpr.outvars]

    def _is_entered(self, eqn: ir.Eqn) -> bool:
        """Whether an equation loops over Refs that the whole changes, itself or in what it chooses or calls."""
        if ir.touched_refs(eqn).isdisjoint(self.changed):
            return False
        if eqn.primitive in LOOPS:
            return eqn.primitive is for_p or not eqn.params.kept
        bodies = rules.plain_bodies(eqn.primitive, eqn.params)
        is_call = eqn.primitive in (cond_p, closed_call_p) or any(b.origin for b in bodies)
        return is_call and any(rules.holds_loop(b.jaxpr) for b in bodies)

    def _entered(self, eqn: ir.Eqn) -> list[ir.Atom]:
        """The results of an equation that becomes blocks."""
        if eqn.primitive in LOOPS:
            self._note(eqn)
            run = self._while if eqn.primitive is while_p else self._for
            return run(eqn.params, eqn.invars)
        bodies = [body.jaxpr for body in rules.plain_bodies(eqn.primitive, eqn.params)]
        if eqn.primitive is not cond_p:
            return self._inlined(bodies[0], eqn.invars)
        index, *operands = eqn.invars
        outs = [ir.Var(v.aval.strong()) for v in eqn.outvars]
        starts, after = [self._new_block() for _ in bodies], self._new_block()
        self._leave(_Choice(index, starts), (), after)
        for start, body in zip(starts, bodies, strict=True):
            self.end = start
            found = self._inlined(body, operands)
            self._leave(after, zip(outs, found, strict=True), after)
        return [*outs]

    def _note(self, eqn: ir.Eqn) -> None:
        """Note a loop, and the bytes that it would keep inside another loop."""
        p: ForParams | WhileParams = eqn.params
        self.slots = p.slots if self.slots is None else self.slots
        if self.blocks:
            self.names.append(p.record.called.name or p.body.name)
            if eqn.primitive is while_p or p.slots is not None:
                self.untaped |= ir.touched_refs(eqn) & self.changed

    def _while(self, p: WhileParams, operands: ir.Atoms) -> list[ir.Atom]:
        """The carried values after a `while`; before it and at the end of a step it asks for another step."""
        consts, carry, refs = parts(p, operands)
        held = [ir.Var(v.aval.strong(), v.hint) for v in parts(p, p.body.invars)[1]]
        step, after = self._new_block(), self._new_block()

        def ask(carry: ir.Atoms, at: _Block) -> None:
            (holds,) = self._inlined(p.cond, [*consts, *carry, *refs])
            self._leave(_Choice(holds, [after, step]), zip(held, carry, strict=True), at)

        ask(carry, step)
        ask(self._inlined(p.body, [*consts, *held, *refs]), after)
        return [*held]

    def _for(self, p: ForParams, operands: ir.Atoms) -> list[ir.Atom]:
        """The final states of a `for`; they are in Refs of their own."""
        p = stateful(p)
        consts, states = util.split_list(operands, [p.num_consts])
        refs = [x if isinstance(x.aval, AbstractRef) else self._new_ref(x) for x in states]
        loop = _as_while(p)
        changed = ir.mutated_positions(p.body.effects)
        self.changed |= ir.used_vars(refs[k - 1 - p.num_consts] for k in changed)
        self._while(loop, [*consts, _ZERO, *refs])
        made = [ref for ref, x in zip(refs, states, strict=True) if ref is not x]
        reads = [accesses.read_whole(ref) for ref in made]
        self.end.eqns += reads
        return [read.outvars[0] for read in reads]

    def _new_ref(self, x: ir.Atom) -> ir.Var:
        self.end.eqns.append(rules.new_eqn(primitives.new_ref_p, [x], primitives.NewRefParams()))
        return self.end.eqns[-1].outvars[0]

    def _share_refs(self) -> None:
        """Make Refs before the loop that a block makes and another one uses; the block writes them."""
        made = {
            e.outvars[0]: e
            for b in self.blocks
            for e in b.eqns
            if e.primitive is primitives.new_ref_p
        }
        shared = {v for b in [*self.blocks, self.end] for v in b.taken() if v in made}
        for v in shared:
            aval = made[v].invars[0].aval
            zeros = trace.stage_closed(lambda aval=aval: [transforms.zeros_of(aval)], [])
            self.entry.eqns += [*zeros.eqns, made[v].replace(invars=zeros.outvars, outvars=(v,))]
        for block in [*self.blocks, self.end]:
            block.eqns = [_on_shared(e, shared) for e in block.eqns]


def _on_shared(eqn: ir.Eqn, shared: set[ir.Var]) -> ir.Eqn:
    """What makes or freezes a Ref that blocks share, as a write or a read."""
    if eqn.primitive is primitives.new_ref_p and eqn.outvars[0] in shared:
        return accesses.write_whole(eqn.outvars[0], eqn.invars[0], eqn.source)
    if eqn.primitive is primitives.freeze_p and eqn.invars[0] in shared:
        return accesses.read_whole(eqn.invars[0], eqn.outvars[0], eqn.source)
    return eqn


@ir.once_per(lambda p: (p.body, replace(p, body=NO_BODY)))
def _as_while(p: ForParams) -> WhileParams:
    """A `for` over Refs as a `while` with a counter.

    p.body     : [i, *consts, *refs]  -> []
    cond, body : [*consts, k, *refs]  -> [pred], [k]
    """
    num = p.num_consts
    body = numbered_body(p, (True,) * (len(p.body.invars) - 1 - num))
    avals = [*body.in_avals[1 : 1 + num], body.in_avals[0], *body.in_avals[1 + num :]]

    def more(*args: Value) -> list[Value]:
        return [args[num] < (args[0] if p.counted else p.nsteps)]

    def step(*args: Value) -> list[Value]:
        transforms.eval_jaxpr(body, [args[num], *args[:num], *args[num + 1 :]])
        return [args[num] + 1]

    cond, made = [trace.stage_closed(f, avals, p.body.name) for f in (more, step)]
    return WhileParams(cond, made, num, slots=p.slots, record=p.record)
