"""Which equations a compiler fuses into those that use them, by XLA's rules, and who uses what is left in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from heapq import heapify, heappop, heappush

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
    The users of a `turned` one come in reverse. One that `chooses` says which branch is taken.
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
    chooses: bool = False

    def operands(self) -> Iterator[int]:
        """The values that this uses, each once."""
        return (x for x in dict.fromkeys(self.ins) if x >= 0)


@dataclass(frozen=True, slots=True)
class Fusions:
    """The equations in memory that use each value, in the compiler's order, and what is fused into each, last first.

    `alike` are the values in memory that an equation, with what is fused into it, reads element by element, and `ins`
    all that it reads, in the compiler's order: operands of what is fused come behind those that were there.
    """

    users: list[list[Op]]
    parts: dict[Op, list[Op]]
    alike: dict[Op, list[int]]
    ins: dict[Op, list[int]]


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
    """Whether the library of reductions lacks a function, or its types: that of older compilers has no sine, either."""
    name = eqn.primitive.name
    if any(
        a.aval.dtype.itemsize < 4 and a.aval.dtype.name != "bfloat16"
        for a in (*eqn.invars, *eqn.outvars)
    ):
        return True  # it computes bfloat16 as numbers of four bytes
    return name in OUTSIDE or (name in ("sin", "cos", "tan") and recomputes_in_branches())


def reduces(eqn: ir.Eqn) -> bool:
    """Whether an equation is a reduction."""
    return eqn.primitive.name.startswith("reduce_")


def is_spread(eqn: ir.Eqn) -> bool:
    """Whether an equation repeats the elements of an array."""
    return eqn.primitive is prims.broadcast_in_dim_p


class Fuser:
    """Equations in the order in which a compiler visits them: each behind those that make its operands."""

    def __init__(self, ops: Sequence[Op], results: Sequence[int], num_values: int) -> None:
        self.ops = ops
        self.place = {op: k for k, op in enumerate(ops)}
        self.maker = {v: op for op in ops for v in op.outs}
        self.results = set(results)
        self.users: list[list[Op]] = [[] for _ in range(num_values)]
        self.gone = set[Op]()
        for op in reversed(ops):
            unused = not any(self.users[v] or v in self.results for v in op.outs)
            if unused and (op.light or op.eqn.primitive is prims.concatenate_p):
                self.gone.add(op)
                continue
            for x in op.operands():
                self.users[x].append(op)
        for v, found in enumerate(self.users):
            if v not in self.maker or not self.maker[v].turned:
                found.reverse()
        self.whole = set[Op]()
        self.behind = set[Op]()
        self.goes_behind = set[Op]()
        self.summed = set[Op]()
        self.parts: dict[Op, list[Op]] = {op: [] for op in ops}
        self.alike: dict[Op, list[int]] = {}
        self.ins: dict[Op, list[int]] = {}

    def fusions(self) -> Fusions:
        """Fuse into the last equation first, and into each the last of its operands first."""
        for op in self.ops:
            if op.absorbs and op not in self.gone:
                self.grow(op)
                makers = [self.maker.get(x) for x in op.operands() if reduces(op.eqn)]
                self.summed.update(made for made in makers if made and made.view)
        for op in reversed(self.ops):
            if op.absorbs and op not in self.gone:
                self.take_in(op, self.is_absorbed)
        self.find_whole()
        for op in reversed(self.ops):
            if op not in self.gone:
                self.take_in(op, self.is_fused)
        for op in self.gone:
            del self.parts[op]
        return Fusions(self.users, self.parts, self.alike, self.ins)

    def grow(self, op: Op) -> None:
        """Note what a library takes in behind a reduction: each equation that alone uses what is before it."""
        chain = [op]
        while reduces(op.eqn):
            (v,) = chain[-1].outs
            user = self.users[v][0] if len(self.users[v]) == 1 else None
            if user is None or v in self.results or not self.goes_on(user):
                break
            small = ir.size_of(user.eqn.outvars[0].aval.shape) < kinds.LIBRARY
            sums = op.eqn.primitive.name == "reduce_sum"
            if sums and small and user.view and self.sums_reshaped(op):
                break
            chain.append(user)
            if user.absorbs:
                break
        last = chain[-1]
        if (
            not last.absorbs
        ):  # its users are those of what it is taken into, which it was one of before
            for v in last.outs:
                self.users[v] = [*self.users[v][-1:], *self.users[v][:-1]]
        while last.view or (is_spread(last.eqn) and not recomputes_in_branches()):
            last = chain[chain.index(last) - 1]
        self.behind.update(chain[1 : chain.index(last) + 1])
        if last is not op:
            self.goes_behind.add(op)
            last.light, last.absorbs = False, True

    def goes_on(self, op: Op) -> bool:
        """Whether a library takes in an equation that uses its result: a large one, or another reduction."""
        if op.absorbs or not op.light:
            return op.absorbs and reduces(op.eqn)
        out = op.eqn.outvars[0].aval
        by_element = rules.by_element_rules.find(op.eqn.primitive) and out.differentiable
        known = is_spread(op.eqn) or kinds.pads_edges(op.eqn)
        known |= bool(by_element) and not _is_outside_library(op.eqn)
        return op.view or (known and ir.size_of(out.shape) >= kinds.LIBRARY)

    def sums_reshaped(self, op: Op) -> bool:
        """Whether what is summed is made of a contraction that is reshaped, by element: a library ends there."""
        waiting, seen = [*op.operands()], set[int]()
        while waiting:
            x = waiting.pop()
            made = self.maker.get(x)
            if made is None or x in seen:
                continue
            seen.add(x)
            if kinds.is_reshaped(made.eqn) and not made.light:
                return True
            waiting += made.operands() if made.light and made.reads == SAME else ()
        return False

    def take_in(self, op: Op, fuses: Callable[[Op, Op, int, int], bool]) -> None:
        """Fuse into an equation what may be of its operands, of theirs, and so on."""
        reads = dict.fromkeys(op.operands(), op.reads)
        times: dict[Op | None, int] = {None: 1, op: 1}
        places: dict[int, set[Op | None]] = {}
        self.note_places(op, {None}, places)
        waiting = [(-self.place[self.maker[x]], x) for x in reads if x in self.maker]
        heapify(waiting)
        while waiting:
            _, x = heappop(waiting)
            made = self.maker[x]
            at = places[x]
            times[made] = sum(map(times.__getitem__, at))
            if not fuses(made, op, reads[x], times[made]):
                continue
            self.note_places(made, at, places)
            self.parts[op].append(made)
            how = max(reads.pop(x), made.reads)
            for y in made.operands():
                if y in reads:
                    reads[y] = max(reads[y], how)
                    continue
                reads[y] = how
                self.users[y].append(op)
                if y in self.maker:
                    heappush(waiting, (-self.place[self.maker[y]], y))
            self.drop(x, op)
            if not self.users[x] and x not in self.results:
                self.gone.add(made)
                for y in made.operands():
                    self.drop(y, made)
        self.alike[op] = [x for x, how in reads.items() if how == SAME]
        if op.view and op.eqn.primitive is prims.dot_general_p:
            self.alike[op] += self.flat_in(reads, self.maker.get(op.ins[0]))
        self.ins[op] = [*reads]

    def flat_in(self, reads: Iterable[int], given: Op | None) -> list[int]:
        """The products of which an operand of a product is computed: these are flat as it is, with no other arrays."""
        shape = given and given.eqn.outvars[0].aval.shape
        makers = {x: self.maker.get(x) for x in reads}
        large = {
            x: made
            for x, made in makers.items()
            if made is None or made.eqn.outvars[0].aval.shape == shape
        }
        are = (m and m.eqn.primitive is prims.dot_general_p and not m.light for m in large.values())
        return [*large] if all(are) else []

    def note_places(self, op: Op, at: Set[Op | None], places: dict[int, set[Op | None]]) -> None:
        """Note which equations compute the places of what one reads: those that compute its own, or it does anew."""
        shapes = [v.aval.shape for v in op.eqn.outvars[:1]]
        for x in op.operands():
            made = self.maker.get(x)
            if made is not None:
                alike = [made.eqn.outvars[0].aval.shape] == shapes
                anew = not alike or kinds.is_transposed(op.eqn)
                places.setdefault(x, set()).update({op} if anew else at)

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

    def is_absorbed(self, made: Op, op: Op, reads: int, times: int) -> bool:
        """Whether a library takes an equation into a reduction, or into several that are written out."""
        contracts = made.eqn.primitive is prims.dot_general_p and not made.light
        maps = made.reads == SAME or made in self.summed or is_spread(made.eqn)
        maps = maps and not _is_outside_library(made.eqn)
        maps = maps and ir.size_of(made.eqn.outvars[0].aval.shape) >= kinds.LIBRARY
        grows = op in self.behind and (made in self.behind or made in self.goes_behind)
        return (contracts or maps or grows) and self.is_alone(op, made)

    def is_fused(self, made: Op, op: Op, reads: int, times: int = 1) -> bool:
        """Whether an equation is fused into one that uses it, so many times."""
        if not (made.light and op.light) or made in self.whole:
            return False
        if times > (1 if kinds.is_placed(made.eqn) else DUPLICATES) and not is_spread(made.eqn):
            return False
        if not made.expensive or (reads == SAME and kinds.is_cheap(made.eqn)):
            return True
        return reads != SPREAD and self.is_alone(op, made)

    def reshaped(self) -> set[Op]:
        """The equations of products alone: the compiler reshapes what they give, in place of each product."""
        found = set[Op]()
        for op in self.ops:
            if op.reads != SAME or op in self.gone:
                continue
            makers = [self.maker.get(x) for x in op.operands()]
            if makers and all(
                made and (made in found or kinds.is_reshaped(made.eqn)) and self.is_alone(op, made)
                for made in makers
            ):
                found.add(op)
        return found

    def find_whole(self) -> None:
        """Note the equations of several arrays that XLA computes once: they are not fusible wherever they lead.

        One whose result is reshaped leads to that alone, which may be done several times.
        """
        reshaped = self.reshaped()
        behind: list[int] = []  # a bit for each equation that leads to this one, and its own
        for place, op in enumerate(self.ops):
            makers = [self.maker[x] for x in self.read_by(op) if x in self.maker]
            mask = 1 << place
            for made in makers:
                mask |= behind[self.place[made]]
            behind.append(mask)
            for made in makers if op not in self.gone and not kinds.writes_block(op.eqn) else ():
                if made.unary or made in self.whole or not made.light:
                    continue
                if made in reshaped and op not in reshaped:
                    continue
                if made.outs[0] in self.results or not self.is_fusible_between(made, op, behind):
                    self.whole.add(made)

    def read_by(self, op: Op) -> Iterator[int]:
        """The values that an equation reads, with what a library has taken into it."""
        parts = self.parts[op]
        if not parts:
            return op.operands()
        made = {v for part in parts for v in part.outs}
        found = dict.fromkeys(x for part in (op, *parts) for x in part.operands())
        return (x for x in found if x not in made)

    def is_fusible_between(self, made: Op, op: Op, behind: Sequence[int]) -> bool:
        """Whether each way from an equation to one of its users may be fused."""
        waiting, seen = [op], {op, made}
        while waiting:
            user = waiting.pop()
            for x in self.read_by(user):
                between = self.maker.get(x)
                if between is None or not behind[self.place[between]] >> self.place[made] & 1:
                    continue
                if not self.is_fused(between, user, user.reads):
                    return False
                if between not in seen:
                    seen.add(between)
                    waiting.append(between)
        return True
