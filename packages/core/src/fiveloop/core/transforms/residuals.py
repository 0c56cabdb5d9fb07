"""The minimum cut: which known values become residuals, and which equations are recomputed from them.

A value is available to the staged half if it was saved, at the cost of its bytes, or if its equation is computed again,
at the cost of its operations, from available operands. Each equation and each value has a node in a flow network.
Equations on the sink's side are computed again, and values there are available:

    source    -> equation   operations computed again        infinite if it must not run again
    equation  -> value      bytes saved instead              infinite if it must not be saved
    operand   -> equation   infinite: it must be available
    value     -> sink       infinite for values that the staged half uses

The cheapest way to make all needed values available is the cut with the least capacity, which is the maximum flow. Of
cuts of equal cost, the cut that computes least again is taken.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from functools import reduce
from math import inf
from operator import or_
from types import MappingProxyType
from typing import Generic, TypeAlias, TypeVar

from fiveloop.core import ir, prims, rules
from fiveloop.core.dataclass import dataclass, replace
from fiveloop.core.primitives.costs import ROOT
from fiveloop.core.transforms.cost import equation_cost, equation_time

P = TypeVar("P", bound=Hashable)


def reaching_the_sink(edges: Sequence[tuple[P, P, int]], source: P, sink: P) -> set[P]:
    """The nodes from which the maximum flow leaves a way to the sink: the fewest that a minimum cut leaves there.

    An edge is two nodes and a capacity.

    >>> sorted(reaching_the_sink([("s", "a", 2), ("a", "b", 3), ("b", "t", 9)], "s", "t"))
    ['a', 'b', 't']
    """
    network = _Residual(edges, source, sink)
    far = network.distances()
    while network.source in far:
        network.block(far)
        far = network.distances()
    return {network.places[node] for node in far}


class _Residual(Generic[P]):
    """What is left of the capacities: of edge 2k, and of edge 2k + 1, the way back along it."""

    def __init__(self, edges: Sequence[tuple[P, P, int]], source: P, sink: P) -> None:
        self.places = [*dict.fromkeys([source, sink, *[p for a, b, _ in edges for p in (a, b)]])]
        self.source, self.sink = 0, 1
        numbers = {place: k for k, place in enumerate(self.places)}
        self.ends: list[int] = []
        self.left: list[int] = []
        self.out: list[list[int]] = [[] for _ in self.places]
        for a, b, capacity in edges:
            for start, end, left in ((a, b, capacity), (b, a, 0)):
                self.out[numbers[start]].append(len(self.ends))
                self.ends.append(numbers[end])
                self.left.append(left)

    def distances(self) -> dict[int, int]:
        """How many edges lead from a node to the sink, for each that has such a way."""
        far = {self.sink: 0}
        nearest = [self.sink]
        for node in nearest:
            for back in self.out[node]:
                before = self.ends[back]
                if before not in far and self.left[back ^ 1]:
                    far[before] = far[node] + 1
                    nearest.append(before)
        return far

    def block(self, far: dict[int, int]) -> None:
        """Send flow along shortest ways until each of them has a full edge."""
        ends, left = self.ends, self.left
        untried = [list(out) for out in self.out]
        way: list[int] = []
        node = self.source
        while True:
            nearer = far[node] - 1
            edges = untried[node]
            while edges and not (left[edges[-1]] and far.get(ends[edges[-1]]) == nearer):
                edges.pop()
            if edges:
                way.append(edges[-1])
                node = ends[edges[-1]]
            elif way:
                node = ends[way.pop() ^ 1]
                untried[node].pop()
            else:
                return
            if node == self.sink:
                del way[self._fill(way) :]
                node = ends[way[-1]] if way else self.source

    def _fill(self, way: Sequence[int]) -> int:
        """Send along a way what its edges have left, and give the place of the first one that is full then."""
        amount = min([self.left[edge] for edge in way])
        for edge in way:
            self.left[edge] -= amount
            self.left[edge ^ 1] += amount
        return next(k for k, edge in enumerate(way) if not self.left[edge])


FINITE_SUM = 2**29
"""What the finite capacities are scaled to add up to, as whole numbers: sums of these are exact."""

INFINITE = 2 * FINITE_SUM
"""A capacity above the sum of all finite ones."""

SOURCE, SINK = "source", "sink"
_Place: TypeAlias = ir.Var | ir.Eqn | str

LANES = 8
"""How many elements a processor computes at once."""

MOVED = 0.1
"""What an operation costs that the known half does not need itself, against one that is done twice.

It is done in the other half in place of this one, unless some of what is made of it is kept.
"""

WORD = 4
"""Bytes that a value takes at least: a byte of each step takes the time of a word on its way there and back."""

CHAINED = 0.2
"""By what a function such as exp in a chain, and a second one, multiply the share of the work that a chain may cost.

XLA puts a chain into each kernel that needs its end, and where it is not by element there, as in a concatenation, it
is not computed many elements at once either. Measured on recurrences of a few functions, doing one of them again took
up to three times as long as keeping it, and doing a chain of them again up to twenty times. Beside a contraction one
is nothing: the share of the hyperbolic tangent of a gated cell of width 16 is .08. `benchmarks/planning/fit.py`.
"""

SEVERAL, PAIR = 256, 2
"""Elements from which on, and kernels beyond which, it matters that each kernel computes a function anew.

Two kernels take no longer than keeping its values: the gradient of an LSTM takes 1.05 times as long if it keeps the
hyperbolic tangent of its cell. In three, a sine made the gradient of a step take 1.35 to 1.7 times as long.
"""

ROUNDS = 4
"""How often chains that are too long are broken and the cut is made anew; what is then too long is kept."""


@dataclass(frozen=True, slots=True)
class Known:
    """An equation of the known half as the cut sees it; `again` if it is done again wherever it is needed.

    `moves` says that the known half needs it for nothing but residuals.
    """

    eqn: ir.Eqn
    verdict: rules.Verdict
    again: bool = False
    moves: bool = False

    def node(self, kernels: int = 1) -> _Node:
        """The node of the equation, if so many kernels would compute its result again."""
        functions = _functions(self.eqn)
        copies = max(kernels - PAIR, 0) if functions and _made(self.eqn) >= SEVERAL else 0
        times = copies + (MOVED if self.moves else 1.0)
        heavy = isinstance(self.verdict, rules.Weigh) and self.verdict.heavy
        adds = times * (equation_time(self.eqn) if heavy else work_of(self.eqn))
        work, kept = self._prices(adds)
        return _Node(self.eqn, adds, functions if times >= 1.0 else 0, work, kept)

    def _prices(self, adds: float) -> tuple[float | None, float | None]:
        """The price of doing it again, and that of keeping a byte of it; None is infinite."""
        if self.again:
            return 0, None
        if not isinstance(self.verdict, rules.Weigh):
            return None, 0
        acts = self.eqn.effects or any(
            a.aval.accumulates for a in (*self.eqn.invars, *self.eqn.outvars)
        )
        if acts or not (self.verdict.heavy or equation_cost(self.eqn).again):
            return None, self.verdict.memory_cost
        return self.verdict.compute_cost * adds, self.verdict.memory_cost


@dataclass(frozen=True, slots=True)
class _Node:
    """An equation, what it adds, the prices of doing it again and of keeping a byte of it; None is infinite."""

    eqn: ir.Eqn
    adds: float
    functions: int
    work: float | None
    kept: float | None


def _functions(eqn: ir.Eqn) -> int:
    """How many functions such as exp, or square roots, a light equation computes for each element."""
    cost = equation_cost(eqn)
    return cost.flops // (ROOT * max(_made(eqn), 1)) if cost.again else 0


def akin(eqns: Iterable[ir.Eqn], others: Set[ir.Eqn]) -> set[ir.Eqn]:
    """The functions of the operands of others, as cosine and sine, of few elements.

    Together the two cost hardly more than one of them: on a processor's scalars they share what reduces an angle.
    Computed apart, they made the gradient of a sum of sines take 1.14 to 1.26 as long.
    """
    operands = {tuple(e.invars) for e in others if _functions(e)}
    return {e for e in eqns if tuple(e.invars) in operands and _made(e) < LANES and _functions(e)}


def minimum_cut(
    known: Sequence[Known],
    needed: Iterable[ir.Var],
    at_hand: Set[ir.Var],
    work: int,
    kernels: Mapping[ir.Var, int] = MappingProxyType({}),
) -> set[ir.Eqn]:
    """The equations to do again, so that `needed` can be had from what is at hand and what is kept.

    A chain of equations done again may cost only a share of `work`, which is what the whole body does. `kernels` are
    those of the backward pass that use a value, as `kernels_of` gives them.
    """
    wanted = [v for v in needed if v not in at_hand]
    nodes = _reached(known, wanted, at_hand, kernels)
    weighs = [k.verdict for k in known if isinstance(k.verdict, rules.Weigh)]
    light = {n.eqn for n in nodes if n.work}
    if not light:
        return set()
    limit = min(w.share for w in weighs) * work
    again: set[ir.Eqn] = set()
    over: set[ir.Eqn] = set()
    for _ in range(ROUNDS):
        nodes = [replace(n, work=None) if n.eqn in over else n for n in nodes]
        network = _network(nodes, wanted, at_hand, weighs[0].memory_cost)
        again = light & network.on_the_sinks_side()
        over = _over(nodes, again, limit)
        if not over:
            break
    return again - over


def _over(nodes: Sequence[_Node], again: set[ir.Eqn], limit: float) -> set[ir.Eqn]:
    """The ends of chains that cost more than allowed, measured along the longest path from saved values."""
    length: dict[ir.Var, tuple[float, int]] = {}
    found: set[ir.Eqn] = set()
    for node in nodes:
        if node.eqn in again:
            so_far = [length[v] for v in ir.used_vars(node.eqn.invars) if v in length]
            total = max([work for work, _ in so_far], default=0.0) + node.adds
            functions = max([count for _, count in so_far], default=0) + node.functions
            if total > limit * CHAINED ** min(functions, 2):
                found.add(node.eqn)
                total, functions = 0.0, 0
            length.update(dict.fromkeys(node.eqn.outvars, (total, functions)))
    return found


def is_light_chain(chain: Sequence[Known], kept: ir.Dim, work: int) -> bool:
    """Whether equations, of a body that does so much work, are done again rather than keep so many bytes."""
    nodes = [k.node() for k in chain]
    weighs = [k.verdict for k in chain if isinstance(k.verdict, rules.Weigh)]
    if any(n.work is None for n in nodes) or len(weighs) < len(nodes) or not ir.is_constant(kept):
        return False
    if sum(n.work or 0.0 for n in nodes) > kept * min([w.memory_cost for w in weighs], default=0.0):
        return False
    return not _over(nodes, {n.eqn for n in nodes}, min(w.share for w in weighs) * work)


@ir.once_per_jaxpr
def body_work(jaxpr: ir.Jaxpr) -> int:
    """The operations of a jaxpr; 0 where a size is no number, so that there is nothing to compare."""
    atoms = [a for e in jaxpr.eqns for a in (*e.invars, *e.outvars)]
    if not all(ir.is_constant(d) for a in atoms for d in a.aval.shape):
        return 0
    return sum(map(work_of, jaxpr.eqns))


def work_of(eqn: ir.Eqn) -> int:
    """The operations of an equation, one an element at least; few elements take the time of a whole vector."""
    made = _made(eqn)
    work = max(equation_cost(eqn).flops, made)
    return work * LANES // made if 0 < made < LANES else work


def _made(eqn: ir.Eqn) -> int:
    """The elements of an equation's largest result."""
    sizes = [ir.size_of(v.aval.shape) for v in eqn.outvars if not v.aval.accumulates]
    return max(sizes, default=0)


def _reached(
    known: Sequence[Known],
    wanted: Iterable[ir.Var],
    at_hand: Set[ir.Var],
    kernels: Mapping[ir.Var, int],
) -> list[_Node]:
    """The equations that what is wanted is made from, as far as they could be done again."""
    need = {v: kernels.get(v, 0) for v in wanted}
    found: list[_Node] = []
    for k in reversed(known):
        if not need.keys().isdisjoint(k.eqn.outvars):
            used_in = reduce(or_, [need.get(v, 0) for v in k.eqn.outvars])
            node = k.node(max(used_in.bit_count(), 1))
            found.append(node)
            if node.work is not None:
                for v in ir.used_vars(k.eqn.invars) - at_hand:
                    need[v] = need.get(v, 0) | used_in
    return found[::-1]


def kernels_of(staged: Iterable[ir.Eqn], unknown: Set[ir.Var]) -> dict[ir.Var, int]:
    """For each known value that linear equations use: the kernels that use it in the backward pass, as bits.

    XLA fuses what works by element into the kernel that needs it, into each of several. The backward pass goes from
    what a linear equation gives to what it is given. So a value that it multiplies by is in the kernels of all
    cotangents that it leads to by element, and computed again in each of them. Terms that are added get one cotangent.
    """
    leads: dict[ir.Var, int] = {}
    alike: dict[ir.Var, int] = {}
    found: dict[ir.Var, int] = {}
    for k, eqn in enumerate(staged):
        linear = [v for v in ir.vars_in_order(eqn.invars) if v in unknown]
        known = ir.used_vars(eqn.invars).difference(linear)
        passes = rules.is_view(eqn) or rules.by_element_rules.find(eqn.primitive)
        kernels = own = 1 << k
        if passes or eqn.primitive is prims.reduce_sum_p:
            own = next((alike[v] for v in linear if v in alike), own)
            each = [own if v in alike else leads.get(v, own) for v in linear]
            kernels = reduce(or_, each, 0)
        leads.update(dict.fromkeys(eqn.outvars, kernels))
        if kernels == own and not (passes and known):
            alike.update(dict.fromkeys(eqn.outvars, own))
        for v in known if linear else ():
            found[v] = found.get(v, 0) | kernels
    return found


def _room(v: ir.Var) -> float:
    size = prims.bytes_of([v.aval])
    return max(size, WORD) if ir.is_constant(size) else size


class _Network:
    """Capacities between equations, values and the sink, and of what the source supplies; parallel ones add up."""

    def __init__(self) -> None:
        self.supply: dict[_Place, float] = defaultdict(float)
        self.edges: dict[_Place, dict[_Place, float]] = defaultdict(lambda: defaultdict(float))

    def edge(self, start: _Place, end: _Place, capacity: float | None) -> None:
        out = self.supply if start is SOURCE else self.edges[start]
        out[end] += inf if capacity is None else capacity

    def on_the_sinks_side(self) -> set[_Place]:
        """The fewest nodes that a minimum cut can leave with the sink."""
        folded = self._fold()
        side = self._reaching_the_sink()
        for node, end, supply_is_less in reversed(folded):
            if supply_is_less and end in side:
                side.add(node)
        return side

    def _fold(self) -> list[tuple[_Place, _Place, bool]]:
        """Replace a node that only the source feeds, and that feeds a single node, by an edge from the source to it.

        So a chain, which would take the flow as many rounds as it is long, is gone before. Gives the nodes in the
        order of folding, each with the node that it fed, and whether the cheapest cut between is before it.
        """
        feeders = Counter(end for ends in self.edges.values() for end in ends)
        waiting = [n for n in self.edges if not feeders[n]]
        folded: list[tuple[_Place, _Place, bool]] = []
        while waiting:
            node = waiting.pop()
            if len(self.edges[node]) != 1:
                continue
            ((end, capacity),) = self.edges.pop(node).items()
            supply = self.supply.pop(node, 0.0)
            self.supply[end] += min(supply, capacity)
            folded.append((node, end, supply < capacity))
            feeders[end] -= 1
            if not feeders[end] and end in self.edges:
                waiting.append(end)
        return folded

    def _reaching_the_sink(self) -> set[_Place]:
        """The nodes from which the maximum flow leaves a way to the sink."""
        self.supply.pop(SINK, None)
        triples: list[tuple[_Place, _Place, float]]
        triples = [(SOURCE, end, c) for end, c in self.supply.items()]
        triples += [(start, end, c) for start, out in self.edges.items() for end, c in out.items()]
        total = sum(c for _, _, c in triples if c < inf)
        scale = FINITE_SUM / max(total, 1.0)
        whole = [(a, b, INFINITE if c == inf else round(c * scale)) for a, b, c in triples]
        return reaching_the_sink(whole, SOURCE, SINK)


def _network(
    nodes: Sequence[_Node], wanted: ir.Vars, at_hand: Set[ir.Var], memory_cost: float
) -> _Network:
    network = _Network()
    inputs: dict[ir.Var, None] = dict.fromkeys(wanted)
    for v in wanted:
        network.edge(v, SINK, None)
    for node in nodes:
        network.edge(SOURCE, node.eqn, node.work)
        for v in node.eqn.outvars:
            kept = None if node.kept is None else node.kept * _room(v)
            network.edge(node.eqn, v, kept)
        if node.work is not None:
            for v in ir.vars_in_order(node.eqn.invars):
                if v not in at_hand and not v.aval.accumulates:
                    network.edge(v, node.eqn, None)
                    inputs[v] = None
    # What comes from outside can only be kept.
    made = {v for node in nodes for v in node.eqn.outvars}
    for v in inputs:
        if v not in made:
            network.edge(SOURCE, v, memory_cost * _room(v))
    return network
