"""Which equations a compiler fuses into those that use them, by XLA's rules, and who uses what is left in memory."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property
from heapq import heappop, heappush
from itertools import chain
from typing import TypeAlias

from fiveloop.core import ir, prims, rules
from fiveloop.core.dataclass import dataclass
from fiveloop.core.inspect import recomputes_in_branches
from fiveloop.remat import kinds

SAME, MOVED, SPREAD = range(3)
"""How an element of an operand is read: for the same element of the result, for others, or for many."""

DUPLICATES = 15
"""How often a compiler writes an equation into one kernel at most: once for each place that its users compute."""


@dataclass(slots=True, eq=False)
class Op:
    """An equation of a program without calls, with its operands and results by number; a constant is -1.

    A `light` one may be fused into those that use its result, as often as they are; an `expensive` one only if one is,
    and a `unary` one, of one large array, without regard to the others. A `view` gives its operand again in another
    form. Each element of an operand `reads` an element so. The results are written `over` operands, in pairs. One that
    `absorbs` takes what it alone uses, element by element, and has the rest of its operands in memory. `first` is the
    position of the first of the results among those of the equation, and `number` that of the equation in the jaxpr.
    The users of a `turned` one come in reverse. One that is `anew` the compiler has written in place of another, behind
    all others. One that `chooses` says which branch is taken.
    """

    eqn: ir.Eqn
    ins: list[int]
    outs: list[int]
    light: bool = False
    expensive: bool = False
    unary: bool = False
    view: bool = False
    absorbs: bool = False
    reads: int = MOVED
    over: Sequence[tuple[int, int]] = ()
    bodies: Sequence[rules.Body] = ()
    first: int = 0
    number: int = 0
    turned: bool = False
    anew: bool = False
    chooses: bool = False

    def operands(self) -> Iterator[int]:
        """The values that this uses, each once."""
        return (x for x in dict.fromkeys(self.ins) if x >= 0)

    def how_read(self, x: int) -> int:
        """How each element of an operand is read: a block is written among the same elements of an array."""
        return SAME if [x] == [y for _, y in self.over] and x not in self.ins[1:] else self.reads


def seen_through(x: int, maker: Mapping[int, Op]) -> int:
    """What a value is another form of."""
    while (made := maker.get(x)) and made.view:
        x = made.ins[made.outs.index(x)]
    return x


def last_first(users: Sequence[Op]) -> list[Op]:
    """The users of a value once the first of them is gone, and the last one in its place, as in XLA's lists."""
    return [*users[-1:], *users[:-1]]


@dataclass(frozen=True, slots=True)
class Fusions:
    """The equations in memory that use each value, in the compiler's order, and what is fused into each.

    The `parts` are a bit for each of the `ops`. `alike` are the values in memory that an equation, with what is fused
    into it, reads element by element, and `ins` all that it reads, in the compiler's order: operands of what is fused
    come behind those that were there.
    """

    ops: Sequence[Op]
    users: list[list[Op]]
    parts: dict[Op, int]
    alike: dict[Op, list[int]]
    ins: dict[Op, list[int]]

    def parts_of(self, op: Op, known: int = 0) -> list[Op]:
        """What is fused into an equation, last first, but for what is known."""
        return [self.ops[k] for k in _bits(self.parts[op] & ~known)]

    def hand_on(self, given: Iterable[int], down: int) -> None:
        """Order the users of what a loop's step is given: the last one comes into the place of what has handed it on.

        So many of the first count `down`. The difference that they stand for is fused into each user, the last one
        first, and the first of them comes into its place.
        """
        for v in given:
            users = self.users[v]
            if v < down:
                users = [op for op in self.ops if op in users]
                users[1:] = users[:0:-1]
            self.users[v][:] = last_first(users)


def _bits(mask: int) -> Iterator[int]:
    """The bits that are set, the highest first."""
    text = bin(mask)
    last, k = len(text) - 1, text.find("1")
    while k >= 0:
        yield last - k
        k = text.find("1", k + 1)


Along: TypeAlias = tuple[int, int]
"""What an equation takes along, element by element, where it is fused and is there for others, too, as bits: the places
of equations, and the values that these read."""


OUTSIDE = {
    "select",
    "clamp",
    "cbrt",
    "sinh",
    "asin",
    "acos",
    "atan",
    "asinh",
    "acosh",
    "atanh",
    "atan2",
    "hypot",
}
"""Functions that the library of reductions lacks."""


def _is_outside_library(eqn: ir.Eqn) -> bool:
    """Whether the library of reductions lacks a function: that of older compilers has no sine, either."""
    name = eqn.primitive.name
    return name in OUTSIDE or (name in ("sin", "cos", "tan") and recomputes_in_branches())


def reduces(eqn: ir.Eqn) -> bool:
    """Whether an equation is a reduction."""
    return eqn.primitive.name.startswith("reduce_")


def is_spread(eqn: ir.Eqn) -> bool:
    """Whether an equation repeats the elements of an array."""
    return eqn.primitive is prims.broadcast_in_dim_p


class Fuser:
    """Equations in the order in which a compiler visits them: each behind those that make its operands.

    They were `written` in another order. Where they have been `copied`, in this one, the last user of each value that
    they are given comes first, in place of what handed it on.
    """

    def __init__(
        self,
        ops: Sequence[Op],
        results: Sequence[int],
        num_values: int,
        written: Sequence[Op],
        copied: bool = False,
    ) -> None:
        self.ops = ops
        self.written = {op: k for k, op in enumerate(ops if copied else written)}
        self.place = {op: k for k, op in enumerate(ops)}
        self.given = {op: [*op.operands()] for op in ops}
        self.maker = {v: op for op in ops for v in op.outs}
        self.results = set(results)
        self.users: list[list[Op]] = [[] for _ in range(num_values)]
        self.gone = set[Op]()
        for op in reversed(ops):
            unused = not any(self.users[v] or v in self.results for v in op.outs)
            if unused and (op.light or op.absorbs or op.eqn.primitive is prims.concatenate_p):
                self.gone.add(op)
                continue
            for x in self.given[op]:
                self.users[x].append(op)
        for v, found in enumerate(self.users):
            if v not in self.maker or not self.maker[v].turned:
                found.reverse()
            if copied and v not in self.maker:
                found[:] = last_first(found)
        self.flat = self.find_flat()
        self.whole = set[Op]()
        self.behind = set[Op]()
        self.goes_behind = set[Op]()
        self.summed = set[Op]()
        self.apart = {v for v in range(num_values) if v not in self.maker}
        self.single = set[int]()
        self.parts: dict[Op, int] = dict.fromkeys(ops, 0)
        self.alike: dict[Op, list[int]] = {}
        self.ins: dict[Op, list[int]] = {}
        self.along: dict[Op, Along] = {}

    def fusions(self) -> Fusions:
        """Fuse into the last equation first, and into each the last of its operands first."""
        for op in self.ops:
            if op.absorbs and op not in self.gone:
                self.grow(op)
                makers = [self.maker.get(x) for x in self.given[op] if reduces(op.eqn)]
                self.summed.update(made for made in makers if made and made.view)
        for op in reversed(self.ops):
            if op.absorbs and op not in self.gone:
                self.take_in(op, self.is_absorbed)
        self.find_whole()
        self.sort_values()
        for op in reversed(self.ops):
            if op not in self.gone:
                self.take_in(op, self.is_fused)
        for op in self.gone:
            del self.parts[op]
        return Fusions(self.ops, self.users, self.parts, self.alike, self.ins)

    def grow(self, op: Op) -> None:
        """Note what a library takes in behind a reduction: each equation that alone uses what is before it."""
        taken = [op]
        while reduces(op.eqn):
            (v,) = taken[-1].outs
            user = self.users[v][0] if len(self.users[v]) == 1 else None
            if user is None or v in self.results or not self.goes_on(user):
                break
            small = ir.size_of(user.eqn.outvars[0].aval.shape) < kinds.LIBRARY
            sums = op.eqn.primitive.name == "reduce_sum"
            if sums and small and user.view and self.sums_reshaped(op):
                break
            taken.append(user)
            if user.absorbs:
                break
        last = taken[-1]
        if not last.absorbs:  # its users are those of what it is taken into; it was one of these
            for v in last.outs:
                self.users[v] = [*self.users[v][-1:], *self.users[v][:-1]]
        while last.view or (is_spread(last.eqn) and not recomputes_in_branches()):
            last = taken[taken.index(last) - 1]
        self.behind.update(taken[1 : taken.index(last) + 1])
        if last is not op:
            self.goes_behind.add(op)
            last.light, last.absorbs = False, True

    def goes_on(self, op: Op) -> bool:
        """Whether a library takes in an equation that uses its result: a large one, or another reduction."""
        if op.absorbs or not op.light:
            return op.absorbs and (reduces(op.eqn) or op in self.behind)
        out = op.eqn.outvars[0].aval
        by_element = rules.by_element_rules.find(op.eqn.primitive) and out.differentiable
        known = is_spread(op.eqn) or kinds.pads_edges(op.eqn)
        known |= bool(by_element) and not _is_outside_library(op.eqn)
        return op.view or (known and ir.size_of(out.shape) >= kinds.LIBRARY)

    def sums_reshaped(self, op: Op) -> bool:
        """Whether what is summed is made of a contraction that is reshaped, by element: a library ends there."""
        waiting, seen = [*self.given[op]], set[int]()
        while waiting:
            x = waiting.pop()
            made = self.maker.get(x)
            if made is None or x in seen:
                continue
            seen.add(x)
            if kinds.is_reshaped(made.eqn) and not made.light:
                return True
            waiting += self.given[made] if made.light and made.reads == SAME else ()
        return False

    def take_in(self, op: Op, fuses: Callable[[Op, Op, int, int, bool], bool]) -> None:
        """Fuse into an equation what may be of its operands, of theirs, and so on.

        What is there for others, too, is not gone through again: all that it takes along is known.
        """
        reads: dict[int, int] = {}
        times: dict[Op | None, int] = {None: 1, op: 1}
        places: dict[int, Set[Op | None]] = {}
        waiting: list[tuple[int, int]] = []
        parts, along = self.parts[op], [0, 0, 0]

        def read(y: int, how: int, at: Set[Op | None], given: bool = False) -> None:
            if y in reads:
                reads[y] = max(reads[y], how)
                if y in places:
                    places[y] = places[y] | at
                return
            reads[y] = how
            if not given:
                self.users[y].append(op)
            if y not in self.apart:
                places[y] = at
                if y not in self.single or self.users[y] == [op]:
                    heappush(waiting, (-self.place[self.maker[y]], y))

        for y in self.given[op]:
            read(y, op.reads, {op} if self.is_placed_anew(y, op) else {None}, given=True)
        while waiting:
            _, x = heappop(waiting)
            made, at = self.maker[x], places.pop(x)
            times[made] = sum(map(times.__getitem__, at))
            if not fuses(made, op, reads[x], times[made], not parts):
                places[x] = at
                continue
            parts |= 1 << self.place[made]
            before = reads.pop(x)
            how = max(before, made.reads)
            self.drop(x, op)
            gone = not self.users[x] and x not in self.results
            if gone or made.reads != SAME:
                for y in self.given[made]:
                    each = max(before, made.how_read(y))
                    read(y, each, {made} if self.is_placed_anew(y, made) else at)
            else:
                more, there = self.taken_along(made)
                for k in _bits(more & self.edges & ~parts | 1 << self.place[made]):
                    part = self.ops[k]
                    times[part] = times[made]
                    for y in self.given[part]:
                        if self.is_placed_anew(y, part):
                            read(y, how, {part})
                for y in _bits(there & ~along[how]):
                    read(y, how, at)
                parts, along[how] = parts | more, along[how] | there
            if gone:
                self.gone.add(made)
                for y in self.given[made]:
                    self.drop(y, made)
                    if y in self.single and y in places and self.users[y] == [op]:
                        heappush(waiting, (-self.place[self.maker[y]], y))
        self.parts[op] = parts
        self.ins[op] = self.in_order(op, reads) if any(along) else [*reads]
        self.alike[op] = self.read_alike(op, reads)

    def read_alike(self, op: Op, reads: Mapping[int, int]) -> list[int]:
        """What is read element by element, and not in another form of it in another way."""
        elsewhere = {seen_through(x, self.maker) for x in self.ins[op] if reads[x] != SAME}
        found = (x for x in self.ins[op] if reads[x] == SAME)
        return [x for x in found if seen_through(x, self.maker) not in elsewhere]

    def sort_values(self) -> None:
        """Note what is never fused from now on, and what is only fused into the one equation that uses it."""
        for v, made in self.maker.items():
            if not made.light or made in self.whole:
                self.apart.add(v)
            elif made.expensive and not (
                kinds.is_cheap(made.eqn) or (kinds.is_placed(made.eqn) and not reduces(made.eqn))
            ):
                (self.apart if v in self.results else self.single).add(v)

    def is_placed_anew(self, x: int, op: Op) -> bool:
        """Whether an equation that reads a value computes the places of its elements, of others than its own.

        Of what is transposed each equation has a copy of its own, but for one whose result is transposed, too.
        """
        made = self.maker.get(x)
        if made is None:
            return False
        shapes = [v.aval.shape for v in op.eqn.outvars[:1]]
        moves = [made.eqn.outvars[0].aval.shape] != shapes or kinds.is_transposed(op.eqn)
        return moves or (x in self.turned and self.turned.keys().isdisjoint(op.outs))

    @cached_property
    def turned(self) -> dict[int, Sequence[int]]:
        """The transposed values, with the order of their axes, and those computed of such ones alone by element.

        The compiler computes these first, and transposes them then.
        """
        found: dict[int, Sequence[int]] = {}
        for op in self.ops:
            orders = {found.get(x) for x in self.given[op] if not self.is_number(x)}
            if kinds.is_transposed(op.eqn):
                orders = {op.eqn.params.perm}
            elif op.reads != SAME:
                continue
            order, *others = orders or {None}
            if order is not None and not others:
                found |= dict.fromkeys(op.outs, order)
        return found

    @cached_property
    def edges(self) -> int:
        """The equations, a bit for each, that compute the places of what they read."""
        anew = (any(self.is_placed_anew(x, op) for x in self.given[op]) for op in self.ops)
        return sum(1 << k for k, is_edge in enumerate(anew) if is_edge)

    def in_order(self, op: Op, reads: Container[int]) -> list[int]:
        """What an equation reads, with what is fused into it, by the last of these that reads it."""
        users = op, *map(self.ops.__getitem__, _bits(self.parts[op]))
        found = dict.fromkeys(chain.from_iterable(map(self.given.__getitem__, users)))
        return [x for x in found if x in reads]

    def taken_along(self, op: Op) -> Along:
        """What an equation takes along: all that it is made of by element, up to what is not fused wherever it is."""
        waiting = [] if op in self.along else [op]
        while waiting:
            here = waiting[-1]
            makers = {x: self.maker.get(x) for x in self.given[here]}
            inner = {x: made for x, made in makers.items() if made and self.joins(x, made, here)}
            missing = [made for made in inner.values() if made not in self.along]
            if missing:
                waiting += missing
                continue
            waiting.pop()
            parts, reads = 1 << self.place[here], 0
            for x in makers:
                if x in inner:
                    parts |= self.along[inner[x]][0]
                    reads |= self.along[inner[x]][1]
                elif not self.is_placed_anew(x, here):
                    reads |= 1 << x
            self.along[here] = parts, reads
        return self.along[op]

    def joins(self, x: int, made: Op, op: Op) -> bool:
        """Whether an equation of the same places is fused into one that reads it, by element, wherever that is."""
        light = made.light and not (made.expensive or made in self.whole)
        return light and made.reads == SAME and not self.is_placed_anew(x, op)

    def drop(self, x: int, op: Op) -> None:
        """Forget a user of a value: the last one comes into its place, as in XLA's lists."""
        found = self.users[x]
        last = found.pop()
        if last is not op:
            found[found.index(op)] = last

    def is_alone(self, op: Op, made: Op) -> bool:
        """Whether nothing else uses the one result of an equation."""
        return len(made.outs) == 1 and all(
            self.users[v] == [op] and v not in self.results for v in made.outs
        )

    def is_absorbed(self, made: Op, op: Op, reads: int, times: int, bare: bool) -> bool:
        """Whether a library takes an equation into a reduction, or into several that are written out."""
        contracts = made.eqn.primitive is prims.dot_general_p and not made.light
        maps = made.reads == SAME or made in self.summed or is_spread(made.eqn)
        maps = maps and not _is_outside_library(made.eqn)
        maps = maps and ir.size_of(made.eqn.outvars[0].aval.shape) >= kinds.LIBRARY
        grows = op in self.behind and (made in self.behind or made in self.goes_behind)
        return (contracts or maps or grows) and self.is_alone(op, made)

    def is_fused(self, made: Op, op: Op, reads: int, times: int, bare: bool) -> bool:
        """Whether an equation is fused into one that uses it, so many times.

        What joins or pads arrays for others, too, is fused only into one that is `bare`: nothing else is fused there.
        """
        if kinds.is_placed(made.eqn):
            if times > 1 or not (bare or reduces(made.eqn) or self.is_alone(op, made)):
                return False
        elif times > DUPLICATES and not is_spread(made.eqn):
            return False
        return made not in self.whole and self.may_join(made, op, reads)

    def may_join(self, made: Op, op: Op, reads: int) -> bool:
        """Whether an equation is fused into one that uses it, if it is not computed once."""
        if not (made.light and op.light):
            return False
        if op.over and not self.may_enter(made, op):
            return False
        if not made.expensive or kinds.is_cheap(made.eqn):
            return True
        if kinds.is_placed(made.eqn) and not reduces(made.eqn):
            return True
        return reads != SPREAD and self.is_alone(op, made)

    def may_enter(self, made: Op, op: Op) -> bool:
        """Whether an equation may be fused into one that writes a block: what it is written to must stay in memory.

        Else the block would be written in another array, or that array read while it is written elsewhere.
        """
        array, _, *places = op.ins
        if made.reads == SAME or op not in self.users[array]:
            return True
        there = made.eqn.primitive is prims.take_p and made.ins[1:] == places
        there = there and made.eqn.params.indexer == op.eqn.params.indexer
        return made is not self.maker.get(array) and (there or array not in made.ins)

    def find_flat(self) -> set[Op]:
        """The equations that the compiler computes in the flat form that products have, and then reshapes.

        It moves a reshape behind all that uses it, if each of these has such operands, or numbers, alone: in turns, as
        long as there is one. What reshapes the result to be flat again then reads it as it is. What it has moved uses
        the flat form in the order in which it was written, but the last one comes first, in place of the reshape.
        """
        products = (
            op for op in self.ops if kinds.is_reshaped(op.eqn) and not (op.light or op.view)
        )
        form = {v for op in products for v in op.outs if self.users[v] and v not in self.results}
        found = set[Op]()
        while True:
            moved = {op for v in form for op in self.users[v] if self.follows(op, form)}
            while True:
                stay = {
                    op
                    for op in moved
                    for x in form.intersection(self.given[op])
                    if not moved.issuperset(self.users[x])
                }
                if not stay:
                    break
                moved -= stay
            if not moved:
                break
            found |= moved
            read = form.intersection(x for op in moved for x in self.given[op])
            for x in read:
                self.users[x] = last_first(sorted(self.users[x], key=self.written.__getitem__))
            form -= read
            form |= {v for op in moved for v in op.outs if v not in self.results}
        for x in form:
            self.read_flat(x)
        return found

    def read_flat(self, x: int) -> None:
        """Let products read a value in the flat form that it has."""
        views = [op for op in self.users[x] if op.view]
        others = [op for op in self.users[x] if not op.view]
        found = dict[Op, None]()
        for view in views:
            if view.eqn.primitive is not prims.dot_general_p:
                found[view] = None
                continue
            (v,) = view.outs
            self.gone.add(view)
            users, self.users[v] = self.users[v], []
            for op in users:
                op.ins = [x if y == v else y for y in op.ins]
                self.given[op] = [*op.operands()]
                found[op] = None
        users = sorted(found, key=self.place.__getitem__)
        self.users[x] = [*users, *others] if others else last_first(users)

    def follows(self, op: Op, form: set[int]) -> bool:
        """Whether an equation computes its elements of reshaped ones, and of numbers, alone."""
        if op.reads != SAME or op.view or not op.light or op in self.gone:
            return False
        shaped = [x for x in self.given[op] if not self.is_number(x)]
        return bool(shaped) and form >= set(shaped)

    def is_number(self, x: int) -> bool:
        """Whether an array is one number repeated."""
        made = self.maker.get(x)
        return made is not None and is_spread(made.eqn) and not made.eqn.invars[0].aval.ndim

    def find_whole(self) -> None:
        """Note the equations of several arrays that XLA computes once: they are not fusible wherever they lead.

        One whose result is reshaped leads to that alone, which may be done several times.
        """
        makers_of = {op: self.makers_of(op) for op in self.ops}
        self.whole.update(
            made
            for op, makers in makers_of.items()
            for made in makers
            if self.may_be_whole(made, op)
            and (made.outs[0] in self.results or not self.may_join(made, op, op.reads))
        )
        behind: list[int] = []  # a bit for each equation that leads to this one, and its own
        apart: list[int] = []  # a bit for each of these from which some way cannot be fused
        passed: list[int] = []  # a bit for each of these that `apart` knows to be computed once
        once = sum(1 << self.place[op] for op in self.whole)
        for place, op in enumerate(self.ops):
            makers = makers_of[op]
            mask, far, seen = 0, 0, 0
            for made in makers:
                k = self.place[made]
                mask |= behind[k]
                far |= apart[k] if self.may_join(made, op, op.reads) else behind[k]
                seen |= passed[k]
            for k in _bits(once & mask & ~seen):
                far |= behind[k]
            seen = once & mask
            for made in makers:
                k = self.place[made]
                if far >> k & 1 and self.may_be_whole(made, op):
                    self.whole.add(made)
                    once |= 1 << k
                    far |= behind[k]
                    seen |= 1 << k
            behind.append(mask | 1 << place)
            apart.append(far)
            passed.append(seen)

    def may_be_whole(self, made: Op, op: Op) -> bool:
        """Whether an equation is of several arrays, and not yet known to be computed once for one that uses it."""
        if made.unary or made in self.whole or not made.light or op in self.gone:
            return False
        return made not in self.flat or op in self.flat

    def makers_of(self, op: Op) -> list[Op]:
        """The equations that make what an equation reads."""
        return [self.maker[x] for x in self.read_by(op) if x in self.maker]

    def read_by(self, op: Op) -> Iterable[int]:
        """The values that an equation reads, with what a library has taken into it."""
        if not self.parts[op]:
            return self.given[op]
        parts = [self.ops[k] for k in _bits(self.parts[op])]
        made = {v for part in parts for v in part.outs}
        found = dict.fromkeys(x for part in (op, *parts) for x in self.given[part])
        return (x for x in found if x not in made)
