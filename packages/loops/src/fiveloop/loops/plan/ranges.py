"""An index that is in bounds by the range of the counter is not checked at run time, any other is resolved once.

In a loop with a few operations per step, resolving indices is a good part of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fiveloop.core import Jaxpr, ir, passes, prims, rules
from fiveloop.loops.analysis import accesses, integers
from fiveloop.loops.names import OWN
from fiveloop.loops.primitives.for_loop import for_p
from fiveloop.loops.record import Decision


def drop_resolving(jaxpr: Jaxpr) -> Jaxpr:
    """The same program without the resolving of indices, in loops, that are in range; remembered on the jaxpr."""
    return _simplified(jaxpr, ())


@ir.once_per_jaxpr
def _simplified(jaxpr: Jaxpr, given: tuple[integers.Integer | None, ...]) -> Jaxpr:
    known = integers.integers(jaxpr, given)
    same: dict[ir.Var, ir.Atom] = {}
    eqns: list[ir.Eqn] = []
    resolved: dict[tuple[ir.Atom, Any], ir.Var] = {}
    for eqn in jaxpr.eqns:
        if integers.is_resolved(eqn, known):
            same[eqn.outvars[0]] = ir.renamed(eqn.invars[0], same)
            continue
        new = ir.rename(_toward_zero(_within(eqn, known), known), same)
        if new.primitive is prims.resolve_index_p:
            first = resolved.setdefault((new.invars[0], new.params), new.outvars[0])
            if first is not new.outvars[0]:
                same[new.outvars[0]] = first
                continue
        eqns.append(new)
    outvars = [ir.renamed(a, same) for a in jaxpr.outvars]
    return Jaxpr(jaxpr.invars, eqns, outvars, jaxpr.name)


_OF_NATURALS = {prims.floor_div.prim: prims.div.prim, prims.mod.prim: prims.rem.prim}
"""Divisions that do not go towards zero, and what does the same with numbers that are not negative."""


def _toward_zero(eqn: ir.Eqn, known: integers.Integers) -> ir.Eqn:
    """A division, in one operation where that gives the same."""
    prim = _OF_NATURALS.get(eqn.primitive)
    if prim is None:
        return eqn
    x, y = (integers.integer(a, known) for a in eqn.invars)
    return eqn.replace(primitive=prim) if x and y and x.low >= 0 and y.low > 0 else eqn


def _within(eqn: ir.Eqn, known: integers.Integers) -> ir.Eqn:
    """The equation with its nested jaxprs simplified; the body of a loop knows its counter and constants."""
    if eqn.primitive is for_p:
        p = eqn.params
        if "ranges" in p.off:
            return eqn
        given = integers.inside_loop(eqn, [integers.integer(a, known) for a in eqn.invars])
        if p.record.tells:
            told = _told(eqn, integers.integers(p.body, given))
            p = replace(p, record=p.record.with_decisions(told))
        return eqn.replace(params=replace(p, body=_simplified(p.body, tuple(given))))
    return rules.with_bodies(eqn, drop_resolving)


def _told(loop: ir.Eqn, known: integers.Integers) -> list[Decision]:
    """What is told of the indices in a loop."""
    p = loop.params
    told = indices_told(p.body, p.names, known, loop)
    # Which lane is whose is not for the user to say.
    return [d for d in told if d.subject not in OWN and (d.done or not p.record.called.kind)]


passes.register_pass(
    passes.Pass("ranges", after=("discharge",), applies=ir.holding(for_p), run=drop_resolving)
)


STEP = "ranges"
IN_RANGE = "indices are in bounds, so they are not checked at run time"
IN_BRANCH = "the range of the counter is not followed into branches and calls"
ENDS = "the range of the counter is not followed into the steps of a loop that may end early"
IN_A_BODY = "it is computed in a branch, a call or a loop"
RESOLVED = "an index is resolved"


def indices_told(
    body: Jaxpr, names: Sequence[str], known: integers.Integers, loop: ir.Eqn
) -> list[Decision]:
    """What became of the indices of each array that a discharged body indexes.

    `names` are those of its inputs after the counter, `known` is what is known of its integers.
    """
    arrays = _names_of_arrays(body, dict(zip(body.invars[1:], names, strict=True)))
    story = _Story(body, arrays, known)
    ends = loop.params.end is not None
    good: dict[str, None] = {}
    bad: dict[str, tuple[str, ir.Source | None]] = {}
    for eqn in body.eqns:
        if eqn.primitive is not prims.resolve_index_p:
            continue
        for name in story.indexed_by(eqn):
            if integers.is_in_range(eqn, known):
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


def _names_of_arrays(body: Jaxpr, names: Mapping[ir.Var, str]) -> dict[ir.Atom, str]:
    """What the arrays of a body are called, of whose inputs some have names: these, and what they become."""
    found: dict[ir.Atom, str] = dict(names.items())
    for eqn in body.eqns:
        if eqn.primitive is prims.order_p:
            given = eqn.invars[1:]
        elif eqn.primitive is prims.put_p:
            given = eqn.invars[:1]
        else:
            continue
        pairs = zip(eqn.outvars, given, strict=True)
        found.update((v, found[a]) for v, a in pairs if a in found)
    return found


class _Story:
    """The equations that make and use each value of a body."""

    def __init__(
        self, body: Jaxpr, arrays: Mapping[ir.Atom, str], known: integers.Integers
    ) -> None:
        self.body = body
        self.arrays = arrays
        self.known = known
        self.made = ir.makers(body)

    def indexed_by(self, resolving: ir.Eqn) -> list[str]:
        """The arrays that a resolved index is used for."""
        waiting, found = list(resolving.outvars), dict[str, None]()
        while waiting:
            v = waiting.pop()
            for eqn in self.body.eqns:
                if v not in eqn.invars:
                    continue
                index = accesses.index_rules.find(eqn.primitive)
                if index is not None and v in index(eqn):
                    name = self.arrays.get(eqn.invars[0])
                    found.update({name: None} if name is not None else {})
                elif _is_followed(eqn):
                    waiting += [out for out in eqn.outvars if out.aval.dtype.kind in "iu"]
        return list(found)

    def why(self, resolving: ir.Eqn) -> str:
        """Why an index is not known to be in range."""
        (index,), p = resolving.invars, resolving.params
        if not isinstance(p.size, int):
            return "the size of that axis is not known"
        known, whole = integers.integer(index, self.known), integers.of_dtype(index.aval)
        if known is None or whole is None or known.low == whole.low or known.high == whole.high:
            return self._origin(index)
        low, high = known.low, known.high
        last = p.size - (p.window or 1)
        if low >= 0 and high <= last:
            return "it is converted to another dtype"
        return f"it may be from {low} to {high}, and places are from 0 to {last}"

    def _origin(self, x: ir.Atom) -> str:
        """What an index comes from whose range is not known."""
        while isinstance(x, ir.Var):
            eqn = self.made.get(x)
            if eqn is None:
                return (
                    f"it comes from `{self.arrays[x]}`"
                    if x in self.arrays
                    else "it comes from elsewhere"
                )
            if eqn.primitive in accesses.index_rules:
                name = self.arrays.get(eqn.invars[0])
                return f"it is read from `{name}`" if name else "it is read from an array"
            unknown = [a for a in eqn.invars if isinstance(a, ir.Var) and a not in self.known]
            if ir.jaxprs_in(eqn.params):
                return IN_A_BODY
            if not unknown or not _is_followed(eqn):
                return f"it is computed by `{eqn.primitive}`"
            x = unknown[0]
        return "it is not known"

    def in_branches(self) -> Iterator[tuple[str, ir.Source | None]]:
        """The arrays that branches, calls and `while`s index, with the line; loops tell of themselves."""
        for eqn in self.body.eqns:
            bodies = ir.jaxprs_in(eqn.params) if eqn.primitive is not for_p else ()
            for inner in (body for body in bodies if len(body.invars) <= len(eqn.invars)):
                operands = eqn.invars[len(eqn.invars) - len(inner.invars) :]
                pairs = zip(inner.invars, operands, strict=True)
                names = {v: self.arrays[a] for v, a in pairs if a in self.arrays}
                story = _Story(inner, _names_of_arrays(inner, names), {})
                for e in inner.eqns:
                    if e.primitive is prims.resolve_index_p:
                        known = [n for n in story.indexed_by(e) if n in names.values()]
                        yield from ((name, e.source) for name in known)
                yield from story.in_branches()


_MOVES = (prims.reshape_p, prims.broadcast_in_dim_p, prims.concatenate_p)
"""The primitives that only move integers."""


def _is_followed(eqn: ir.Eqn) -> bool:
    """Whether an equation moves integers, or what it makes of them may be known."""
    return eqn.primitive in integers.integer_rules or eqn.primitive in _MOVES
