"""The memory of a program over time: which buffers its equations fill, from when to when, and the peak.

The simulation runs the equations of a jaxpr in the order of XLA:CPU, breadth first, each once its operands are there,
and lays out the buffers as XLA does. Calls are inlined and equal equations merged. A fused equation needs no memory:
`fusion` says which are fused. An update and the carry of a loop stay in one buffer. A loop needs the memory of one step
beside its carry; of branches, the one that needs most counts. Arguments, results and constants do not count, nor does a
value that fits into a result's buffer before the result is written: the rest are the temporary bytes that
`memory_analysis()` reports.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from math import inf

from fiveloop.core import Jaxpr, ir, rules
from fiveloop.core.dataclass import replace
from fiveloop.core.inspect import ready_jaxpr, recomputes_in_branches, saves_memory
from fiveloop.remat import kinds
from fiveloop.remat.buffers import Buffer, Invariant, Over, Timeline, alive, in_memory
from fiveloop.remat.fusion import Fuser, Fusions, Op
from fiveloop.remat.order import Ordered
from fiveloop.remat.values import LINE, in_lines

Span = tuple[ir.Eqn, int, int, int]
"""The equation that fills a buffer last, the position of the result, and the buffer's first equation and last one."""

POINTER, COPIED = 8, 5
"""A table of operands takes so many bytes for each. So many lines are filled by numbers that are copied from one
equation with bodies to the next."""


@ir.once_per(lambda jaxpr, part=False, late=0: (jaxpr, part, late))
def timeline(jaxpr: Jaxpr, part: bool = False, late: int = 0) -> Timeline:
    """The memory of a jaxpr over time, as it is lowered; remembered on it.

    The results of a `part` of a program are no places for its temporary values. So many of its last inputs are `late`:
    they come once all has run that does not need them, as cotangents do.

    >>> from fiveloop.core import grad, make_jaxpr
    >>> import numpy as np
    >>> jaxpr = make_jaxpr(lambda x: (x @ x) @ (x @ x + 1.0))(np.ones((8, 8), np.float32))
    >>> timeline(jaxpr).bytes
    (256, 512, 512)
    """
    role = "branch" if part else ""
    ready = ready_jaxpr(jaxpr)
    return _Layout((), ready, saves_memory(ready), role=role, late=late).timeline()


def peak(jaxpr: Jaxpr, part: bool = False) -> int:
    """The most temporary bytes that a jaxpr, or a part of one, needs at once."""
    return timeline(jaxpr, part).peak


@ir.once_per_jaxpr
def upper(jaxpr: Jaxpr, unused: int = 0) -> Timeline:
    """The memory of a jaxpr over time with all that the compiler may add to it.

    Buffers take whole lines, loops and branches have tables of their operands, and what is joined is there. The results
    of a loop may be taken out of it in the order in which it has them, too: that one counts in which more is there.
    So many of the first results are `unused`, and not computed.
    """
    ready = ready_jaxpr(jaxpr)
    if unused:
        outs = ready.outvars[unused:]
        ready = ready.replace(outvars=outs, eqns=ir.prune(ready.eqns, outs))
    saves = saves_memory(ready)
    layout = _Layout((), ready, saves, wide=True)
    line = layout.timeline()
    loops = any(rules.is_loop(eqn) and len(eqn.outvars) > 1 for eqn in line.eqns)
    if not loops or layout.reaches_results_in_order():
        return line
    return max(
        line, _Layout((), ready, saves, wide=True, ordered=True).timeline(), key=lambda t: t.peak
    )


class _Layout(Ordered):
    """A buffer for each value that is not fused away."""

    def timeline(self) -> Timeline:
        """The buffers from their first equation to their last."""
        written = sorted(self.ops, key=lambda op: op.anew)
        self.bring_into_post_order()
        fixed = self.fixed() if self.wide else {}
        before = self.computed_before(fixed)
        # To take something out of a loop, be it a number, the compiler copies the step.
        copied = bool(before) or (bool(fixed) and any(map(self.computes_number, self.ops)))
        fused = Fuser(self.ops, self.results, len(self.sizes), written, copied).fusions()
        self.add_fillings(fused)
        self.copy_carry(fused)
        self.run_breadth_first(fused)
        last = self.last_uses(fused)
        begin = dict.fromkeys(self.converted_before(), 0)
        for v in begin:
            last[v] = len(self.ops) - 1
        owner, over = self.owners(last, fused)
        spans, copies = self.spans(begin, last, owner, fused)
        given = [*({*range(self.num_given)} - self.copied.keys()), *before]
        args = {-1, *(_root(owner, v) for v in given)}  # and forms of constants
        outs = {_root(owner, v) for v in self.results if v >= 0} - args - self.copied.keys()
        spans = {root: span for root, span in spans.items() if root not in args}
        buffers = self.placed(spans, copies, outs, owner, over, fused)
        inner = {k: self.dearest(op) for k, op in enumerate(self.ops) if op.bodies}
        if self.wide:
            buffers += self.copied_in_branches([*inner]) + self.copied_for_branches([*inner])
            buffers += self.tables([*inner])
            buffers += self.widened([*inner])
        here, invariant = self.out_of_loops([*inner], fixed)
        buffers += here
        invariant += [Invariant(self.whole(v), fixed[v]) for v in before]
        invariant += self.transposed_before(fixed)
        eqns, numbers = tuple(op.eqn for op in self.ops), tuple(op.number for op in self.ops)
        changed = tuple((x, self.sizes[v]) for v, x in copies.items())
        return Timeline(eqns, tuple(buffers), inner, numbers, tuple(invariant), changed)

    def spans(
        self, begin: dict[int, int], last: Sequence[int], owner: dict[int, int], fused: Fusions
    ) -> tuple[dict[int, Span], dict[int, int]]:
        """What fills each buffer, and from when to when; and which arguments loops copy, by what holds the copies."""
        spans = {x: (op.eqn, op.first, 0, max(last[x], 0)) for x, op in self.copied.items()}
        copies = dict[int, int]()
        # A vector, its product and what is made of that may be in three places, packed by how long they live.
        packed = self.wide and recomputes_in_branches()
        places = {op: place for place, op in enumerate(self.ops)}
        there = begin | {v: place for op, place in places.items() for v in op.outs}
        for place, op in enumerate(self.ops):
            # Equal fillings are made once, and copied at once for each loop, by an older compiler for each scatter.
            if op.bodies or (op.over and kinds.picks(op.eqn) and recomputes_in_branches()):
                copied = [(v, x) for v, x in op.over if v not in owner and self.filling(x)]
                begin |= {v: begin.get(x, place) for v, x in copied}
            if self.wide and op in fused.parts:
                # What is changed, and something else reads, is copied once it is there.
                given = self.copied_by(op, fused, places)
                copied = [
                    (v, self.seen_through(x))
                    for v, x in op.over
                    if v not in owner and (op.bodies or x in given)
                ]
                copies |= {v: x for v, x in copied if 0 <= x < self.num_given and op.bodies}
                begin |= {v: there.get(x, -1) + 1 for v, x in copied if x >= 0}
            for position, v in enumerate(op.outs if op in fused.parts else (), op.first):
                root = _root(owner, v)
                start = begin.setdefault(v, place)
                if packed and kinds.is_of_vectors(op.eqn):
                    given = [spans[r][2] for r in (_root(owner, x) for x in op.ins) if r in spans]
                    start = max([x for x in given if x < start], default=start)
                eqn, at, start, end = spans.get(root, (op.eqn, position, start, place))
                if not op.view:
                    eqn, at = op.eqn, position
                spans[root] = eqn, at, start, max(end, last[v])
        return spans, copies

    def placed(
        self,
        spans: Mapping[int, Span],
        copies: Iterable[int],
        outs: Set[int],
        owner: dict[int, int],
        over: Over,
        fused: Fusions,
    ) -> list[Buffer]:
        """The buffers that need memory of their own.

        The compiler places first what loops change, and of that what is there longest, or else copies of arguments;
        the order that needs more counts.
        """
        made_at = self.depth_first(fused)  # the compiler has taken the barriers out by now
        loops = {_root(owner, v) for op in self.ops if op.bodies for v, _ in op.over}
        no_rooms = self.role in ("loop", "branch") or (self.role == "recomputed" and self.repeated)
        rooms = {} if no_rooms else {v: [v] for v in outs}
        held = self.held(rooms, spans.keys() & outs, owner)

        def in_order(first: Iterable[int]) -> list[Buffer]:
            at = made_at | {v: spans[v][2] - spans[v][3] for v in first if v in spans}
            made = {
                root: Buffer(self.sizes[root], *spans[root], self.path)
                for root in sorted(spans, key=at.__getitem__)
            }
            return in_memory(made | held, outs | held.keys(), over, rooms)

        if not self.wide or not loops:
            return in_order(())
        num = len(self.ops)
        return max(in_order(copies), in_order(loops), key=lambda found: max(alive(found, num)))

    def held(
        self, rooms: dict[int, list[int]], written: Set[int], owner: dict[int, int]
    ) -> dict[int, Buffer]:
        """What is in the places of the carry that a step copies first: these are free until what is written there."""
        found = dict[int, Buffer]()
        for old, v in zip(self.carried, self.results, strict=False):
            root = _root(owner, v)
            if old in self.copied and root in written:
                key = -2 - old  # a number of no value
                found[key] = Buffer(self.sizes[old], self.copied[old].eqn, 0, 0, 0)
                rooms[root] = [root, key]
        return found

    def fixed(self) -> dict[int, frozenset[int]]:
        """The values that are the same in all steps of a loop, and the binders of which each is made."""
        if self.role != "loop":
            return {}
        found = {x: frozenset([x]) for x in self.never_changed()}
        for op in self.ops:
            ins = [x for x in op.ins if x >= 0]
            known = bool(ins) or op.eqn.primitive.name == "iota"
            if known and found.keys() >= {*ins} and kinds.may_leave_loop(op.eqn):
                binders = frozenset[int]().union(*map(found.__getitem__, ins))
                found |= dict.fromkeys(op.outs, binders)
        return found

    def computed_before(self, fixed: dict[int, frozenset[int]]) -> list[int]:
        """The values that the compiler computes before a loop: what a step uses of those that are fixed."""
        used = {*self.results}
        for op in reversed(self.ops) if fixed else ():
            if fixed.keys().isdisjoint(op.outs) and not used.isdisjoint(op.outs):
                # What waits for something else is used only if it is used afterwards.
                waits = op.view and len(op.ins) == len(op.outs)
                pairs = zip(op.outs, op.ins, strict=True) if waits else ()
                used |= {x for v, x in pairs if v in used} if waits else {*op.operands()}
        waiting = [v for v in fixed if v in used]
        found = dict[int, None]()
        while waiting:
            v = waiting.pop()
            made = self.maker.get(v)
            if made is None:
                continue
            ins = [x for x in made.ins if x >= 0]
            if kinds.is_form(made.eqn) and not (made.view and any(map(self.counts, ins))):
                waiting += ins
            else:
                found[v] = None
        return [*found]

    def out_of_loops(
        self, places: Sequence[int], fixed: dict[int, frozenset[int]]
    ) -> tuple[list[Buffer], list[Invariant]]:
        """What the compiler takes out of loops here: what stays here, and what it takes out of this one, too."""
        here, further = list[Buffer](), list[Invariant]()
        for k in places:
            for buffer, operands in self.invariant_in(self.ops[k]):
                if fixed and operands <= fixed.keys():
                    binders = frozenset[int]().union(*map(fixed.__getitem__, operands))
                    further.append(Invariant(buffer, binders))
                else:
                    here.append(replace(buffer, start=k, end=k))
        return here, further

    def transposed_before(self, fixed: dict[int, frozenset[int]]) -> list[Invariant]:
        """The matrices from outside of a loop that are transposed before it, to be multiplied with vectors."""
        found = dict[object, Invariant]()
        body, ops = self.body, self.ops
        if not self.wide or body is None or body.role != "loop":
            return []
        made = {v: op.eqn for op in ops for v in op.eqn.outvars}
        for op in [op for op in ops if len(op.ins) == len(op.eqn.invars)]:
            side, least = kinds.transposed_before_loops(op.eqn, made) or (0, inf)
            if body.turns < least or (op.ins[side] >= 0 and op.ins[side] not in fixed):
                continue
            matrix = op.eqn.invars[side]
            size = self.size(matrix.aval)
            if size <= body.room:
                buffer = Buffer(size, op.eqn, 0, 0, 0, self.path)
                found[matrix] = Invariant(buffer, fixed.get(op.ins[side], frozenset()))
        return [*found.values()]

    def whole(self, v: int) -> Buffer:
        """The buffer of a value that is computed before all else."""
        op = self.maker[v]
        return Buffer(self.sizes[v], op.eqn, op.outs.index(v), 0, 0, self.path)

    def invariant_in(self, op: Op) -> Iterator[tuple[Buffer, set[int]]]:
        """What the compiler takes out of loops that an equation runs, with the operands of which it is made."""
        for body in op.bodies:
            # The last binders of a body stand for the last operands.
            first = len(op.ins) - len(body.jaxpr.invars)
            for each in self.step_of(op, body).invariant:
                yield each.buffer, {op.ins[first + k] for k in each.binders} - {-1}

    def converted_before(self) -> list[int]:
        """What a loop only reads and contracts, in four bytes for two: the compiler converts it before the loop."""
        given = self.never_changed() if self.role == "loop" else set[int]()
        return [v for (x, shape), v in self.flat.items() if shape is None and x in given]

    def never_changed(self) -> set[int]:
        """What a loop is given that no step changes."""
        stays = {old for v, old in zip(self.results, self.carried, strict=False) if v == old}
        return {*range(self.counters, self.num_given)} - ({*self.carried} - stays)

    def dearest(self, op: Op) -> Timeline:
        """What the dearest of an equation's bodies needs."""
        lines = [self.step_of(op, body) for body in op.bodies]
        return max(lines, key=lambda line: line.peak)

    def step_of(self, op: Op, body: rules.Body) -> Timeline:
        """The memory of one run of a body of an equation. A loop's body may count its steps before its operands."""
        counters = max(len(body.jaxpr.invars) - len(op.ins), 0)
        path = (*self.path, op.eqn.primitive.name)
        repeated = self.repeated or self.role == "loop"
        saves = self.saves and kinds.keeps_any(body.jaxpr)
        return _body_timeline(body, path, saves, self.wide, counters, repeated)

    def copied_in_branches(self, places: Sequence[int]) -> list[Buffer]:
        """What an older compiler's branches are given transposed, and copy."""
        found = []
        for k in places if recomputes_in_branches() else ():
            op = self.ops[k]
            makers = {x: self.maker[x] for x in op.ins if x in self.maker}
            size = sum(
                self.sizes[x]
                for x, made in makers.items()
                if kinds.is_transposed(made.eqn)
                or (made.expensive and made.eqn.outvars[0].aval.ndim > 2 and self.is_turned(x))
            )
            if size and op.bodies[0].role != "loop":
                found.append(Buffer(size, op.eqn, 0, k, k))
        return found

    def copied_for_branches(self, places: Sequence[int]) -> list[Buffer]:
        """The copies of a program's arguments that loops in branches change: they are made when it begins."""
        found = []
        for k in places if not self.path else ():
            op = self.ops[k]
            for body in op.bodies if op.bodies[0].role != "loop" else ():
                # The last binders of a body stand for the last operands.
                first = len(op.ins) - len(body.jaxpr.invars)
                for position, size in self.step_of(op, body).copied:
                    x = self.seen_through(op.ins[first + position])
                    if k and 0 <= x < self.num_given:
                        found.append(Buffer(size, op.eqn, 0, 0, k - 1))
        return found

    def widened(self, places: Sequence[int]) -> list[Buffer]:
        """The copies in four bytes of what loops only read: the compiler converts each once, before the first loop."""
        spans: dict[int, tuple[int, int]] = {}
        for k in places:
            op = self.ops[k]
            for body in op.bodies:
                # The last binders of a body stand for the last operands.
                pairs = zip(reversed(body.jaxpr.invars), reversed(op.ins), strict=False)
                read = kinds.widened_in_loop(body) if body.role == "loop" else ()
                for x in [x for v, x in pairs if v in read]:
                    spans[x] = spans.get(x, (k, k))[0], k
        return [
            Buffer(2 * self.sizes[x], self.ops[k].eqn, 0, k, end) for x, (k, end) in spans.items()
        ]

    def tables(self, places: Sequence[int]) -> list[Buffer]:
        """The tables of the operands and results of equations with bodies, and what counts or chooses.

        Those of a loop's step are there for the whole step. Of several in a step some numbers are copied.
        """
        found = []
        for k in places:
            eqn = self.ops[k].eqn
            lines = COPIED if self.role == "loop" and k > places[0] else 1
            size = lines * LINE + sum(
                in_lines(POINTER * len(vs)) for vs in (eqn.invars, eqn.outvars)
            )
            span = (0, len(self.ops) - 1) if self.role == "loop" else (k, k)
            found.append(Buffer(size, eqn, 0, *span))
        return found

    def owners(self, last: Sequence[int], fused: Fusions) -> tuple[dict[int, int], Over]:
        """Whose buffer a value shares, where it has none, and over which others it may be written.

        These are read there for the last time. What a loop or a branch gives has a place of its own, and so has an
        array of which a block is updated: the compiler may do that where it computes the array.
        """
        owner: dict[int, int] = {}
        over: dict[int, list[int]] = {}
        updated, fusible = set[int](), set[int]()
        own = set(self.results) if self.role else ()
        places = {op: k for k, op in enumerate(self.ops)}
        for place, op in enumerate(self.ops):
            if op not in fused.parts:
                continue
            if op.view and not fused.parts[op]:
                owner |= zip(op.outs, op.ins, strict=True)
                continue
            taken: set[int] = set()
            roots = [_root(owner, x) for x in op.ins]
            for v, x in op.over:
                if op.light and op not in fused.users[x]:
                    continue
                if op.bodies or (kinds.picks(op.eqn) and recomputes_in_branches()):
                    updated.add(v)  # which is so of a copy, too
                if kinds.picks(op.eqn) and roots.count(_root(owner, x)) > 1:
                    continue
                if self.is_own(_root(owner, x)) and last[x] <= place and not {v, x} & taken:
                    if not self.ends(x, op, fused, places):
                        continue
                    owner[v] = x
                    taken |= {v, x}
                    updated.add(_root(owner, x))
                    if not op.bodies and not kinds.picks(op.eqn):
                        fusible.add(_root(owner, x))
            if op.light and not op.over and op.outs[0] not in own:
                (v,) = op.outs
                alike = [x for x in fused.alike[op] if self.sizes[x] == self.sizes[v]]
                alike = [] if kinds.joins_halves(op.eqn) else alike
                ended = [x for x in alike if self.is_own(x) and last[x] <= place]
                over[v] = [_root(owner, x) for x in ended if not self.is_of_vectors(x)]
        # What a result is written over, such as an array that is updated, has the place of the result.
        alone = fusible | {_root(owner, v) for v in own}
        written = {v: [x for x in over[v] if x not in fusible] for v in over.keys() - alone}
        return owner, Over(written, updated)


@ir.once_per(
    lambda body, *how: (
        body.jaxpr,
        body.role == "loop" and (body.carry, body.turns, body.room, body.down),
        body.role,
        *how,
    )
)
def _body_timeline(
    body: rules.Body,
    path: tuple[str, ...],
    saves: bool,
    wide: bool,
    counters: int,
    repeated: bool,
) -> Timeline:
    """The memory of one run of a body; its first `counters` binders stand for no operand."""
    carry = body.carry if body.role == "loop" else None
    return _Layout(
        path, body.jaxpr, saves, carry, body.role, 0, wide, counters, False, repeated, body
    ).timeline()


def _root(owner: dict[int, int], v: int) -> int:
    while v in owner:
        v = owner[v]
    return v
