"""Residuals that a loop passes on instead of keeping them: read from its states, or from what the step before kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from fiveloop.core import Jaxpr, Value
from fiveloop.core.engine import bytes_of, dot_general_p, equal, is_more, used_vars, whole_indexer
from fiveloop.core.extend import Atom, Eqn, Var, broadcast_in_dim, new_eqn, select
from fiveloop.core.primitives.elementwise import maximum, minimum
from fiveloop.loops.for_loop.passthrough import Carried, Found, Held
from fiveloop.loops.for_loop.primitive import ForParams
from fiveloop.loops.planning.sink import MOST_KEPT, MOST_TERMS
from fiveloop.state import AbstractRef
from fiveloop.state.engine import IndexParams, get_p


@dataclass(frozen=True, slots=True)
class Arrays:
    """Arrays that values are read from later, and what reads them off Refs before and after the known loop."""

    before: list[Eqn]
    after: list[Eqn]
    atoms: list[Atom]


def unsunk(staged: Jaxpr, nsteps: int) -> set[Var]:
    """Factors of products that the planning would not sink any more, were they not read from a stack of their own.

    The cotangent of weights that a step multiplies is a sum of products with what the step multiplied them by. That
    is sunk where the factors that are not kept anyway take little room.
    """
    found = set[Var]()
    for eqn in staged.eqns:
        if eqn.primitive is not dot_general_p:
            continue
        made = bytes_of([eqn.outvars[0].aval])
        for x, other, axes in zip(
            eqn.invars, reversed(eqn.invars), eqn.params.contract, strict=True
        ):
            terms = prod(n for k, n in enumerate(x.aval.shape) if k not in axes)
            room = nsteps * (bytes_of([x.aval]) + made)
            if not is_more(terms, MOST_TERMS) and is_more(room, MOST_KEPT * bytes_of([other.aval])):
                found |= used_vars([x])
    return found


class Passed:
    """Which residuals of a loop are passed on, what is needed for that, and how they are read in the staged loop.

    `left` are those that are not. A carried value is what the step before made of it, which is held, or kept.
    """

    def __init__(
        self, eqn: Eqn, p: ForParams, values: Sequence[Var], found: Found, staged: Jaxpr
    ) -> None:
        self.eqn = eqn
        self.p = p
        self.found = found
        self.held = {v: found.held[v] for v in values if v in found.held}
        rest = [v for v in values if v not in self.held]
        self.before: dict[Var, Carried] = {}
        apart = unsunk(staged, p.nsteps)
        for v in [v for v in rest if v not in apart]:
            carried = found.carried.get(v)
            if carried is not None and self._is_there(carried.after, rest):
                self.before[v] = carried
        self.left = [v for v in rest if v not in self.before]
        self._reads = self._all_reads()

    def _is_there(self, v: Var, kept: Sequence[Var]) -> bool:
        return v in self.found.held or (v in kept and v not in self.found.carried)

    def _all_reads(self) -> list[Held]:
        befores = [c.after for c in self.before.values() if c.after in self.found.held]
        return [*self.held.values(), *[self.found.held[v] for v in befores]]

    @property
    def _sources(self) -> list[tuple[int, bool]]:
        return list(dict.fromkeys((h.operand, h.final) for h in self._reads))

    @property
    def _binders(self) -> list[Var]:
        """The constants of the body that places need, and the carried operands."""
        binders = self.p.body.invars[1:]
        needed = {v: None for h in self._reads for v in sorted(h.consts, key=binders.index)}
        needed |= {binders[c.operand]: None for c in self.before.values()}
        return list(needed)

    @property
    def operands(self) -> tuple[list[int], list[int]]:
        """The numbers of the operands that are passed on, as constants and as states."""
        binders = self.p.body.invars[1:]
        return [binders.index(v) for v in self._binders], [k for k, _ in self._sources]

    @property
    def constants(self) -> list[Atom]:
        """What the staged loop takes besides: constants, and what is carried before the first step."""
        return [self.eqn.invars[k] for k in self.operands[0]]

    def arrays(self, results: Sequence[Var | None]) -> Arrays:
        """The states that it takes, and what Refs from outside hold; `results` are the final states, by operand."""
        found = Arrays([], [], [])
        for operand, final in self._sources:
            atom, result = self.eqn.invars[operand], results[operand]
            if isinstance(atom.aval, AbstractRef):
                whole = IndexParams(whole_indexer(atom.aval.shape))
                read = new_eqn(get_p, [atom], whole, source=self.eqn.source)
                (found.after if final else found.before).append(read)
                found.atoms.append(read.outvars[0])
            else:
                assert result is not None, "unreachable: a state has a result"
                found.atoms.append(result if final else atom)
        return found

    def read(
        self,
        i: Value,
        constants: Sequence[Value],
        arrays: Sequence[Value],
        stacks: Mapping[Var, Value],
    ) -> dict[Var, Value]:
        """The residuals of step `i`; `arrays` are Refs, and so are `stacks`, of what is kept of each step."""
        consts = dict(zip(self._binders, constants, strict=True))
        refs = dict(zip(self._sources, arrays, strict=True))

        def value(v: Var, k: Value) -> Value:
            held = self.found.held.get(v)
            if held is None:
                return stacks[v][k]
            return held.read(refs[held.operand, held.final], k, consts)

        found = {v: value(v, i) for v in self.held}
        if self.before:
            last = self.p.nsteps - 1
            first, k = (last, minimum(i + 1, last)) if self.p.reverse else (0, maximum(i - 1, 0))
            is_first = equal(i, first)
            for v, carried in self.before.items():
                start = consts[self.p.body.invars[1 + carried.operand]]
                pred = broadcast_in_dim(is_first, start.shape, ()) if start.shape else is_first
                found[v] = select(pred, start, value(carried.after, k))
        return found
