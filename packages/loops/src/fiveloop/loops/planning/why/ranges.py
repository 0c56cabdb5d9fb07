"""Which arrays the steps of a loop index in range, as its counter shows, and why that is not known of others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fiveloop.core import Jaxpr
from fiveloop.core.engine import (
    dynamic_slice_p,
    dynamic_update_slice_p,
    gather_p,
    order_p,
    resolve_index_p,
    scatter_p,
)
from fiveloop.core.extend import Atom, Eqn, Primitive, Source, Var, jaxprs_in
from fiveloop.loops.for_loop.primitive import for_p
from fiveloop.loops.planning.record import Decision

STEP = "ranges"
IN_RANGE = "indices are in range, so they are not resolved"
IN_BRANCH = "the range of the counter is not followed into branches and calls"
ENDS = "the range of the counter is not followed into the steps of a loop that may end early"
IN_A_BODY = "it is computed in a branch, a call or a loop"
RESOLVED = "an index is resolved"
Range = tuple[int, int]
_FIRST_INDEX: Mapping[Primitive[Any], int] = {
    dynamic_slice_p: 1,
    dynamic_update_slice_p: 2,
    gather_p: 1,
    scatter_p: 1,
}
"""The primitives that index an array, and where their indices begin among their operands."""
_UPDATED = (dynamic_update_slice_p, scatter_p)


def indices_told(
    body: Jaxpr,
    names: Sequence[str],
    ranges: Mapping[Var, Range],
    dropped: Sequence[Eqn],
    loop: Eqn,
) -> list[Decision]:
    """What became of the indices of each array that a discharged body indexes.

    `names` are those of its inputs after the counter, `ranges` what is known of its integers, and `dropped` the
    resolving in `loop` that changes nothing.
    """
    arrays = _names_of_arrays(body, dict(zip(body.invars[1:], names, strict=True)))
    story = _Story(body, arrays, ranges)
    gone = {id(eqn) for eqn in dropped}
    ends = loop.params.end is not None
    good: dict[str, None] = {}
    bad: dict[str, tuple[str, Source | None]] = {}
    for eqn in body.eqns:
        if eqn.primitive is not resolve_index_p:
            continue
        for name in story.indexed_by(eqn):
            if id(eqn) in gone:
                good[name] = None
            else:
                why = story.why(eqn)
                bad.setdefault(name, (ENDS if ends and why == IN_A_BODY else why, eqn.source))
    for name, source in story.in_branches():
        bad.setdefault(name, (ENDS if ends else IN_BRANCH, source))
    told = [Decision(STEP, n, True, IN_RANGE, loop.source) for n in good if n not in bad]
    return [
        *told,
        *[Decision(STEP, n, False, f"{RESOLVED}: {w}", at) for n, (w, at) in bad.items()],
    ]


def _names_of_arrays(body: Jaxpr, names: Mapping[Var, str]) -> dict[Atom, str]:
    """What the arrays of a body are called, of whose inputs some have names: these, and what they become."""
    found: dict[Atom, str] = dict(names.items())
    for eqn in body.eqns:
        if eqn.primitive is order_p:
            given = eqn.invars[1:]
        elif eqn.primitive in _UPDATED:
            given = eqn.invars[:1]
        else:
            continue
        pairs = zip(eqn.outvars, given, strict=True)
        found.update((v, found[a]) for v, a in pairs if a in found)
    return found


class _Story:
    """What makes and what uses each value of a body."""

    def __init__(
        self, body: Jaxpr, arrays: Mapping[Atom, str], ranges: Mapping[Var, Range]
    ) -> None:
        self.body = body
        self.arrays = arrays
        self.ranges = ranges
        self.made = {v: eqn for eqn in body.eqns for v in eqn.outvars}

    def indexed_by(self, resolving: Eqn) -> list[str]:
        """The arrays that a resolved index is used for."""
        waiting, found = list(resolving.outvars), dict[str, None]()
        while waiting:
            v = waiting.pop()
            for eqn in self.body.eqns:
                if v not in eqn.invars:
                    continue
                first = _FIRST_INDEX.get(eqn.primitive)
                if first is not None and v in eqn.invars[first:]:
                    name = self.arrays.get(eqn.invars[0])
                    found.update({name: None} if name is not None else {})
                elif eqn.primitive.name in _FOLLOWED:
                    waiting += [out for out in eqn.outvars if out.aval.dtype.kind in "iu"]
        return list(found)

    def why(self, resolving: Eqn) -> str:
        """Why an index is not known to be in range."""
        (index,), p = resolving.invars, resolving.params
        if not isinstance(p.size, int):
            return "the size of that axis is not known"
        known = self.ranges.get(index) if isinstance(index, Var) else None
        if known is None:
            return self._origin(index)
        low, high = known
        last = p.size - (p.window or 1)
        if low >= 0 and high <= last:
            return "it is converted to another dtype"
        return f"it may be from {low} to {high}, and places are from 0 to {last}"

    def _origin(self, x: Atom) -> str:
        """What an index comes from whose range is not known."""
        while isinstance(x, Var):
            eqn = self.made.get(x)
            if eqn is None:
                return (
                    f"it comes from `{self.arrays[x]}`"
                    if x in self.arrays
                    else "it comes from elsewhere"
                )
            if eqn.primitive in _FIRST_INDEX or eqn.primitive.name == "slice":
                name = self.arrays.get(eqn.invars[0])
                return f"it is read from `{name}`" if name else "it is read from an array"
            unknown = [a for a in eqn.invars if isinstance(a, Var) and a not in self.ranges]
            if jaxprs_in(eqn.params):
                return IN_A_BODY
            if not unknown or eqn.primitive.name not in _FOLLOWED:
                return f"it is computed by `{eqn.primitive}`"
            x = unknown[0]
        return "it is not known"

    def in_branches(self) -> Iterator[tuple[str, Source | None]]:
        """The arrays that branches, calls and `while`s index, with the line; loops tell of themselves."""
        for eqn in self.body.eqns:
            bodies = jaxprs_in(eqn.params) if eqn.primitive is not for_p else ()
            for inner in (body for body in bodies if len(body.invars) <= len(eqn.invars)):
                operands = eqn.invars[len(eqn.invars) - len(inner.invars) :]
                pairs = zip(inner.invars, operands, strict=True)
                names = {v: self.arrays[a] for v, a in pairs if a in self.arrays}
                story = _Story(inner, _names_of_arrays(inner, names), {})
                for e in inner.eqns:
                    if e.primitive is resolve_index_p:
                        known = [n for n in story.indexed_by(e) if n in names.values()]
                        yield from ((name, e.source) for name in known)
                yield from story.in_branches()


_FOLLOWED = frozenset(
    {"add", "sub", "neg", "mul", "div", "rem", "maximum", "minimum", "clamp", "select", "convert"}
    | {"resolve_index", "reshape", "broadcast_in_dim", "concatenate"}
)
