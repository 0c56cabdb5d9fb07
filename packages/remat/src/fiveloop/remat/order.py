"""The order of equations: as a compiler gets them, and as it runs them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

from fiveloop.core import Jaxpr, ir, rules
from fiveloop.core.inspect import recomputes_in_branches
from fiveloop.remat import kinds
from fiveloop.remat.fusion import Fusions, Op
from fiveloop.remat.operations import Operations


class Ordered(Operations):
    """The equations of a program or a body in the compiler's order; `role` and `carry` are those of the body."""

    def __init__(
        self,
        path: tuple[str, ...],
        jaxpr: Jaxpr,
        saves: bool,
        carry: int | None = None,
        role: str = "",
        late: int = 0,
        wide: bool = False,
        counters: int = 0,
        ordered: bool = False,
        repeated: bool = False,
        body: rules.Body | None = None,
    ) -> None:
        super().__init__(path, jaxpr, saves, wide)
        self.ordered = ordered
        self.repeated = repeated
        self.body = body
        self.counters = counters
        self.role = role
        self.late = late
        self.reached: dict[int, int] = {}
        self.copied: dict[int, Op] = {}
        self.carried = [] if carry is None else [*range(self.num_given)][carry:]

    def bring_into_post_order(self) -> None:
        """Bring the equations into the order in which a compiler gets them: depth first from the results."""
        self.reached = self.depth_first()
        ordered = dict.fromkeys(self.maker[v] for v in self.reached if v in self.maker)
        self.ops = [*ordered, *(op for op in self.ops if op not in ordered)]

    def reaches_results_in_order(self) -> bool:
        """Whether what equations with bodies give is reached in the order in which they have it."""
        return all(sorted(op.outs) == self.by_reach(op.outs) for op in self.ops if op.bodies)

    def by_reach(self, values: Iterable[int]) -> list[int]:
        """Values in the order in which they are reached, those that nothing leads to last."""
        return sorted(values, key=lambda v: self.reached.get(v, len(self.sizes)))

    def depth_first(self, fused: Fusions | None = None) -> dict[int, int]:
        """The values in the order in which they are reached, with its numbers: as given, or fused, without barriers."""
        reached: dict[int, int] = {}

        def behind(v: int) -> Iterator[int]:
            op = self.maker.get(v)
            if op and fused:
                return iter([op.ins[op.outs.index(v)]] if op.view else fused.ins.get(op, op.ins))
            return iter(op.ins if op else ())

        for root in [*self.results, *chain.from_iterable(op.outs for op in self.ops)]:
            stack = [(root, behind(root))] if root >= 0 and root not in reached else []
            while stack:
                v, ins = stack[-1]
                x = next((x for x in ins if x >= 0 and x not in reached), None)
                if x is not None:
                    stack.append((x, behind(x)))
                    continue
                reached[v] = len(reached)
                stack.pop()
        return reached

    def add_fillings(self, fused: Fusions) -> None:
        """Add arrays of one number that a library reads: it takes in only what nothing else uses."""
        found: dict[kinds.Filling, tuple[set[Op], list[Op]]] = {}
        seen = 0
        for op, parts in fused.parts.items() if any(op.absorbs for op in fused.parts) else ():
            inside = fused.parts_of(op, 0 if op.absorbs else seen)
            seen |= parts
            for part in (op, *inside):
                for key in kinds.fillings(part.eqn, part.ins):
                    users, readers = found.setdefault(key, (set(), []))
                    users.add(part)
                    readers += [op] if op.absorbs and op not in readers else []
        for (dtype, _, shape, number), (users, readers) in found.items():
            if len(users) > 1 and readers:
                made = self.maker.get(number)
                # A number that is fused itself is there for what reads it, as early as may be.
                known = number >= 0 and (made is None or made in fused.parts)
                eqn, ins = readers[0].eqn, [number] if known else []
                (v,) = self.add(Op(eqn, ins, [self.value(ir.ShapedArray(shape, dtype))]))
                fused.users.append(readers)
                fused.parts[self.maker[v]] = 0
                for x in ins:
                    fused.users[x].append(self.maker[v])

    def run_breadth_first(self, fused: Fusions) -> None:
        """Bring the equations into the compiler's order: breadth first, each once its operands are there.

        What is fused runs with the first of its users. Before an equation with bodies its operands are joined in a
        tuple, and then each of its results is taken out of one.
        """
        waits = dict.fromkeys([op for op in self.ops if op in fused.parts], 0)
        after: dict[object, list[Op]] = dict(enumerate(fused.users))
        for op in chain.from_iterable(fused.users):
            waits[op] += 1
        ready = deque[Op | int](op for op in waits if not waits[op])
        places = {op: place for place, op in enumerate(self.ops)}
        late = {op for op in waits if op.bodies or any(self.copied_by(op, fused, places))}
        ran, begun = dict[Op, None](), 0
        joined = set[Op]()

        def note(ended: Iterable[object], chosen: bool = False) -> None:
            for user in chain.from_iterable(after.get(there, ()) for there in ended):
                waits[user] -= 1
                if not waits[user]:
                    ready.append(user)
                    if chosen:  # its operands were joined in the meantime
                        joined.add(user)

        early = self.num_given - self.late
        given: Sequence[int] = range(early)
        if self.wide and self.role == "loop":
            # The last comes first, the carry behind what never changes, and behind all what counts, which is copied.
            fused.hand_on(given, self.counters if self.body and self.body.down else 0)
            others = [*range(self.counters, early)][::-1]
            given = [*sorted(others, key={*self.carried}.__contains__), *range(self.counters)]
        for some in (given, range(early, self.num_given)):
            # A branch that computes again takes its operands from a tuple, in the order in which they are reached, but
            # the last one first: it comes into the place of the barrier, in a list of what uses the tuple.
            *others, last = self.by_reach(filter(self.reached.__contains__, some)) or [-1]
            for v in [last, *others] if self.role == "recomputed" else some:
                if self.wide and v in self.copied:
                    ready.append(v)
                else:
                    note([v])
            while ready:
                step = ready.popleft()
                if isinstance(step, int):
                    note([step])
                elif step in late and step not in joined:
                    joined.add(step)
                    ready.append(step)
                else:
                    parts = fused.parts_of(step, begun)
                    gone = [part for part in reversed(parts) if part not in fused.parts]
                    ran |= dict.fromkeys([*gone, step])
                    begun |= fused.parts[step]
                    ordered = self.ordered and step.bodies
                    outs = sorted(step.outs) if ordered else self.by_reach(step.outs)
                    note([step] if step.bodies else [step, *outs], step.chooses)
                    ready.extend(outs if step.bodies else ())
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

    def copied_by(self, op: Op, fused: Fusions, places: Mapping[Op, int]) -> list[int]:
        """The arrays that an update is not written over, but over copies of them: no numbers, nor what it computes."""
        found = [x for _, x in op.over if op in fused.users[x] and not op.bodies]
        found = [x for x in found if self.filling(self.seen_through(x)) is None]
        return [
            x
            for x in found
            if (self.role != "loop" and self.seen_through(x) < self.num_given)
            or not self.ends(x, op, fused, places)
        ]

    def ends(self, x: int, op: Op, fused: Fusions, places: Mapping[Op, int]) -> bool:
        """Whether all else that reads a value leads to an equation, and so comes before it in any order.

        Where something else may come later, the compiler copies the value for the equation.
        """
        others = {u for u in fused.users[x] if u is not op}
        first = min(map(places.__getitem__, others), default=len(places))
        seen, waiting = {op}, [op]
        while waiting and not others <= seen:
            user = waiting.pop()
            for y in chain.from_iterable(part.operands() for part in (user, *fused.parts_of(user))):
                made = self.maker.get(y)
                if made in fused.parts and made not in seen and places[made] >= first:
                    seen.add(made)
                    waiting.append(made)
        return others <= seen

    def is_own(self, x: int) -> bool:
        """Whether a value is no operand, or a copy of one, and so may be written over."""
        return x >= self.num_given or x in self.copied

    def copy_carry(self, fused: Fusions) -> None:
        """Copy the carry of a loop where a step would write over it too early, by what depends on what alone.

        A part of it is copied when the step begins if not all that reads it leads to what makes the next one; and that
        is copied into its place in the end if it cannot be written there, or may be made before the first copy.
        """
        places = {op: k for k, op in enumerate(self.ops)}
        for k, old in enumerate(self.carried):
            v = self.in_memory(self.results[k], fused)
            if v == old or self.is_updated(v, old, fused, places):
                continue
            made = self.maker.get(v)
            readers = self.readers(old, fused)
            leads = self.leads_to(made, fused) if made and not readers <= {made} else {made}
            handed = any(self.in_memory(w, fused) == old for w in self.results)
            early = handed or not readers <= leads
            if early and (readers or self.ops):
                self.copied[old] = made or next(iter(readers), self.ops[0])
            if early:
                late = leads.isdisjoint(readers)
            else:
                late = made in readers and not self.is_shared(v, old, made, fused)
            if made and (late or kinds.joins_halves(made.eqn)):
                self.results[k] = self.copied_last(v, made, fused)

    def copied_last(self, v: int, made: Op, fused: Fusions) -> int:
        """A copy of a value that an equation makes, which is not fused."""
        self.number = made.number
        self.sizes.append(self.sizes[v])
        (out,) = self.add(Op(made.eqn, [v], [len(self.sizes) - 1], first=made.first))
        fused.users[v].append(self.maker[out])
        fused.users.append([])
        fused.parts[self.maker[out]] = 0
        return out

    def is_updated(self, v: int, old: int, fused: Fusions, places: Mapping[Op, int]) -> bool:
        """Whether a value is another one that is updated, once or several times, in place."""
        while v != old:
            made = self.maker.get(v)
            given = [x for w, x in made.over if w == v] if made in fused.parts else []
            if made is None or not given or not self.ends(given[0], made, fused, places):
                return False
            (v,) = given
        return True

    def is_shared(self, v: int, old: int, made: Op, fused: Fusions) -> bool:
        """Whether what makes a value may write it over one that it reads.

        What branches give is so, but for what one makes of an older compiler's, where it hands no operand on.
        """
        if made.bodies and made.bodies[0].role == "branch":
            return not recomputes_in_branches() or v not in self.made_in_branches(made)
        given = [x for w, x in made.over if w == v] or fused.alike.get(made, [])
        return any(self.in_memory(x, fused) == old for x in given)

    def in_memory(self, v: int, fused: Fusions) -> int:
        """The value that another one is a form of, where nothing is computed."""
        while (made := self.maker.get(v)) and made.view and not fused.parts.get(made):
            v = made.ins[made.outs.index(v)]
        return v

    def readers(self, x: int, fused: Fusions) -> set[Op]:
        """What reads a value, or another form of it."""
        found, waiting = set[Op](), [x]
        while waiting:
            x = waiting.pop()
            for op in fused.users[x]:
                if op.view and not fused.parts[op]:
                    waiting += [v for v, y in zip(op.outs, op.ins, strict=True) if y == x]
                else:
                    found.add(op)
        return found

    def leads_to(self, op: Op, fused: Fusions) -> set[Op]:
        """An equation, and all in memory that it depends on."""
        seen, waiting = {op}, [op]
        while waiting:
            user = waiting.pop()
            for y in chain.from_iterable(part.operands() for part in (user, *fused.parts_of(user))):
                made = self.maker.get(self.in_memory(y, fused))
                if made in fused.parts and made not in seen:
                    seen.add(made)
                    waiting.append(made)
        return seen
