"""Residuals that need not be saved: read from the states of the loop, or from a residual of the step before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

from fiveloop.core import Jaxpr, Value, ad, ir, prims, transforms
from fiveloop.core.dataclass import dataclass
from fiveloop.loops.analysis.accesses import read_whole
from fiveloop.loops.analysis.slots import Carried, Found, Part, parts_of_wholes
from fiveloop.loops.primitives.for_loop import ForParams
from fiveloop.loops.record import Decision
from fiveloop.state import AbstractRef

STEP = "passthrough"
MOST_TERMS = 8
"""Terms that a step's own contraction adds up, beyond which it is no sum of products that is sunk."""
MOST_KEPT = 16
"""How many times the room of a sum the factors of its products may take that have not been kept anyway."""
FEW, LITTLE, LIGHT = 2, 1 << 20, 250
"""Elements of a carried value, bytes of its stack, and operations of a step, up to which keeping it is faster than
looking one step back. A longer step, as one with a function such as exp, does that beside its work.

Measured on scans of 1,000 to 100,000 steps, on two versions of jaxlib: with one element the gradient of a running
maximum takes 1.15 as long if it looks back, with two 1.03, with four .95, with sixteen .8.
"""


@dataclass(frozen=True, slots=True)
class Arrays:
    """Arrays that values are read from later, and what reads them off Refs before and after the known loop."""

    before: list[ir.Eqn]
    after: list[ir.Eqn]
    atoms: list[ir.Atom]


def unsunk(staged: Jaxpr, nsteps: int) -> set[ir.Var]:
    """Factors of products that the planning would not sink any more, were they not read from a stack of their own.

    The cotangent of weights that a step multiplies is a sum of products with what the step multiplied them by. That
    is sunk where the factors that are not kept anyway take little room.
    """
    found = set[ir.Var]()
    for eqn in staged.eqns:
        if eqn.primitive is not prims.dot_general_p:
            continue
        made = prims.bytes_of([eqn.outvars[0].aval])
        for x, other, axes in zip(
            eqn.invars, reversed(eqn.invars), eqn.params.contract, strict=True
        ):
            terms = prod(n for k, n in enumerate(x.aval.shape) if k not in axes)
            room = nsteps * (prims.bytes_of([x.aval]) + made)
            if not ir.is_more(terms, MOST_TERMS) and ir.is_more(
                room, MOST_KEPT * prims.bytes_of([other.aval])
            ):
                found |= ir.used_vars([x])
    return found


class Passed:
    """Which residuals of a loop are read from other arrays, and how the staged loop reads them.

    `left` are the residuals that are stacked themselves. A carried value equals the result of the previous step, which
    is held in a Ref, stacked, or computed again from stacked values by the equations in `remade`. A slice of a stacked
    or held value is cut from it. `is_light` says whether equations are computed again rather than keep so many bytes.
    """

    def __init__(
        self,
        eqn: ir.Eqn,
        p: ForParams,
        values: ir.Vars,
        found: Found,
        staged: Jaxpr,
        is_light: Callable[[ir.Eqns, ir.Dim], bool],
    ) -> None:
        self.eqn = eqn
        self.p = p
        self.found = found
        self.held = {v: found.held[v] for v in values if v in found.held}
        rest = [v for v in values if v not in self.held]
        self.before: dict[ir.Var, Carried] = {}
        apart = set() if "sink" in p.off else unsunk(staged, p.nsteps)
        if transforms.body_work(p.body) < LIGHT:
            apart |= {v for v in rest if self._is_little(v)}
        rest += self._wholes(rest, apart)
        for v in [v for v in rest if v not in apart]:
            carried = found.carried.get(v)
            if carried is not None and self._is_there(carried.after, rest):
                self.before[v] = carried
        self.left = [v for v in rest if v not in self.before]
        self.parts = self._all_parts()
        self.left = [v for v in self.left if v not in self.parts]
        self.remade = self._all_remade(apart, is_light)
        self.left = [v for v in self.left if v not in self.remade]
        befores = [c.after for c in self.before.values() if c.after in found.held]
        self._reads = [*self.held.values(), *[found.held[v] for v in befores]]

    def _is_little(self, v: ir.Var) -> bool:
        """Whether a value of each step takes so little room that it is kept once more."""
        if not v.aval.differentiable:
            return False
        stack = self.p.nsteps * prims.bytes_of([v.aval])
        return not ir.is_more(ir.size_of(v.aval.shape), FEW) and not ir.is_more(stack, LITTLE)

    def _is_there(self, v: ir.Var, kept: ir.Vars) -> bool:
        return v in self.found.held or (v in kept and v not in self.found.carried)

    def _wholes(self, kept: ir.Vars, apart: set[ir.Var]) -> list[ir.Var]:
        """What carried values become, where that is kept in the place of both these and some of its parts."""
        carried = [
            self.found.carried[v] for v in kept if v in self.found.carried and v not in apart
        ]
        parts = parts_of_wholes(self.p.body)
        wholes = {part.whole for v in kept for part in parts.get(v, ())} - {*kept}
        return [c.after for c in carried if c.after in wholes and c.after not in self.found.held]

    def _all_parts(self) -> dict[ir.Var, Part]:
        """Residuals that are slices of other residuals, which are not slices themselves."""
        found: dict[ir.Var, Part] = {}
        parts = parts_of_wholes(self.p.body)
        afters = {c.after for c in self.before.values()}
        for v in [v for v in self.left if v not in afters]:
            wholes = [part for part in parts.get(v, ()) if self._is_whole(part.whole, parts)]
            if wholes:
                found[v] = wholes[0]
                if wholes[0].whole in self.found.held:
                    self.held[wholes[0].whole] = self.found.held[wholes[0].whole]
        return found

    def _all_remade(
        self, apart: set[ir.Var], is_light: Callable[[ir.Eqns, ir.Dim], bool]
    ) -> dict[ir.Var, Jaxpr]:
        """Carried values that light equations make of what the step before has kept: [*kept] -> [value]."""
        found: dict[ir.Var, Jaxpr] = {}
        given: set[ir.Var] = {self.parts[v].whole for v in self.parts}
        for v in self.left:
            if v not in self.found.carried or v in apart or v in given:
                continue
            made = self._made(self.found.carried[v].after, {*self.left} - {v, *found})
            if made is not None and is_light(made.eqns, prims.bytes_of([v.aval])):
                found[v] = made
                given |= {*made.invars}
        return found

    def _made(self, after: ir.Var, kept: set[ir.Var]) -> Jaxpr | None:
        """The equations from what a step keeps, or carries on, to another value; None if more is needed."""
        there = kept | {c.after for v, c in self.found.carried.items() if v in kept}
        wanted, eqns = {after}, list[ir.Eqn]()
        for eqn in reversed(self.p.body.eqns):
            if not wanted.isdisjoint(eqn.outvars):
                eqns.append(eqn)
                wanted = (wanted - {*eqn.outvars}) | (ir.used_vars(eqn.invars) - there)
        if wanted:
            return None
        operands = {v: None for eqn in eqns for v in ir.vars_in_order(eqn.invars) if v in there}
        return Jaxpr([*operands], eqns[::-1], [after])

    def _is_whole(self, v: ir.Var, parts: Mapping[ir.Var, Sequence[Part]]) -> bool:
        return v in self.found.held or (v in self.left and v not in parts)

    @property
    def _sources(self) -> list[tuple[int, bool]]:
        return list(dict.fromkeys((h.operand, h.final) for h in self._reads))

    @property
    def _binders(self) -> list[ir.Var]:
        """The constants of the body that places need, and the carried operands."""
        binders = self.p.body.invars[1:]
        needed = {v: None for h in self._reads for v in sorted(h.consts, key=binders.index)}
        carried = [*self.before.values(), *[self.found.carried[v] for v in self.remade]]
        needed |= {binders[c.operand]: None for c in carried}
        return list(needed)

    @property
    def operands(self) -> tuple[list[int], list[int]]:
        """The numbers of the operands that are passed on, as constants and as states."""
        binders = self.p.body.invars[1:]
        return [binders.index(v) for v in self._binders], [k for k, _ in self._sources]

    @property
    def constants(self) -> list[ir.Atom]:
        """What the staged loop takes besides: constants, and what is carried before the first step."""
        return [self.eqn.invars[k] for k in self.operands[0]]

    def told(self) -> list[Decision]:
        """What is read from where in place of being kept."""
        names = self.p.names
        sources = {v: eqn.source for eqn in self.p.body.eqns for v in eqn.outvars}
        found: list[tuple[ir.Var, str, str]] = []
        for v, held in self.held.items():
            when = "after" if held.final else "before"
            found.append((v, names[held.operand], f"is an element of it {when} the loop"))
        for v, carried in self.before.items():
            found.append((v, names[carried.operand], "is its value after the step before"))
        for v in self.remade:
            name = names[self.found.carried[v].operand]
            found.append((v, name, "is recomputed from values saved by the step before"))
        for v, part in self.parts.items():
            found.append((v, f"{part.whole.aval}", "is a part of it, which is saved or available"))
        return [
            Decision(STEP, name, True, f"{v.aval} of each step {why}", sources.get(v))
            for v, name, why in found
        ]

    def arrays(self, results: Sequence[ir.Var | None]) -> Arrays:
        """The initial states, and the contents of Refs from outside; `results` are the final states, by operand."""
        found = Arrays([], [], [])
        for operand, final in self._sources:
            atom, result = self.eqn.invars[operand], results[operand]
            if isinstance(atom.aval, AbstractRef):
                read = read_whole(atom, source=self.eqn.source)
                (found.after if final else found.before).append(read)
                found.atoms.append(read.outvars[0])
            else:
                assert result is not None, "unreachable: a state has a result"
                found.atoms.append(result if final else atom)
        return found

    def read(
        self,
        i: Value,
        constants: ad.Values,
        arrays: ad.Values,
        stacks: Mapping[ir.Var, Value],
        first: Value | int,
    ) -> dict[ir.Var, Value]:
        """The residuals of step `i`; `arrays` are Refs, and so are `stacks`, of what is kept of each step.

        `first` is the number of the first step.
        """
        consts = dict(zip(self._binders, constants, strict=True))
        refs = dict(zip(self._sources, arrays, strict=True))

        def value(v: ir.Var, k: Value) -> Value:
            held = self.found.held.get(v)
            if held is None:
                return stacks[v][k]
            return held.read(refs[held.operand, held.final], k, consts)

        found = {v: value(v, i) for v in self.held}
        wholes = {part.whole: value(part.whole, i) for part in self.parts.values()}
        found.update({v: part.of(wholes[part.whole]) for v, part in self.parts.items()})
        if not self.before and not self.remade:
            return found
        last = self.p.nsteps - 1
        k = prims.minimum(i + 1, last) if self.p.reverse else prims.maximum(i - 1, 0)
        now = {self.found.carried[v].after: v for v in self.left if v in self.found.carried}

        def made(v: ir.Var) -> Value:
            """What the step before made of a carried value."""
            if v in self.before:
                return value(self.before[v].after, k)
            kept = self.remade[v]
            values = [stacks[now[x]][i] if x in now else stacks[x][k] for x in kept.invars]
            return transforms.eval_jaxpr(kept, values)[0]

        is_first = prims.equal(i, first)
        for v in [*self.before, *self.remade]:
            start = consts[self.p.body.invars[1 + self.found.carried[v].operand]]
            pred = prims.broadcast_in_dim(is_first, start.shape, ()) if start.shape else is_first
            found[v] = prims.select(pred, start, made(v))
        return found
