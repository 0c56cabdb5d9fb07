"""An element that one step writes and a later one reads is carried there as a value: scalar replacement.

`y[i + 1] = y[i] + x[i]` reads in each step what the step before has written. Carried, it stays in a register; a Ref
that is then only written needs no order of reads and writes, and is not there at all if nobody wants what it holds.

Callahan, Carr and Kennedy, "Improving register allocation for subscripted variables", PLDI 1990.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from fiveloop.core import Jaxpr, Value
from fiveloop.core.engine import ReshapeParams, prune, reshape_p, whole_indexer
from fiveloop.core.extend import NO_PARAMS, Atom, Eqn, Var, add_p, new_eqn, reshape, stage_closed
from fiveloop.loops.for_loop.affine import Affine
from fiveloop.loops.for_loop.primitive import for_p
from fiveloop.loops.planning.chains import Chain, ChainFinder, Place
from fiveloop.loops.planning.hoist import renamed
from fiveloop.loops.planning.record import Decision, Planned
from fiveloop.state import AbstractRef
from fiveloop.state.engine import IndexParams, SwapParams, get_p, swap_p

STEP = "carry"
CARRIED = "what a step writes there is carried to the step that reads it"


def carry(eqn: Eqn) -> Planned:
    """A loop that carries what its steps write to those that read it."""
    p = eqn.params
    if p.num_carry or p.nsteps < 2:
        return Planned(eqn)
    finder = ChainFinder(p)
    refs = p.body.invars[1 + p.num_consts :]
    chains = [chain for ref in refs if (chain := finder.chain(ref)) is not None]
    if not chains:
        return Planned(eqn)
    told = [
        Decision(STEP, p.names[p.body.invars.index(c.ref) - 1], True, CARRIED, c.write.eqn.source)
        for c in chains
    ]
    before: list[Eqn] = []
    firsts = [[_first(eqn, finder, c, k + 1, before) for k in range(c.steps)] for c in chains]
    return Planned(_carrying(eqn, chains, firsts), before, told=told)


def _first(eqn: Eqn, finder: ChainFinder, chain: Chain, later: int, before: list[Eqn]) -> Atom:
    """What the first step would read that was written so many steps before; `before` gets what reads it."""
    p = eqn.params
    i = p.nsteps - 1 + later if p.reverse else -later
    places = [chain.places.get(axis) for axis in range(chain.ref.aval.ndim)]
    operands = [v for v in places if isinstance(v, Var)]

    def element(array: Value, *given: Value) -> list[Value]:
        left = iter(given)
        index: list[Any] = [_position(place, i, left) for place in places]
        return [reshape(array[tuple(index)], chain.aval.shape)]

    outside: dict[Var, Atom] = dict(zip(p.body.invars[1:], eqn.invars, strict=True))
    before += [renamed(e, outside) for e in prune(finder.fixed_eqns, operands)]
    array = eqn.invars[p.body.invars.index(chain.ref) - 1]
    read = stage_closed(element, [array.aval, *[v.aval for v in operands]])
    inside: dict[Var, Atom] = dict(
        zip(read.invars, [array, *[outside[v] for v in operands]], strict=True)
    )
    before += [renamed(e, inside) for e in read.eqns]
    (out,) = read.outvars
    return inside[out] if isinstance(out, Var) else out


def _position(place: Place | None, i: int, operands: Iterator[Value]) -> Any:
    """The index of an axis in step `i`."""
    if place is None:
        return slice(None)
    return place.step * i + place.start if isinstance(place, Affine) else next(operands)


def _carrying(eqn: Eqn, chains: Sequence[Chain], firsts: Sequence[Sequence[Atom]]) -> Eqn:
    """The loop with a Ref for each value that is carried.

    p.body : [i, *consts, *refs]            -> []
    body   : [i, *consts, *refs, *carried]  -> []
    """
    p = eqn.params
    carried = [[Var(AbstractRef(c.aval), "carried on") for _ in range(c.steps)] for c in chains]
    refs = [ref for each in carried for ref in each]
    operands = [x for each in firsts for x in each]
    eqns = _step(p.body, chains, carried)
    body = Jaxpr([*p.body.invars, *refs], eqns, p.body.outvars, p.body.name)
    outs = [*eqn.outvars, *[Var(x.aval.strong()) for x in operands]]
    return new_eqn(for_p, [*eqn.invars, *operands], replace(p, body=body), outs, eqn.source)


def _step(body: Jaxpr, chains: Sequence[Chain], carried: Sequence[Sequence[Var]]) -> list[Eqn]:
    """The equations of a step: what is carried is read first, and handed on after the write."""
    eqns: list[Eqn] = []
    writes: dict[int, tuple[Chain, Sequence[Var], list[Var]]] = {}
    reads: dict[int, Var] = {}
    for chain, refs in zip(chains, carried, strict=True):
        values = [Var(chain.aval) for _ in refs]
        whole = IndexParams(whole_indexer(chain.aval.shape))
        eqns += [new_eqn(get_p, [r], whole, [v]) for r, v in zip(refs, values, strict=True)]
        writes[id(chain.write.eqn)] = chain, refs, values
        reads.update({read: values[later - 1] for read, later in chain.reads.items()})
    same: dict[Atom, Atom] = {}
    for old in body.eqns:
        eqn = old.replace(invars=tuple(same.get(a, a) for a in old.invars))
        if id(old) in reads:
            eqns += _read(eqn, reads[id(old)], same)
        elif id(old) in writes:
            eqns += _write(eqn, *writes[id(old)])
        else:
            eqns.append(eqn)
    return eqns


def _read(eqn: Eqn, value: Var, same: dict[Atom, Atom]) -> list[Eqn]:
    """What takes the place of a read: the value carried, in the shape in which it was read."""
    (out,) = eqn.outvars
    if out.aval is value.aval:
        same[out] = value
        return []
    params = ReshapeParams(out.aval.shape)
    return [new_eqn(reshape_p, [value], params, [out], eqn.source)]


def _write(eqn: Eqn, chain: Chain, refs: Sequence[Var], values: Sequence[Var]) -> list[Eqn]:
    """A write, and what hands all values on by one step."""
    ref, new, *index = eqn.invars
    eqns = [eqn]
    if eqn.primitive is not swap_p:
        indexer = eqn.params.indexer
        old = new_eqn(get_p, [ref, *index], IndexParams(indexer), source=eqn.source)
        total = new_eqn(add_p, [*old.outvars, new], NO_PARAMS, [Var(chain.aval)], eqn.source)
        (new,) = total.outvars
        params = SwapParams(indexer, returns_old=False)
        eqns = [old, total, new_eqn(swap_p, [ref, new, *index], params, (), eqn.source)]
    whole = SwapParams(whole_indexer(chain.aval.shape), returns_old=False)
    handed = zip(refs, [new, *values], strict=False)
    return [*eqns, *[new_eqn(swap_p, [r, x], whole, ()) for r, x in handed]]
