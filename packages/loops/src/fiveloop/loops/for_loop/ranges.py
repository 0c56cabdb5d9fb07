"""The range of each integer that a loop counts or computes from its counter, and index arithmetic that it saves.

An index that cannot be negative or beyond the end needs no resolving. In a loop of a few operations a step, that
is a good part of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fiveloop.core import Jaxpr
from fiveloop.core.engine import (
    Span,
    dynamic_slice_p,
    dynamic_update_slice_p,
    is_scalar,
    resolve_index_p,
)
from fiveloop.core.extend import (
    Atom,
    Eqn,
    Pass,
    ShapedArray,
    Var,
    jaxprs_in,
    register_pass,
    with_jaxprs,
)
from fiveloop.loops.for_loop.accesses import FIRST_INDEX
from fiveloop.loops.for_loop.primitive import for_p, holds_loop
from fiveloop.loops.planning.names import OWN
from fiveloop.loops.planning.record import Decision
from fiveloop.loops.planning.why.ranges import indices_told

Range = tuple[int, int]
"""The least and the greatest value that an integer can have."""

Ranges = Mapping[Var, Range]


def drop_resolving(jaxpr: Jaxpr) -> Jaxpr:
    """The same program without the resolving of indices, in loops, that are in range; remembered on the jaxpr."""
    return _simplified(jaxpr, (None,) * len(jaxpr.invars))


def _simplified(jaxpr: Jaxpr, known: tuple[Range | None, ...]) -> Jaxpr:
    return jaxpr.remember(("in range", known), lambda: _simplify(jaxpr, known))


def _simplify(jaxpr: Jaxpr, known: Sequence[Range | None]) -> Jaxpr:
    ranges = {v: r for v, r in zip(jaxpr.invars, known, strict=True) if r is not None}
    same: dict[Atom, Atom] = {}
    eqns: list[Eqn] = []
    for eqn in jaxpr.eqns:
        eqn = eqn.replace(invars=tuple(same.get(a, a) for a in eqn.invars))
        found = _range_of(eqn, ranges)
        if found is not None:
            ranges[eqn.outvars[0]] = found
        if eqn.primitive is resolve_index_p and _changes_nothing(eqn, ranges):
            same[eqn.outvars[0]] = eqn.invars[0]
        else:
            eqns.append(_within(eqn, ranges))
    outvars = [same.get(a, a) for a in jaxpr.outvars]
    return Jaxpr(jaxpr.invars, eqns, outvars, jaxpr.name)


def keep_in_range(body: Jaxpr, nsteps: int) -> Jaxpr:
    """The body of a loop of so many steps, in which what cannot be out of bounds drops nothing: it needs no masks."""
    counter = (0, max(nsteps - 1, 0))
    return _marked(body, [counter, *[None] * (len(body.invars) - 1)])


def _marked(jaxpr: Jaxpr, known: Sequence[Range | None]) -> Jaxpr:
    ranges = {v: r for v, r in zip(jaxpr.invars, known, strict=True) if r is not None}
    eqns = []
    for eqn in jaxpr.eqns:
        found = _range_of(eqn, ranges)
        if found is not None:
            ranges[eqn.outvars[0]] = found
        eqns.append(_marked_eqn(eqn, ranges))
    same = all(a is b for a, b in zip(eqns, jaxpr.eqns, strict=True))
    return jaxpr if same else jaxpr.replace(eqns=eqns)


def _marked_eqn(eqn: Eqn, ranges: Ranges) -> Eqn:
    """An equation that indexes, without dropping if all is in range; or one with nested jaxprs, these marked."""
    p, given = eqn.params, [_range(a, ranges) for a in eqn.invars]
    bodies = jaxprs_in(p)
    if eqn.primitive in FIRST_INDEX and p.indexer.drops:
        indexer, shape = p.indexer, eqn.invars[0].aval.shape
        index = given[FIRST_INDEX[eqn.primitive] :]
        pairs = zip(indexer.dynamic_axes, index, strict=True)
        if all(_fits(r, shape[k], _extent(indexer.entries[k])) for k, r in pairs):
            return eqn.replace(params=replace(p, indexer=indexer.fitting()))
    elif eqn.primitive in (dynamic_slice_p, dynamic_update_slice_p) and p.drops:
        block = eqn.invars[1] if eqn.primitive is dynamic_update_slice_p else eqn.outvars[0]
        sizes, shape = block.aval.shape, eqn.invars[0].aval.shape
        starts = given[-len(shape) :]
        # A start is a position: a negative one does not count from the end any more.
        if all(_fits(starts[k], shape[k], sizes[k], 0) for k in p.drops):
            return eqn.replace(params=replace(p, drops=()))
    elif bodies and eqn.primitive.name in ("for", "closed_call", "cond"):
        if eqn.primitive is for_p:
            given = [(0, max(p.nsteps - 1, 0)), *given[: p.num_consts]]
            given += [None] * (len(p.body.invars) - len(given))
        new = {id(j): _marked(j, given[len(given) - len(j.invars) :]) for j in bodies}
        if any(id(new[id(j)]) != id(j) for j in bodies):
            return eqn.replace(params=with_jaxprs(p, lambda j: new[id(j)]))
    return eqn


def _fits(found: Range | None, size: Any, extent: Any, least: Any = None) -> bool:
    """Whether all indices of a range are in bounds; single ones may count from the end, down to `least`."""
    if found is None or not isinstance(size, int) or not isinstance(extent, int):
        return False
    least = least if least is not None or extent != 1 else -size
    return found[0] >= (least or 0) and found[1] <= size - extent


def _extent(entry: Any) -> Any:
    return entry.extent if isinstance(entry, Span) else 1


def _within(eqn: Eqn, ranges: Ranges) -> Eqn:
    """The equation with its nested jaxprs simplified; the body of a loop knows its counter and constants."""
    if eqn.primitive is for_p:
        p = eqn.params
        if not p.planning.ranges:
            return eqn
        consts = [_range(a, ranges) for a in eqn.invars[: p.num_consts]]
        rest = (None,) * (len(eqn.invars) - p.num_consts)
        counter = (0, max(p.nsteps - 1, 0))
        if p.record.tells:
            told = _told(eqn, [counter, *consts])
            p = replace(p, record=p.record.with_decisions(told))
        return eqn.replace(params=replace(p, body=_simplified(p.body, (counter, *consts, *rest))))
    if jaxprs_in(eqn.params):
        return eqn.replace(params=with_jaxprs(eqn.params, drop_resolving))
    return eqn


def _told(loop: Eqn, known: Sequence[Range | None]) -> list[Decision]:
    """What is told of the indices in a loop, of the ranges of whose body's first inputs some are known."""
    p = loop.params
    pairs = zip(p.body.invars, known, strict=False)
    ranges = {v: r for v, r in pairs if r is not None}
    dropped: list[Eqn] = []
    for eqn in p.body.eqns:
        found = _range_of(eqn, ranges)
        if found is not None:
            ranges[eqn.outvars[0]] = found
        if eqn.primitive is resolve_index_p and _changes_nothing(eqn, ranges):
            dropped.append(eqn)
    told = indices_told(p.body, p.names, ranges, dropped, loop)
    # Which lane is whose is not for the user to say.
    return [d for d in told if d.subject not in OWN and (d.done or not p.record.called.kind)]


def _changes_nothing(eqn: Eqn, ranges: Ranges) -> bool:
    """Whether resolving an index gives the index itself."""
    (index,), (out,) = eqn.invars, eqn.outvars
    found = _range(index, ranges)
    if found is None or index.aval is not out.aval:
        return False
    return _resolved(found, eqn.params) == found and found[0] >= 0


def _range(a: Atom, ranges: Ranges) -> Range | None:
    if isinstance(a, Var):
        is_flag = isinstance(a.aval, ShapedArray) and a.aval.dtype.kind == "b"
        return ranges.get(a, (0, 1) if is_flag else None)
    if not is_scalar(a) or a.aval.dtype.kind not in "iu":
        return None
    value = int(a.value.host)  # type: ignore[attr-defined]  # a scalar has its number
    return value, value


def _range_of(eqn: Eqn, ranges: Ranges) -> Range | None:
    """The range of an integer that an equation computes, if its operands' tell."""
    rule = _RULES.get(eqn.primitive.name)
    if rule is None or len(eqn.outvars) != 1:
        return None
    aval = eqn.outvars[0].aval
    operands = [_range(a, ranges) for a in eqn.invars]
    if aval.dtype.kind not in "iu" or aval.shape:
        return None
    if eqn.primitive.name == "select":
        operands = operands[1:]
    if any(r is None for r in operands):
        return None
    found: Range | None = rule([r for r in operands if r is not None], eqn.params)
    limits = np.iinfo(aval.dtype)
    if found is None or not limits.min <= found[0] <= found[1] <= limits.max:
        return None
    return found


def _resolved(index: Range, p: Any) -> Range | None:
    """Where indices of a range point: those below zero count from the end; then they are clamped."""
    if not isinstance(p.size, int) or not isinstance(p.window, int | None):
        return None
    low, high = index
    parts = []
    if high >= 0:
        parts.append((max(low, 0), high))
    if low < 0:
        parts.append((low + p.size, min(high, -1) + p.size))
    out = min(a for a, _ in parts), max(b for _, b in parts)
    if p.window is None:
        return out
    last = p.size - p.window
    return min(max(out[0], 0), last), min(max(out[1], 0), last)


def _mul(xs: Sequence[Range], p: Any) -> Range:
    products = [a * b for a in xs[0] for b in xs[1]]
    return min(products), max(products)


def _div(xs: Sequence[Range], p: Any) -> Range | None:
    (low, high), (least, most) = xs
    return (low // most, high // least) if low >= 0 and least > 0 else None


def _rem(xs: Sequence[Range], p: Any) -> Range | None:
    (low, high), (least, most) = xs
    return (0, min(high, most - 1)) if low >= 0 and least > 0 else None


def _clamp(xs: Sequence[Range], p: Any) -> Range:
    least, x, most = xs
    return min(max(x[0], least[0]), most[0]), min(max(x[1], least[1]), most[1])


_RULES: dict[str, Callable[[Sequence[Range], Any], Range | None]] = {
    "add": lambda xs, p: (xs[0][0] + xs[1][0], xs[0][1] + xs[1][1]),
    "sub": lambda xs, p: (xs[0][0] - xs[1][1], xs[0][1] - xs[1][0]),
    "neg": lambda xs, p: (-xs[0][1], -xs[0][0]),
    "mul": _mul,
    "div": _div,
    "rem": _rem,
    "maximum": lambda xs, p: (max(xs[0][0], xs[1][0]), max(xs[0][1], xs[1][1])),
    "minimum": lambda xs, p: (min(xs[0][0], xs[1][0]), min(xs[0][1], xs[1][1])),
    "clamp": _clamp,
    "select": lambda xs, p: (min(a for a, _ in xs), max(b for _, b in xs)),
    "convert": lambda xs, p: xs[0],
    "resolve_index": lambda xs, p: _resolved(xs[0], p),
}


register_pass(Pass("ranges", after=("discharge",), applies=holds_loop, run=drop_resolving))
