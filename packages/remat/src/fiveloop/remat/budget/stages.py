"""Stages: a differentiated jaxpr as a sequence of parts, divided where the fewest bytes are alive."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from functools import cache, cached_property, partial, reduce
from itertools import accumulate, chain, pairwise, takewhile

import numpy as np

from fiveloop.core import Jaxpr, extend, ir, prims, rules, transforms, util
from fiveloop.core.dataclass import dataclass
from fiveloop.core.lower.fingerprint import Form, form_of
from fiveloop.core.transforms import policies
from fiveloop.remat.budget.equal import Equal
from fiveloop.remat.budget.refs import without_local_refs
from fiveloop.remat.makers import states_of

MOST = 32
"""How many stages there are at most: plans are searched among all ways to group them."""

WORTH = 1.4
"""How many times the bytes at a place must be alive on both sides of it for it to be a place to cut."""

TINY = 0.1
"""What share of the mean work between places lies at least between those that are chosen, if there are too many."""

EDGES = 2
"""How many places a class has at most that may be those of the first or the last of equal parts."""

BODY = 4
"""As how many equations one counts that is in a body, which is split, planned and discharged by itself."""

REPEATS = 2 / 3
"""What share of the stages must be equal to those a period later for the program to be divided in groups of these."""

ALIKE = 0.98
"""Places to cut whose worth differs by less than this ratio are taken or left together."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of a jaxpr as a jaxpr of its own, which equal parts share.

    jaxpr : [*ins] -> [*outs]
    """

    jaxpr: Jaxpr
    ins: tuple[ir.Var, ...]
    outs: tuple[ir.Var, ...]


class Program:
    """A jaxpr whose equations are put in stages; `unknown` are the variables that depend on tangents.

    `cuts` are the positions between equations where a stage ends, the ends of the jaxpr included. `late` says which
    variables are unknown, if that is known of a program of the same form.
    """

    def __init__(
        self,
        jaxpr: Jaxpr,
        unknown_in: util.Mask,
        most: int = MOST,
        cuts: Sequence[int] = (),
        least: float = 0.0,
        late: util.Mask = (),
    ) -> None:
        self.most = most
        self.least = least
        whole = Equal().shared(without_local_refs(without_calls(jaxpr)))
        self.jaxpr, self.num_parts = parts_first(whole)
        self.unknown = (
            set(util.select_by(late, _variables(self.jaxpr)))
            if late
            else unknown_vars(self.jaxpr, unknown_in)
        )
        self.made: dict[ir.Var, int] = {}
        self.last: dict[ir.Var, int] = {}
        for k, eqn in enumerate(self.jaxpr.eqns):
            self.made.update(dict.fromkeys(eqn.outvars, k))
            self.last.update(dict.fromkeys(ir.used_vars(eqn.invars), k))
        end = len(self.jaxpr.eqns)
        self.last.update(dict.fromkeys(ir.used_vars(self.jaxpr.outvars), end))
        self.equal = _Likeness(_params, ir.key_of)
        self.alike = _Likeness(_params_but_places, lambda a: a.aval)
        self._kind = cache(self._kind_of)
        self.cuts = tuple(cuts) or self._with_last_equal((0, *self._chosen(), end))
        self._shared: dict[Hashable, Jaxpr] = {}
        self._alike: dict[Hashable, Jaxpr] = {}
        self._like: dict[Jaxpr, Jaxpr] = {}
        self._stages: dict[tuple[int, int], Stage] = {}
        if not cuts:
            self.cuts = self._with_first_equal()
            self._stages.clear()

    def stage(self, first: int, last: int) -> Stage:
        """The stages from `first` to before `last` as one."""
        if (first, last) not in self._stages:
            start, stop = self.cuts[first], self.cuts[last]
            self._stages[first, last] = self.part(self.jaxpr.eqns[start:stop], stop)
        return self._stages[first, last]

    @property
    def size(self) -> int:
        """How many stages there are."""
        return len(self.cuts) - 1

    @property
    def late(self) -> util.Mask:
        """Which variables are unknown, in order."""
        return tuple([v in self.unknown for v in _variables(self.jaxpr)])

    def blocks(self) -> list[tuple[int, int]]:
        """Runs of stages that are one part of the program, as far as what is alive between them tells.

        A run ends where no more is alive than at the places beside it, and some are equal. Equal neighbours are parts
        of their own. The last stage is what is behind all blocks; the first is before them, or a part of the first.
        """
        alive = [self.alive[cut] for cut in self.cuts]
        kinds = [self.weighed(k, k + 1) for k in range(self.size)]
        ends = [
            k
            for k in range(2, self.size - 1)
            if alive[k - 1] >= alive[k] <= alive[k + 1] or kinds[k] in (kinds[k - 1], kinds[k + 1])
        ]
        ends = [*ends, self.size - 1]
        found = [*pairwise([1, *ends])]
        if len({self.weighed(*run) for run in found}) == len(found):
            return []
        firsts = [(k, ends[0]) for k in (0, 2)]
        return [(a, b) for a, b in [*firsts, *found] if b > a + 1]

    def groups(self) -> list[list[tuple[int, int]]]:
        """Ways to divide equal parts of the program evenly: runs of so many parts each, but for the last ones."""
        kinds = [self.weighed(k, k + 1) for k in range(self.size)]
        for period in range(1, self.size // 4 + 1):
            equal = sum(a == b for a, b in zip(kinds, kinds[period:], strict=False))
            if equal > REPEATS * (self.size - period):
                lengths = range(period, self.size // 2 + 1, period)
                return [[(k, k + n) for k in range(0, self.size - n, n)] for n in lengths if n > 1]
        return []

    def weighed(self, first: int, last: int) -> tuple[Jaxpr, util.Mask]:
        """The jaxpr of some stages, or one that costs the same, and which of its inputs are unknown."""
        stage = self.stage(first, last)
        jaxpr = stage.jaxpr
        if jaxpr not in self._like:
            outs = ir.vars_in_order(jaxpr.outvars)
            key = _structure(jaxpr.eqns, jaxpr.invars, outs, self.alike)
            self._like[jaxpr] = self._alike.setdefault(key, jaxpr)
        return self._like[jaxpr], tuple(v in self.unknown for v in stage.ins)

    def part(self, eqns: Sequence[ir.Eqn], stop: int) -> Stage:
        """Equations as a jaxpr that gives what is used at `stop` or after it."""
        eqns, ins, outs = self._part(eqns, stop)
        key = _structure(eqns, ins, outs, self.equal)
        if key not in self._shared:
            self._shared[key] = Jaxpr(ins, eqns, outs, self.jaxpr.name)
        return Stage(self._shared[key], ins, outs)

    def _part(
        self, eqns: Sequence[ir.Eqn], stop: int
    ) -> tuple[Sequence[ir.Eqn], tuple[ir.Var, ...], tuple[ir.Var, ...]]:
        """Equations, what they use of others, and what they make that is used at `stop` or after it."""
        made = [v for eqn in eqns for v in eqn.outvars]
        inside = set(made)
        used = ir.vars_in_order([a for eqn in eqns for a in eqn.invars])
        if len(eqns) == len(
            self.jaxpr.eqns
        ):  # as people write it: the compiler's order follows that of operands
            used = [v for v in self.jaxpr.invars if v in self.last]
        ins = tuple(v for v in used if v not in inside)
        return eqns, ins, tuple(v for v in made if self.last.get(v, -1) >= stop)

    def crossing(self) -> np.ndarray:
        """For stages s and t the bytes of known values made in stages [s, t) and used later."""
        size = self.size
        found = np.zeros((size + 1, size + 1), np.int64)
        for v, k in self.made.items():
            first, last = self._stage_at(k), self._stage_at(self.last.get(v, k))
            if first < last and v not in self.unknown:
                found[: first + 1, first + 1 : last + 1] += size_of(v)
        return found

    def _stage_at(self, position: int) -> int:
        """The stage of an equation; results of the jaxpr are used after the last one."""
        return bisect_right(self.cuts, position) - 1

    def cotangents(self) -> tuple[list[int], list[int]]:
        """The bytes of the cotangents that are there before each stage is gone back through, and while it is.

        A value that several stages use gets a cotangent from each; they are added when all are there, but those of
        elements, which are added in place. Of an argument that one stage uses the cotangent is a result.
        """
        size = self.size
        before, during = [0] * size, [0] * size
        by_elements = {v for e in self.jaxpr.eqns for v in transforms.elements_read(e)}
        for v, stages in self._users.items():
            maker = self._stage_at(self.made[v]) if v in self.made else -1
            if (maker < 0 and len(stages) == 1) or max(stages) <= maker:
                continue
            for k in range(max(maker, 0), min(max(stages) + 1, size)):
                later = sum(s > k for s in stages)
                here = size_of(v) * (min(later, 1) if v in by_elements else later)
                before[k] += here
                during[k] += here + size_of(v) * (k in stages and maker < k)
        return before, during

    def added(self) -> list[int]:
        """The bytes of the cotangents of earlier values that each stage makes, but for one of each value.

        A sum of cotangents is fused, so that they are all there until the last one is.
        """

        def of_stage(start: int, stop: int) -> int:
            uses = Counter(v for e in self.jaxpr.eqns[start:stop] for v in ir.used_vars(e.invars))
            early = (v for v in uses if v in self.unknown and self.made.get(v, -1) < start)
            return sum((uses[v] - 1) * size_of(v) for v in early)

        return [of_stage(*ends) for ends in pairwise(self.cuts)]

    def ends_of_skips(self) -> set[int]:
        """The stages that use an unknown value of a stage before the last one."""
        made = {v: self._stage_at(k) for v, k in self.made.items()}
        return {k for v, stages in self._users.items() for k in stages if made.get(v, k) < k - 1}

    @cached_property
    def _users(self) -> dict[ir.Var, set[int]]:
        """The stages that use each unknown value; one that is a result is used after the last."""
        found: dict[ir.Var, set[int]] = {}
        for k, eqn in enumerate([*self.jaxpr.eqns, None]):
            atoms = self.jaxpr.outvars if eqn is None else eqn.invars
            for v in self.unknown.intersection(ir.used_vars(atoms)):
                found.setdefault(v, set()).add(self._stage_at(k))
        return found

    def _chosen(self) -> list[int]:
        """Where to cut: at the places that are worth most, fewer than `most` of them."""
        chosen: list[int] = []
        classes = _places(self.alive, self._during, len(self.jaxpr.eqns))
        for k, places in enumerate(classes):
            more = self._apart(self.least * self._work[-1], chosen, places)
            if len(more) >= self.most and len(chosen) <= self.most // 3:
                # The ends of the first and of the last of equal parts are worth less than the others.
                ends = takewhile(lambda c: len(c) <= EDGES, classes[k + 1 :])
                return self._thinned(sorted(chain(more, *ends)))
            if len(more) >= self.most:
                return chosen if self._repeats(chosen) else self._large(classes) or chosen
            chosen = more
        return chosen

    def _repeats(self, places: Sequence[int]) -> bool:
        """Whether most of the parts between places are equal to others."""
        kinds = {self._kind(a, b) for a, b in pairwise([0, *places, len(self.jaxpr.eqns)])}
        return 2 * len(kinds) <= len(places)

    def _large(self, classes: Sequence[Sequence[int]]) -> list[int]:
        """The places of all classes that some work lies between, unless there are too many."""
        mean = self._work[-1] / (1 + sum(map(len, classes)))
        found = reduce(partial(self._apart, TINY * mean), classes, list[int]())
        return found if len(found) < self.most else []

    def _apart(self, least: float, chosen: Sequence[int], places: Sequence[int]) -> list[int]:
        """The places that are chosen, and those of others that at least so much work lies between."""
        found = [0, *chosen, len(self.jaxpr.eqns)]
        for place in places:
            here = bisect_right(found, place)
            before, after = (self._work[found[k]] for k in (here - 1, here))
            if min(self._work[place] - before, after - self._work[place]) >= least:
                found.insert(here, place)
        return found[1:-1]

    @cached_property
    def _work(self) -> list[int]:
        """The operations that are done before each equation."""
        costs = (transforms.equation_cost(eqn).flops for eqn in self.jaxpr.eqns)
        return [0, *accumulate(costs)]

    def _thinned(self, places: Sequence[int]) -> list[int]:
        """Every so manieth place, so that the parts between them differ as little as may be."""
        ends = self._with_last_equal((0, *places, len(self.jaxpr.eqns)))
        places = ends[1:-1]
        kinds = [self._kind(first, stop) for first, stop in pairwise(ends)]
        sizes = [stop - first for first, stop in pairwise(ends)]
        least = -(-len(places) // (self.most - 1))

        def work(cut: tuple[int, int]) -> int:
            """How many equations there are in parts that differ."""
            begin, stride = cut
            starts = [0, *range(begin, len(kinds), stride), len(kinds)]
            return sum({tuple(kinds[a:b]): sum(sizes[a:b]) for a, b in pairwise(starts)}.values())

        strides = range(least, 2 * least)
        begin, stride = min(((b, s) for s in strides for b in (1, s)), key=work)
        return list(places[begin - 1 :: stride])

    def _with_last_equal(self, cuts: Sequence[int]) -> tuple[int, ...]:
        """The cuts, and one more where the last part begins with a part that is equal to another.

        Little is alive behind the last of equal blocks, so that the end of it is not worth much as a place.
        """
        *_, last, end = cuts
        equal = {self._kind(a, b) for a, b in pairwise(cuts)}
        sizes = {b - a for a, b in pairwise(cuts) if b - a < end - last}
        more = [last + n for n in sorted(sizes) if self._kind(last, last + n) in equal]
        return (*cuts[:-1], *more[-1:], end)

    def _with_first_equal(self) -> tuple[int, ...]:
        """The cuts, and one more where the first of equal blocks begins, if its stage holds what is before it, too.

        Where its operands have no tangents, some of what the next block computes is not there.
        """
        ends = [*dict.fromkeys(last for _, last in self.blocks())]
        if len(ends) < 2:
            return self.cuts
        ours, theirs = (
            self._values(self.cuts[a], self.cuts[b]) for a, b in ((0, ends[0]), ends[:2])
        )
        place = self.cuts[ends[0]]
        left = iter(reversed([kind for _, kind in theirs]))
        for k, kind in reversed(ours):
            if kind not in left:  # goes on in what is left, up to this kind
                break
            place = k
        return tuple(sorted({*self.cuts, place})) if next(left, None) is None else self.cuts

    def _values(self, first: int, stop: int) -> list[tuple[int, Hashable]]:
        """The equations of values, no tangents, with their places."""
        eqns = enumerate(self.jaxpr.eqns[first:stop], first)
        return [
            (k, (e.primitive, *[v.aval for v in e.outvars]))
            for k, e in eqns
            if self.unknown.isdisjoint(e.outvars)
        ]

    def _kind_of(self, first: int, stop: int) -> Hashable:
        """What some equations cost; equal for alike ones."""
        return hash(_structure(*self._part(self.jaxpr.eqns[first:stop], stop), self.alike))

    @cached_property
    def alive(self) -> list[float]:
        """The bytes of values and tangents alive before each equation; infinite where a mutable value is."""
        change = [0.0] * (len(self.jaxpr.eqns) + 2)
        barred = [0] * (len(self.jaxpr.eqns) + 2)
        for v, k in self.made.items():
            stop = self.last.get(v, k)
            if k < self.num_parts:
                continue
            if v.aval.accumulates:
                barred[k + 1] += 1
                barred[stop + 1] -= 1
            else:
                change[k + 1] += size_of(v)
                change[stop + 1] -= size_of(v)
        alive, here, bars = list[float](), 0.0, 0
        for up, bar in zip(change[:-1], barred[:-1], strict=True):
            here, bars = here + up, bars + bar
            alive.append(float("inf") if bars else here)
        return alive

    @cached_property
    def _during(self) -> list[float]:
        """The bytes alive while each equation runs that runs others, a loop's those of all steps; 0 for others."""
        found = []
        for eqn, before in zip(self.jaxpr.eqns, self.alive, strict=False):
            inside = [body.trips * _made_at_once(body.jaxpr) for body in rules.bodies_of(eqn)]
            found.append(before + max(inside) if inside else 0.0)
        return found


@ir.once_per_jaxpr
def _made_at_once(jaxpr: Jaxpr) -> int:
    """The most bytes of what a jaxpr makes that are alive at once."""
    return most_alive(jaxpr, {v for eqn in jaxpr.eqns for v in eqn.outvars})


def most_alive(jaxpr: Jaxpr, which: set[ir.Var]) -> int:
    """The most bytes of some variables that are alive at once."""
    last = {v: k for k, eqn in enumerate(jaxpr.eqns) for v in ir.used_vars(eqn.invars)}
    change = [0] * (len(jaxpr.eqns) + 2)
    for k, eqn in enumerate(jaxpr.eqns):
        for v in which.intersection(eqn.outvars):
            change[k] += size_of(v)
            change[last.get(v, k) + 1] -= size_of(v)
    return max(accumulate(change))


@ir.once_per(lambda jaxpr, in_body=BODY: (jaxpr, in_body))
def effort(jaxpr: Jaxpr, in_body: int = BODY) -> int:
    """How many equations a jaxpr has, at any depth, where one in a body counts as so many."""
    inner = (effort(j, in_body) for eqn in jaxpr.eqns for j in ir.jaxprs_in(eqn.params))
    return len(jaxpr.eqns) + in_body * sum(inner)


def size_of(v: ir.Atom) -> int:
    """The bytes of a value; a mutable one takes none of its own."""
    return 0 if v.aval.accumulates else int(prims.bytes_of([v.aval]))


def without_calls(jaxpr: Jaxpr) -> Jaxpr:
    """The jaxpr with the equations of the jaxprs that it calls in their place."""
    return ir.without_calls(jaxpr, lambda eqn: eqn.primitive is extend.closed_call_p)


def parts_first(jaxpr: Jaxpr) -> tuple[Jaxpr, int]:
    """The jaxpr with the equations first that take parts of inputs of which several are taken, and how many there are.

    A stage that took such a part would hand a cotangent of the whole input back, and each stage its own.
    """
    givers = set[ir.Atom](jaxpr.invars)
    takes = [e for e in jaxpr.eqns if e.primitive is prims.take_p and len(e.invars) == 1]
    number = Counter[ir.Atom](e.invars[0] for e in takes if e.invars[0] in givers and not e.effects)
    parts = [e for e in takes if number[e.invars[0]] > 1]
    first = set(parts)
    others = [e for e in jaxpr.eqns if e not in first] if parts else jaxpr.eqns
    return (jaxpr.replace(eqns=[*parts, *others]) if parts else jaxpr), len(parts)


def unknown_vars(jaxpr: Jaxpr, unknown_in: util.Mask) -> set[ir.Var]:
    """The variables that depend on unknown inputs; of an equation that can be cut, those that its rule says."""
    found = set(util.select_by(unknown_in, jaxpr.invars))
    for eqn in jaxpr.eqns:
        unknown = tuple([isinstance(a, ir.Var) and a in found for a in eqn.invars])
        if not any(unknown):
            continue
        rule = rules.split_rules.find(eqn.primitive)
        if rule is None or all(unknown):
            found |= {*eqn.outvars, *ir.changed_refs(eqn)}
        elif _is_nest(eqn):
            (body,) = rules.bodies_of(eqn)
            late = unknown_within(body.jaxpr, unknown)
            found |= {
                v for v, x in zip(eqn.outvars, states_of(eqn, body), strict=True) if x in late
            }
        else:
            inst = (True,) * len(unknown)
            cut = transforms.cut_once(rule, policies.SAVE_EVERYTHING, unknown, inst, eqn)
            found |= set(util.select_by(cut.out_unknown, eqn.outvars))
    return found


def _is_nest(eqn: ir.Eqn) -> bool:
    """Whether an equation is a loop over Refs of its own that does nothing but compute, and run such loops.

    What is unknown of its results is then what depends on unknown operands.
    """
    bodies = rules.bodies_of(eqn)
    if len(bodies) != 1 or bodies[0].role != "loop" or bodies[0].open or bodies[0].slots:
        return False
    (body,) = bodies
    own = not any(a.aval.accumulates for a in eqn.invars) and not body.jaxpr.outvars
    return own and len(states_of(eqn, body)) == len(eqn.outvars) and _holds_nests(body.jaxpr)


@ir.once_per_jaxpr
def _holds_nests(body: Jaxpr) -> bool:
    return all(not rules.split_rules.find(e.primitive) or _is_nest(e) for e in body.eqns)


@ir.once_per_jaxpr
def unknown_within(body: Jaxpr, unknown: util.Mask) -> frozenset[ir.Var]:
    """The variables of a loop's body that depend on unknown operands of the loop, in some step."""
    last = min(len(unknown), len(body.invars))
    mask = (False,) * (len(body.invars) - last) + tuple(unknown[len(unknown) - last :])
    while True:
        found = unknown_vars(body, mask)
        more = tuple(m or v in found for m, v in zip(mask, body.invars, strict=True))
        if more == mask:
            return frozenset(found)
        mask = more


def _variables(jaxpr: Jaxpr) -> list[ir.Var]:
    """The inputs, and what the equations make."""
    return [*jaxpr.invars, *[v for eqn in jaxpr.eqns for v in eqn.outvars]]


def _places(alive: Sequence[float], during: Sequence[float], end: int) -> list[list[int]]:
    """The positions where less is alive than around them, in classes: those that most rises around them come first.

    How much a place is worth is the ratio between the lower of the highest points on its two sides, as far as a lower
    place, and what is alive there. It is the same for the same places of repeated parts.
    """
    places = [
        k
        for k in range(1, end)
        if max(alive[k - 1], during[k - 1]) > alive[k] <= max(alive[k + 1], during[k])
    ]
    ends = [0, *places, end]
    peaks = [max(chain(alive[a : b + 1], during[a:b])) for a, b in pairwise(ends)]
    levels = [alive[k] for k in places]
    before = _highest(levels, peaks[:-1])
    after = _highest(levels[::-1], peaks[:0:-1])[::-1]
    worth = [min(a, b) / (level + 1) for a, b, level in zip(before, after, levels, strict=True)]
    classes: list[list[int]] = []
    last = 0.0
    found = [pair for pair in zip(worth, places, strict=True) if pair[0] > WORTH]
    for value, place in sorted(found, key=lambda pair: -pair[0]):
        if not classes or value < last * ALIKE:
            classes.append([])
        classes[-1].append(place)
        last = value
    return classes


def _highest(levels: Sequence[float], peaks: Sequence[float]) -> list[float]:
    """For each level the highest of the peaks between it and the last lower one; a peak comes before each level."""
    found: list[float] = []
    lower: list[tuple[float, float]] = []
    for level, peak in zip(levels, peaks, strict=True):
        while lower and lower[-1][0] >= level:
            peak = max(peak, lower.pop()[1])
        found.append(peak)
        lower.append((level, peak))
    return found


class _Likeness(dict[ir.Eqn, int]):
    """Numbers of equations, the same for alike ones: `params` and `literal` give what must be equal, beside types."""

    def __init__(
        self, params: Callable[[ir.Eqn], Hashable], literal: Callable[[ir.Literal], Hashable]
    ) -> None:
        super().__init__()
        self.params = params
        self.literal = literal
        self.kinds: dict[Hashable, int] = {}

    def __missing__(self, eqn: ir.Eqn) -> int:
        ins = [self.literal(a) if isinstance(a, ir.Literal) else a.aval for a in eqn.invars]
        kind = (eqn.primitive, self.params(eqn), *ins, None, *[v.aval for v in eqn.outvars])
        self[eqn] = self.kinds.setdefault(kind, len(self.kinds))
        return self[eqn]


def _structure(
    eqns: Sequence[ir.Eqn], ins: Sequence[ir.Var], outs: Sequence[ir.Var], same: _Likeness
) -> Hashable:
    """What equations compute, or what that costs, whatever their variables are."""
    number: dict[ir.Atom, int] = {v: k for k, v in enumerate(ins)}
    row: list[Hashable] = [v.aval for v in ins]
    for eqn in eqns:
        row.append(same[eqn])
        row += [number.get(a, -1) for a in eqn.invars]
        for v in eqn.outvars:
            number[v] = len(number)
    return (*row, *[number[v] for v in outs])


def _params(eqn: ir.Eqn) -> Hashable:
    """The params; jaxprs among them may be traced anew, and hold the same arrays."""
    params: Hashable = eqn.params
    try:
        hash(params)
    except TypeError:
        return id(params)
    form = _form_of_params(eqn)
    return params if form is None else (form.key, *map(id, form.consts))


def _form_of_params(eqn: ir.Eqn) -> Form | None:
    """The form of an equation that holds jaxprs."""
    inner = next(iter(ir.jaxprs_in(eqn.params)), None)
    if inner is None:
        return None
    alone = Jaxpr(ir.vars_in_order(eqn.invars), [eqn], eqn.outvars)
    return inner.remember(("form", eqn.params), lambda: form_of(alone))


def _params_but_places(eqn: ir.Eqn) -> Hashable:
    """The params; of what reads elements of an array not which ones."""
    return (
        tuple(map(type, eqn.params.indexer.entries))
        if eqn.primitive is prims.take_p
        else _params(eqn)
    )
