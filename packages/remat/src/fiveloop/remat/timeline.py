"""The memory of a program over time: which buffers its equations fill, from when to when, and the peak.

The simulation goes through a jaxpr breadth first from its results' first needs, as XLA:CPU runs it and lays its
buffers out. Calls are inlined and equal equations merged. What is fused needs no memory: `fusion` says which equations
are. An update and the carry of a loop stay in one buffer. A loop needs room for one step beside its carry, and of
branches the dearest counts. Arguments, results and constants do not count, nor does what fits where a result is
written only later: what is left are the temporary bytes that `memory_analysis()` reports.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain, pairwise

from fiveloop.core import Jaxpr, ir, prims, rules
from fiveloop.core.dataclass import replace
from fiveloop.core.inspect import ready_jaxpr, recomputes_in_branches
from fiveloop.core.primitives import ordering, shape
from fiveloop.remat import kinds
from fiveloop.remat.buffers import Buffer, Timeline, in_memory
from fiveloop.remat.fusion import MOVED, SAME, SPREAD, Fuser, Fusions, Op
from fiveloop.remat.primitive import AGAIN

LINE, POINTER, COPIED = 64, 8, 5
"""Buffers begin at multiples of so many bytes, and a table of operands takes so many for each. So many lines are filled
by numbers that are copied from one equation with bodies to the next."""


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
    return _Layout((), ready_jaxpr(jaxpr), role=role, late=late).timeline()


def peak(jaxpr: Jaxpr, part: bool = False) -> int:
    """The most temporary bytes that a jaxpr, or a part of one, needs at once."""
    return timeline(jaxpr, part).peak


@ir.once_per_jaxpr
def upper(jaxpr: Jaxpr) -> Timeline:
    """The memory of a jaxpr over time with all that the compiler may add to it.

    Buffers take whole lines, loops and branches have tables of their operands, and what is joined is there.
    """
    return _Layout((), ready_jaxpr(jaxpr), wide=True).timeline()


def backward_begins(line: Timeline, jaxpr: Jaxpr, num_cts: int) -> int:
    """The place that best parts the equations that depend on the last inputs, the cotangents, from the others.

    The two are not wholly apart: the value of the loss may be computed last, and its cotangent be divided first.
    """
    ready = ready_jaxpr(jaxpr)
    late = ir.reachable(ready, ready.invars[len(ready.invars) - num_cts :])
    early = {k for k, eqn in enumerate(ready.eqns) if late.isdisjoint(eqn.outvars)}
    signed = [n if k in early else -n for n, k in zip(line.sizes, line.numbers, strict=True)]
    in_place = [0, *accumulate(signed)]
    return in_place.index(max(in_place))


class _Layout:
    """Values by number, with the equations that use them; a buffer for each that is not fused away."""

    def __init__(
        self,
        path: tuple[str, ...],
        jaxpr: Jaxpr,
        carry: int | None = None,
        role: str = "",
        late: int = 0,
        wide: bool = False,
    ) -> None:
        self.path = path
        self.wide = wide
        self.role = role
        self.late = late
        self.sizes: list[int] = []
        self.bytes_of: dict[tuple[ir.Aval, bool], int] = {}
        self.weights: dict[object, tuple[bool, bool]] = {}
        self.ops: list[Op] = []
        self.maker: dict[int, Op] = {}
        self.seen: dict[object, list[int]] = {}
        self.reached: dict[int, int] = {}
        self.flat: dict[tuple[int, tuple[int, ...] | None], int] = {}
        self.computed: set[object] = set()
        self.number = -1
        binders = [self.value(v.aval) for v in jaxpr.invars]
        self.num_given = len(binders)
        self.results = self.inline(jaxpr, binders, whole=True)
        self.put_into_sums()
        for v, a in zip(self.results, jaxpr.outvars, strict=True):
            if v >= self.num_given:
                self.sizes[v] = self.size(a.aval)
        self.carried = [] if carry is None else binders[carry:]

    def value(self, aval: ir.Aval, full: bool = False) -> int:
        """A new number for a value, whose elements may be in `full` precision."""
        self.sizes.append(self.size(aval, full))
        return len(self.sizes) - 1

    def size(self, aval: ir.Aval, full: bool = False) -> int:
        """The bytes of a value."""
        key = aval, full
        size = self.bytes_of.get(key)
        if size is None:
            size = prims.bytes_of([aval]) * (2 if full else 1)
            size = self.bytes_of[key] = _in_lines(size) if self.wide else size
        return size

    def add(self, op: Op) -> list[int]:
        """Note an equation, and give its results."""
        op.number = self.number
        self.ops.append(op)
        for v in op.outs:
            self.maker[v] = op
        return op.outs

    def inline(self, jaxpr: Jaxpr, args: Sequence[int], whole: bool = False) -> list[int]:
        """The numbers of a jaxpr's results; its equations are counted if it is the `whole`."""
        env = dict(zip(jaxpr.invars, args, strict=True))

        def number(a: ir.Atom) -> int:
            return env[a] if isinstance(a, ir.Var) else -1

        for eqn in jaxpr.eqns:
            self.number += whole
            ins = [number(a) for a in eqn.invars]
            given: Iterable[object] = map(_key, eqn.invars, ins)
            name = _LOWERED_AS.get(eqn.primitive.name, eqn.primitive.name)
            if name in _COMMUTATIVE:
                given = [frozenset(given)]
            key = None if eqn.effects else (name, eqn.params, *given)
            outs = self.seen.get(key)
            if outs is None:
                outs = self.outs_of(eqn, ins)
                if key is not None:
                    self.seen[key] = outs
            env.update(zip(eqn.outvars, outs, strict=True))
        return [number(a) for a in jaxpr.outvars]

    def outs_of(self, eqn: ir.Eqn, ins: list[int]) -> list[int]:
        """The numbers of an equation's results."""
        prim = eqn.primitive
        if prim in (ordering.barrier_p, ordering.order_p):
            return self.barrier(eqn, ins)[-len(eqn.outvars) :]
        if prim is prims.to_memory_p:
            return ins
        bodies = kinds.bodies(eqn)
        if len(bodies) == 1 and bodies[0].role not in ("loop", "branch"):
            (body,) = bodies
            again = body.role == "recomputed"
            apart = again and not self.computed.isdisjoint((body.origin, AGAIN))
            self.computed.add(AGAIN if again else body.origin)
            if not apart:
                return self.inline(body.jaxpr, ins)
            if not recomputes_in_branches():
                return self.barrier(eqn, self.inline(body.jaxpr, self.barrier(eqn, ins)))
        written_out = kinds.written_out(eqn)
        if written_out is not None:
            return self.inline(written_out, ins)
        contracts = prim is prims.dot_general_p and not kinds.is_outer(eqn)
        if contracts:
            self.keep_divided(ins)
            ins = self.canonical(eqn, ins)
        if prim is prims.concatenate_p:
            ins = self.flattened(eqn, ins)
        if kinds.runs_across(eqn):
            return self.transposed(eqn, ins)
        if kinds.picks(eqn):
            return self.picked(eqn, ins)
        half = _computes_in_full(eqn)
        if half and contracts:
            return self.contracted(eqn, ins)
        outs = [self.value(v.aval, half) for v in eqn.outvars]
        op = Op(eqn, ins, outs)
        if bodies:
            self.add_bodies(op, bodies)
        elif prim is prims.put_p:
            op.over = [(outs[0], ins[0])]
        elif outs:
            self.weigh(op)
        if op.light and len(outs) > 1:  # the compiler makes each with an operation of its own
            return [self.add(replace(op, outs=[v], first=k))[0] for k, v in enumerate(outs)]
        made = self.add(op)
        if op.absorbs and rules.written_out_rules.find(prim):
            return self.divided(eqn, made)
        return made

    def transposed(self, eqn: ir.Eqn, ins: Sequence[int]) -> list[int]:
        """The running result along an axis behind others: in place of its operand, transposed before and behind."""
        moved = [
            x if x < 0 else self.add(Op(eqn, [x], [self.value(a.aval)]))[0]
            for a, x in zip(eqn.invars, ins, strict=True)
        ]
        (out,) = eqn.outvars
        made = self.value(out.aval)
        self.add(Op(eqn, moved, [made], over=[(made, moved[-1])]))
        return self.add(Op(eqn, [made], [self.value(out.aval)], light=True, unary=True))

    def picked(self, eqn: ir.Eqn, ins: Sequence[int]) -> list[int]:
        """What an index picks, or an array with elements put there: the positions are computed in one array."""
        num = len(ins) - len(kinds.positions(eqn))
        given, places = list(ins[:num]), [*ins[num:]]
        index = kinds.index(eqn, in_loop=not _LOOPS.isdisjoint(self.path))
        if index is not None:
            places = self.add(Op(eqn, places, [self.value(index)], light=True, unary=True))
        moves = kinds.moves_windows(eqn)
        (out,) = (self.value(v.aval) for v in eqn.outvars)
        if eqn.primitive is prims.put_p:
            if moves and given[1] >= 0:
                made = [self.value(eqn.invars[1].aval)]
                given[1:] = self.add(Op(eqn, given[1:], made, light=True, unary=True))
            return self.add(Op(eqn, [*given, *places], [out], over=[(out, given[0])]))
        made = self.add(Op(eqn, [*given, *places], [out], light=True, expensive=True, unary=True))
        if not moves:
            return made
        return self.add(Op(eqn, made, [self.value(eqn.outvars[0].aval)], light=True, unary=True))

    def divided(self, eqn: ir.Eqn, made: list[int]) -> list[int]:
        """The light rest of an equation of which a library has made what is summed: what is left is to divide."""
        outs = [self.value(v.aval) for v in eqn.outvars]
        return self.add(Op(eqn, made, outs, light=True, unary=True, reads=SAME))

    def keep_divided(self, ins: Iterable[int]) -> None:
        """Note that what is divided is computed once if it is contracted, be it selected from and reshaped before."""
        waiting = [*ins]
        while waiting:
            made = self.maker.get(waiting.pop())
            if made and (made.view or made.eqn.primitive is prims.select_p):
                waiting += made.ins
            elif made and made.light and rules.written_out_rules.find(made.eqn.primitive):
                made.expensive = True

    def put_into_sums(self) -> None:
        """Add elements to an array last, where another array is added to what they give, and to nothing else."""
        users = Counter(chain(self.results, *[op.operands() for op in self.ops]))
        ops, self.ops = self.ops, []
        for op in ops:
            for x, other in (op.ins, op.ins[::-1]) if op.eqn.primitive.name == "add" else ():
                put = self.maker.get(x)
                if put and users[x] == 1 and kinds.adds_elements(put.eqn):
                    self.ops.remove(put)
                    op = self.put_into_sum(put, op, other)
                    break
            self.ops.append(op)

    def put_into_sum(self, put: Op, op: Op, other: int) -> Op:
        """The equation that adds elements to a sum with another array, which is that array if the sum is with zeros."""
        (out,) = op.outs
        base = put.ins[0]
        if not self.is_zero(base):
            self.number = op.number
            (other,) = self.add(
                replace(op, ins=[base, other], outs=[self.value(op.eqn.outvars[0].aval)])
            )
        ins = [other, *put.ins[1:]]
        self.maker[out] = replace(put, ins=ins, outs=[out], over=[(out, other)], turned=True)
        return self.maker[out]

    def is_zero(self, x: int) -> bool:
        """Whether an array is of zeros."""
        number = self.filling(x)
        return number is not None and not bool(number.value)

    def filling(self, x: int) -> ir.Literal | None:
        """The number that an array is filled with, if there is one."""
        made = self.maker.get(x)
        if made is None or made.eqn.primitive is not prims.broadcast_in_dim_p:
            return None
        (number,) = made.eqn.invars
        return number if isinstance(number, ir.Literal) else None

    def barrier(self, eqn: ir.Eqn, ins: Sequence[int]) -> list[int]:
        """The operands of an equation, all there before it begins, or its results, all there before they are used."""
        given = [x for x in ins if x >= 0]
        made = range(len(self.sizes), len(self.sizes) + len(given))
        self.sizes += [self.sizes[x] for x in given]
        outs = iter(self.add(Op(eqn, given, [*made], view=True)))
        return [x if x < 0 else next(outs) for x in ins]

    def add_bodies(self, op: Op, bodies: Sequence[rules.Body]) -> None:
        """Note what the dearest of an equation's bodies needs, and that a loop's carry stays in place."""
        path = (*self.path, op.eqn.primitive.name)
        op.inner = max([_body_timeline(b, path, self.wide) for b in bodies], key=lambda t: t.peak)
        if any(b.role == "loop" for b in bodies):
            op.over = list(zip(reversed(op.outs), reversed(op.ins), strict=False))

    def weigh(self, op: Op) -> None:
        """Note whether an equation is light."""
        eqn = op.eqn
        key = (eqn.primitive, eqn.params, *[a.aval for a in eqn.invars])
        weight = self.weights.get(key)
        if weight is None:
            weight = self.weights[key] = kinds.weight(eqn)
        if kinds.is_outer(eqn):
            op.light = op.unary = True
            op.reads = SPREAD
            return
        op.light, expensive = weight
        op.light &= eqn.primitive is not prims.concatenate_p or len(op.ins) <= kinds.JOINED
        op.expensive = expensive and not self.divides_by_few(op)
        op.view = eqn.primitive is prims.reshape_p
        if rules.by_element_rules.find(eqn.primitive) or kinds.selects_by_element(eqn):
            op.reads = SAME
        elif eqn.primitive is prims.broadcast_in_dim_p:
            (x,), (v,) = op.ins, op.outs
            op.reads = SPREAD if x >= 0 and self.sizes[x] < self.sizes[v] else MOVED
        rank = eqn.outvars[0].aval.ndim
        pairs = zip(eqn.invars, op.ins, strict=False)
        op.unary = len({x for a, x in pairs if self.is_large(a, x, rank)}) <= 1
        reduces = eqn.primitive.name.startswith("reduce_") and not op.light
        op.absorbs = reduces and kinds.is_in_library(eqn)
        op.absorbs |= rules.written_out_rules.find(eqn.primitive) is not None
        if (reduces and not op.absorbs and not kinds.is_in_windows(eqn)) or self.pads(op):
            op.light = op.expensive = op.unary = True

    def is_large(self, a: ir.Atom, x: int, rank: int) -> bool:
        """Whether an operand is an array of a rank that is not made of a smaller one by repeating it."""
        made = self.maker.get(x)
        spread = made is not None and made.eqn.primitive is prims.broadcast_in_dim_p
        return x >= 0 and a.aval.ndim >= rank and not spread

    def divides_by_few(self, op: Op) -> bool:
        """Whether a division is by repeated numbers: XLA multiplies by their inverses."""
        if op.eqn.primitive.name != "div":
            return False
        maker = self.maker.get(op.ins[1])
        return maker is None or maker.eqn.primitive is prims.broadcast_in_dim_p

    def pads(self, op: Op) -> bool:
        """Whether an equation pads an array: newer compilers make a pad of one that joins an array and one number."""
        if op.light or op.eqn.primitive is not prims.concatenate_p:
            return op.eqn.primitive is shape.pad_p
        return len(op.ins) == 2 and any(map(self.is_filled, op.ins))

    def is_filled(self, x: int) -> bool:
        """Whether an array is a constant, or one number repeated."""
        made = self.maker.get(x)
        if made is None or made.eqn.primitive is not prims.broadcast_in_dim_p:
            return x < 0
        return not made.eqn.invars[0].aval.ndim

    def flattened(self, eqn: ir.Eqn, ins: Sequence[int]) -> list[int]:
        """The operands of a concatenation, where one is a concatenation along the same axis what that is made of."""

        def each(x: int) -> Sequence[int]:
            made = self.maker.get(x)
            return (
                made.ins
                if made and made.eqn.params == eqn.params and made.eqn.primitive is eqn.primitive
                else [x]
            )

        return [*chain.from_iterable(map(each, ins))]

    def canonical(self, eqn: ir.Eqn, ins: Sequence[int]) -> list[int]:
        """The operands of a contraction as matrices: reshaped, or copied if their axes must be rearranged.

        The compiler contracts another axis of a transposed matrix instead.
        """
        found: list[int] = []
        for side, x, a, contract, batch in zip(
            (-1, 1), ins, eqn.invars, eqn.params.contract, eqn.params.batch, strict=True
        ):
            made = self.maker.get(x)
            if made is not None and made.eqn.primitive is prims.transpose_p and a.aval.ndim == 2:
                x = made.ins[0]
            kept = [k for k in range(a.aval.ndim) if k not in batch]
            inner = [k in contract for k in kept]
            edges = sum(p != q for p, q in pairwise(inner))
            copied = tuple(batch) != tuple(range(len(batch))) or edges > 1
            if x < 0 or (a.aval.ndim <= min(len(batch), 1) + 2 and not copied):
                found.append(x)
                continue
            key = (
                x,
                (*batch, *sorted(kept, key=lambda k: side * (k not in contract))) if copied else (),
            )
            if key not in self.flat:
                op = Op(eqn, [x], [self.value(a.aval)], light=True, view=not copied, unary=True)
                (self.flat[key],) = self.add(op)
            found.append(self.flat[key])
        return found

    def contracted(self, eqn: ir.Eqn, ins: Sequence[int]) -> list[int]:
        """The result of a contraction in half precision: operands and result are there in full precision, too."""
        found: list[int] = []
        for a, x in zip(eqn.invars, ins, strict=True):
            if x >= 0 and (is_kept_short(a.aval) or self.sizes[x] < self.size(a.aval, full=True)):
                if (x, None) not in self.flat:
                    (self.flat[x, None],) = self.add(Op(eqn, [x], [self.value(a.aval, full=True)]))
                x = self.flat[x, None]
            found.append(x)
        (out,) = eqn.outvars
        made = self.add(Op(eqn, found, [self.value(out.aval, full=True)]))
        half = Op(eqn, made, [self.value(out.aval, full=True)], light=True, unary=True, reads=SAME)
        return self.add(half)

    def timeline(self) -> Timeline:
        """The buffers from their first equation to their last."""
        self.bring_into_post_order()
        fused = Fuser(self.ops, self.results, len(self.sizes)).fusions()
        self.add_fillings(fused)
        self.run_breadth_first(fused)
        last = self.last_uses(fused)
        owner, over = self.owners(last, fused)
        spans: dict[int, tuple[ir.Eqn, int, int, int]] = {}
        begin: dict[int, int] = {}
        for place, op in enumerate(self.ops):
            # Equal fillings are made once, and copied for each loop at once.
            if op.inner is not None:
                copied = [(v, x) for v, x in op.over if v not in owner and self.filling(x)]
                begin |= {v: begin.get(x, place) for v, x in copied}
            for position, v in enumerate(op.outs if op in fused.parts else (), op.first):
                root = _root(owner, v)
                start = begin.setdefault(v, place)
                eqn, at, start, end = spans.get(root, (op.eqn, position, start, place))
                if not op.view:
                    eqn, at = op.eqn, position
                spans[root] = eqn, at, start, max(end, last[v])
        args = {-1, *(_root(owner, v) for v in range(self.num_given))}  # and forms of constants
        outs = {_root(owner, v) for v in self.in_place(last) if v >= 0} - args
        made_at = self.depth_first(barriers=False)  # which the compiler has taken out by now
        made = {
            root: Buffer(self.sizes[root], *spans[root], self.path)
            for root in sorted(spans.keys() - args, key=made_at.__getitem__)
        }
        rooms = outs if self.role not in ("loop", "branch") else set[int]()
        buffers = in_memory(made, outs, over, rooms)
        inner = {k: op.inner for k, op in enumerate(self.ops) if op.inner is not None}
        if self.wide:
            buffers += self.tables([*inner])
        eqns = tuple(op.eqn for op in self.ops)
        return Timeline(eqns, tuple(buffers), inner, tuple(op.number for op in self.ops))

    def tables(self, places: Sequence[int]) -> list[Buffer]:
        """The tables of the operands and results of equations with bodies, and what counts or chooses.

        Those of a loop's step are there for the whole step. Of several in a step some numbers are copied.
        """
        found = []
        for k in places:
            eqn = self.ops[k].eqn
            lines = COPIED if self.role == "loop" and k > places[0] else 1
            size = lines * LINE + sum(
                _in_lines(POINTER * len(vs)) for vs in (eqn.invars, eqn.outvars)
            )
            span = (0, len(self.ops) - 1) if self.role == "loop" else (k, k)
            found.append(Buffer(size, eqn, 0, *span))
        return found

    def bring_into_post_order(self) -> None:
        """Bring the equations into the order in which a compiler gets them: depth first from the results."""
        self.reached = self.depth_first(barriers=True)
        ordered = dict.fromkeys(self.maker[v] for v in self.reached if v in self.maker)
        self.ops = [*ordered, *(op for op in self.ops if op not in ordered)]

    def depth_first(self, barriers: bool) -> dict[int, int]:
        """The values in the order in which they are reached, with its numbers: as given, or without barriers."""
        reached: dict[int, int] = {}
        for root in [*self.results, *chain.from_iterable(op.outs for op in self.ops)]:
            stack = [root] if root >= 0 else []
            while stack:
                v = stack[-1]
                op = self.maker.get(v)
                ins = op.ins if op else []
                if op and op.view and not barriers:
                    ins = [op.ins[op.outs.index(v)]]
                waiting = [x for x in ins if x >= 0 and x not in reached]
                if not waiting:
                    reached.setdefault(stack.pop(), len(reached))
                stack += reversed(waiting)
        return reached

    def add_fillings(self, fused: Fusions) -> None:
        """Add arrays of one number that a library reads: it takes in only what nothing else uses."""
        found: dict[object, tuple[set[Op], list[Op]]] = {}
        for op, parts in fused.parts.items() if any(op.absorbs for op in fused.parts) else ():
            for part in (op, *parts):
                for key in kinds.fillings(part.eqn):
                    users, readers = found.setdefault(key, (set(), []))
                    users.add(part)
                    readers += [op] if op.absorbs and op not in readers else []
        for users, readers in found.values():
            if len(users) > 1 and readers:
                eqn = readers[0].eqn
                (v,) = self.add(Op(eqn, [], [self.value(next(iter(users)).eqn.outvars[0].aval)]))
                fused.users.append(readers)
                fused.parts[self.maker[v]] = []

    def run_breadth_first(self, fused: Fusions) -> None:
        """Bring the equations into the compiler's order: breadth first, each once its operands are there.

        What is fused runs with the first of its users. An update in place waits for those that read the array.
        """
        place = {op: k for k, op in enumerate(self.ops)}
        waits = dict.fromkeys([op for op in self.ops if op in fused.parts], 0)
        after: dict[object, list[Op]] = dict(enumerate(fused.users))
        for op in chain.from_iterable(fused.users):
            waits[op] += 1
        for op in waits:
            given = [x for _, x in op.over if x >= 0]
            for user in {u for x in given for u in fused.users[x] if place[u] < place[op]}:
                waits[op] += 1
                after.setdefault(user, []).append(op)
        ready = deque(op for op in waits if not waits[op])
        ran = dict[Op, None]()

        def reached(v: int) -> int:
            return self.reached.get(v, len(self.sizes))

        def note(ended: Iterable[object]) -> None:
            for user in chain.from_iterable(after.get(there, ()) for there in ended):
                waits[user] -= 1
                if not waits[user]:
                    ready.append(user)

        early = self.num_given - self.late
        for some in (range(early), range(early, self.num_given)):
            # A branch that computes again takes its operands from a tuple, in the order in which they are reached.
            first = sorted(some, key=reached)
            note(first if self.role == "recomputed" else some)
            while ready:
                op = ready.popleft()
                ran |= dict.fromkeys([*reversed(fused.parts[op]), op])
                note([op, *sorted(op.outs, key=reached)])
        self.ops = [*ran]

    def last_uses(self, fused: Fusions) -> list[int]:
        """The place of the last equation that reads each value, or any other form of it."""
        place = {op: k for k, op in enumerate(self.ops)}
        last = [max(map(place.__getitem__, users), default=-1) for users in fused.users]
        for k, op in enumerate(self.ops):
            for v in op.outs:
                last[v] = max(last[v], k)
        for v in self.results:
            if v >= 0:
                last[v] = len(self.ops) - 1
        views = [op for op in self.ops if op.view and op in fused.parts and not fused.parts[op]]
        forms = [pair for op in views for pair in zip(op.outs, op.ins, strict=True)]
        for v, x in reversed(forms):
            last[x] = max(last[x], last[v])
        for v, x in forms:
            last[v] = last[x]
        return last

    def owners(
        self, last: Sequence[int], fused: Fusions
    ) -> tuple[dict[int, int], dict[int, list[int]]]:
        """Whose buffer a value shares, where it has none, and over which others it may be written.

        These are read there for the last time. What a loop or a branch gives has a place of its own, and what is
        updated in place has it with its updates alone.
        """
        owner: dict[int, int] = {}
        over: dict[int, list[int]] = {}
        updated = set[int]()
        own = set(self.results) if self.role else ()
        for place, op in enumerate(self.ops):
            if op not in fused.parts:
                continue
            if op.view and not fused.parts[op]:
                owner |= zip(op.outs, op.ins, strict=True)
                continue
            taken: set[int] = set()
            for v, x in op.over:
                if x >= self.num_given and last[x] <= place and not {v, x} & taken:
                    owner[v] = x
                    taken |= {v, x}
                    updated.add(_root(owner, x))
            if op.light and not op.over and op.outs[0] not in own:
                (v,) = op.outs
                alike = [x for x in fused.alike[op] if self.sizes[x] == self.sizes[v]]
                ended = [x for x in alike if x >= self.num_given and last[x] <= place]
                over[v] = [_root(owner, x) for x in ended]
        alone = over.keys() - updated
        return owner, {v: [x for x in over[v] if x not in updated] for v in alone}

    def in_place(self, last: Sequence[int]) -> list[int]:
        """The results that need no memory here: a step's next carry only if it can be written over the last one."""
        if not self.carried:
            return self.results
        places = {v: place for place, op in enumerate(self.ops) for v in op.outs}
        pairs = zip(self.results, self.carried, strict=True)
        return [v for v, old in pairs if last[old] <= places.get(v, -1)]


def _in_lines(size: int) -> int:
    return -(-size // LINE) * LINE


@ir.once_per(lambda body, *how: (body.jaxpr, body.role == "loop" and body.carry, body.role, *how))
def _body_timeline(body: rules.Body, path: tuple[str, ...], wide: bool) -> Timeline:
    """The memory of one run of a body."""
    carry = body.carry if body.role == "loop" else None
    return _Layout(path, body.jaxpr, carry, body.role, wide=wide).timeline()


_LOOPS = {"for", "while"}

_LOWERED_AS = {"square": "mul"}

_COMMUTATIVE = {"add", "mul", "maximum", "minimum", "bitwise_and", "bitwise_or"}


def _root(owner: dict[int, int], v: int) -> int:
    while v in owner:
        v = owner[v]
    return v


def _key(atom: ir.Atom, number: int) -> object:
    """What an operand is, for equations that XLA merges because they compute the same."""
    if not isinstance(atom, ir.Literal):
        return number
    return (atom.aval, str(atom.value)) if ir.is_scalar(atom) else id(atom.value)


def is_kept_short(aval: ir.Aval) -> bool:
    """Whether the compiler keeps numbers of a type in two bytes, and contracts those as they are where it can."""
    return aval.dtype.name == "bfloat16" and not recomputes_in_branches()


def _computes_in_full(eqn: ir.Eqn) -> bool:
    """Whether an equation gives numbers of two bytes that XLA:CPU computes, and keeps, in four.

    Newer compilers contract those of bfloat16 as they are, along the rows of the first operand.
    """
    dtypes = [v.aval.dtype for v in eqn.outvars]
    if not dtypes or dtypes[0].itemsize != 2 or not eqn.outvars[0].aval.differentiable:
        return False
    if eqn.primitive is prims.dot_general_p:
        (kept,) = eqn.params.contract[0][-1:] or (-1,)
        by_rows = kept == eqn.invars[0].aval.ndim - 1
        return not is_kept_short(eqn.outvars[0].aval) or not by_rows
    return bool(rules.by_element_rules.find(eqn.primitive))
