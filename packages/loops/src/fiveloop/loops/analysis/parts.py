"""Values of a body that are parts of other values of it: what is joined is there as long as the whole is."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from fiveloop.core import Jaxpr, Value
from fiveloop.core.engine import concatenate_p, reshape_p, slice_p, static_slice, transpose_p
from fiveloop.core.extend import Eqn, Var

_CUTS = (slice_p, reshape_p, transpose_p)
"""The primitives that only pick or rearrange elements, at places that are the same in all steps."""


@dataclass(frozen=True, slots=True)
class Part:
    """A value that has been joined with others: of `whole`, what begins at `start` on an axis."""

    whole: Var
    axis: int
    start: int
    size: int

    def of(self, whole: Value) -> Value:
        """The part of a whole."""
        first, last = [0] * whole.ndim, list(whole.shape)
        first[self.axis], last[self.axis] = self.start, self.start + self.size
        return static_slice(whole, first, last)


def parts_of_wholes(body: Jaxpr) -> dict[Var, list[Part]]:
    """Of what each value of a body is a part; remembered on the body."""
    return body.remember("parts", lambda: _parts(body))


def _parts(body: Jaxpr) -> dict[Var, list[Part]]:
    found: dict[Var, list[Part]] = {}
    for eqn in body.eqns:
        if eqn.primitive is concatenate_p:
            for v, part in _joined(eqn):
                found.setdefault(v, []).append(part)
    return found


def _joined(eqn: Eqn) -> list[tuple[Var, Part]]:
    axis, start, found = eqn.params.axis, 0, list[tuple[Var, Part]]()
    for a in eqn.invars:
        size = a.aval.shape[axis]
        if not isinstance(size, int):
            break
        if isinstance(a, Var):
            found.append((a, Part(eqn.outvars[0], axis, start, size)))
        start += size
    return found


def cut_from(body: Jaxpr, wholes: Collection[Var], values: Collection[Var]) -> set[Var]:
    """Those of the wholes that some of the values are cut from, or are themselves."""
    roots: dict[Var, Var] = {v: v for v in wholes}
    for eqn in body.eqns:
        source = eqn.invars[0] if eqn.primitive in _CUTS else None
        if isinstance(source, Var) and source in roots:
            roots.update((v, roots[source]) for v in eqn.outvars if v not in roots)
    return {roots[v] for v in values if v in roots}
