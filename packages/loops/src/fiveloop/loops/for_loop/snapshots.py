"""Refs from outside that a loop only reads, as what they hold before it.

The staged half of a loop runs later, when such a Ref may hold something else. So what was read would have to be
kept, step by step; what the Ref held as a whole is kept once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fiveloop.core.engine import bytes_of, whole_indexer
from fiveloop.core.extend import Dim, Eqn, Var, mutated_positions, new_eqn
from fiveloop.loops.for_loop.primitive import for_p, is_state, stateful
from fiveloop.state.engine import IndexParams, get_p


@dataclass(frozen=True, slots=True)
class Snapshots:
    """A loop on what some Refs hold: what reads them, the loop, and which of its results were there before."""

    reads: list[Eqn]
    eqn: Eqn
    is_result: list[bool]

    @property
    def bytes(self) -> Dim:
        """How much is read."""
        return bytes_of(eqn.outvars[0].aval for eqn in self.reads)


def with_snapshots(eqn: Eqn, unknown: Sequence[bool], inst: Sequence[bool]) -> Snapshots | None:
    """The loop on the contents of those known Refs that it only reads and that may change later; None without any."""
    p = stateful(eqn.params)
    avals = [a.aval for a in eqn.invars]
    states, mutated = is_state(p, avals), mutated_positions(p.body.effects)
    reads: dict[int, Eqn] = {}
    for k, atom in enumerate(eqn.invars):
        is_outer = k >= p.first_ref and not states[k]
        if is_outer and not unknown[k] and not inst[k] and k + 1 not in mutated:
            whole = IndexParams(whole_indexer(atom.aval.shape))
            reads[k] = new_eqn(get_p, [atom], whole, source=eqn.source)
    if not reads:
        return None
    invars = [reads[k].outvars[0] if k in reads else a for k, a in enumerate(eqn.invars)]
    results = iter(eqn.outvars)
    numbers = [k for k in range(len(states)) if states[k] or k in reads]
    outvars = [Var(invars[k].aval) if k in reads else next(results) for k in numbers]
    loop = new_eqn(for_p, invars, p, outvars, eqn.source)
    return Snapshots(list(reads.values()), loop, [k not in reads for k in numbers])
