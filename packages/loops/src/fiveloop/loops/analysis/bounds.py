"""Indices that a loop's counter shows to be in bounds: an access at these drops nothing, and needs no mask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fiveloop.core import Jaxpr, ir
from fiveloop.core.closed_call.primitive import closed_call_p
from fiveloop.core.ir.indexer import Span
from fiveloop.loops.analysis import accesses, integers
from fiveloop.loops.primitives import cond, for_loop


def keep_in_range(body: Jaxpr, nsteps: int) -> Jaxpr:
    """The body of a loop of so many steps, in which what cannot be out of bounds drops nothing: it needs no masks."""
    return _marked(body, [integers.counter(nsteps)])


def _marked(jaxpr: Jaxpr, given: Sequence[integers.Integer | None]) -> Jaxpr:
    known = integers.integers(jaxpr, given)
    eqns = [_marked_eqn(eqn, known) for eqn in jaxpr.eqns]
    same = all(a is b for a, b in zip(eqns, jaxpr.eqns, strict=True))
    return jaxpr if same else jaxpr.replace(eqns=eqns)


def _marked_eqn(eqn: ir.Eqn, known: integers.Integers) -> ir.Eqn:
    """An equation that indexes, without dropping if all is in range; or one with nested jaxprs, these marked."""
    p, given = eqn.params, [integers.integer(a, known) for a in eqn.invars]
    index = accesses.index_rules.find(eqn.primitive)
    if index is not None and p.indexer.drops:
        indexer, shape = p.indexer, eqn.invars[0].aval.shape
        # A position of an array is counted already: a negative one does not count from the end any more.
        least = None if accesses.is_access(eqn) else 0
        found = zip(indexer.dynamic_axes, given[-len(index(eqn)) :], strict=True)
        if all(_fits(x, shape[k], _extent(indexer.entries[k]), least) for k, x in found):
            return eqn.replace(params=replace(p, indexer=indexer.fitting()))
    elif eqn.primitive in (for_loop.for_p, closed_call_p, cond.cond_p):
        return _with_bodies(eqn, given)
    return eqn


def _with_bodies(eqn: ir.Eqn, given: Sequence[integers.Integer | None]) -> ir.Eqn:
    """An equation with its nested jaxprs marked, whose inputs are its last operands; a loop has its own counter."""
    p, bodies = eqn.params, ir.jaxprs_in(eqn.params)
    if eqn.primitive is for_loop.for_p:
        given = inside_loop(eqn, given)
    new = {id(j): _marked(j, given[max(len(given) - len(j.invars), 0) :]) for j in bodies}
    if all(new[id(j)] is j for j in bodies):
        return eqn
    return eqn.replace(params=ir.with_jaxprs(p, lambda j: new[id(j)]))


def inside_loop(
    eqn: ir.Eqn, given: Sequence[integers.Integer | None]
) -> list[integers.Integer | None]:
    """What a loop's body knows of its counter and its constants, if so much is known of the operands."""
    p = eqn.params
    consts = [x.interval if x is not None else None for x in given[: p.num_consts]]
    return [integers.counter(p.nsteps), *consts]


def _fits(found: integers.Integer | None, size: Any, extent: Any, least: Any = None) -> bool:
    """Whether all indices of a range are in bounds; single ones may count from the end, down to `least`."""
    if found is None or not isinstance(size, int) or not isinstance(extent, int):
        return False
    least = least if least is not None or extent != 1 else -size
    return bool(found.low >= (least or 0) and found.high <= size - extent)


def _extent(entry: Any) -> Any:
    return entry.extent if isinstance(entry, Span) else 1
