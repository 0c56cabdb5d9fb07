"""Constants of a body that are read at indices become Refs that nothing writes.

A constant's cotangent is an array as large as it in every step; a Ref's is one element for each element read.
"""

from __future__ import annotations

from collections.abc import Sequence

from fiveloop.core import (
    Atom,
    Eqn,
    Indexer,
    Jaxpr,
    Literal,
    Span,
    Var,
    dynamic_slice_p,
    is_scalar,
    mutated_positions,
    new_eqn,
    whole_indexer,
)
from fiveloop.loops.for_loop.primitive import for_p, is_state
from fiveloop.state import AbstractRef, IndexParams, get_p


def promote_constants(body: Jaxpr, num_consts: int, num_refs: int) -> tuple[Jaxpr, list[bool]]:
    """The body with its indexed constants as Refs behind the other Refs, and which constants those are.

    body     : [i, *consts, *refs, *rest]                 -> [*outs]
    promoted : [i, *consts kept, *refs, *promoted, *rest] -> [*outs]
    """
    i, *binders = body.invars
    consts, rest = binders[:num_consts], binders[num_consts:]
    indexed = {a for eqn in body.eqns for a in _indexed(eqn)}
    mask = [v in indexed for v in consts]
    if not any(mask):
        return body, mask
    refs = {v: Var(AbstractRef(v.aval)) for v, m in zip(consts, mask, strict=True) if m}
    eqns = [new for eqn in body.eqns for new in _rewritten(eqn, refs)]
    outs: list[Atom] = []
    for atom in body.outvars:
        eqn, atom = _read_whole(atom, refs)
        eqns += eqn
        outs.append(atom)
    kept = [v for v in consts if v not in refs]
    invars = [i, *kept, *rest[:num_refs], *refs.values(), *rest[num_refs:]]
    return Jaxpr(invars, eqns, outs, body.name), mask


def _indexed(eqn: Eqn) -> Sequence[Atom]:
    """The values that an equation reads at an index: of a slice, or in an inner loop that does not change them."""
    if eqn.primitive is dynamic_slice_p:
        return eqn.invars[:1]
    return [eqn.invars[k] for k in _read_states(eqn)] if eqn.primitive is for_p else []


def _read_states(eqn: Eqn) -> list[int]:
    """The states of an inner loop that it only reads."""
    changed = mutated_positions(eqn.params.body.effects)
    states = is_state(eqn.params, [a.aval for a in eqn.invars])
    return [k for k, state in enumerate(states) if state and k + 1 not in changed]


def _rewritten(eqn: Eqn, refs: dict[Var, Var]) -> list[Eqn]:
    if not any(a in refs for a in eqn.invars if isinstance(a, Var)):
        return [eqn]
    if eqn.primitive is dynamic_slice_p and eqn.invars[0] in refs:
        return [_slice_as_get(eqn, refs)]
    if eqn.primitive is for_p:
        return _inner_loop(eqn, refs)
    return _with_whole_reads(eqn, refs)


def _slice_as_get(eqn: Eqn, refs: dict[Var, Var]) -> Eqn:
    x, *starts = eqn.invars
    entries, operands = [], []
    for start, size, dim in zip(starts, eqn.params.sizes, x.aval.shape, strict=True):
        if size == dim:
            entries.append(Span(0, size))
        elif isinstance(start, Literal) and is_scalar(start):
            entries.append(Span(int(start.value.host), size))  # type: ignore[attr-defined]  # a scalar has its number
        else:
            entries.append(Span(None, size))
            operands.append(start)
    assert isinstance(x, Var), "unreachable: a promoted constant is a binder"
    return new_eqn(
        get_p, [refs[x], *operands], IndexParams(Indexer(tuple(entries))), eqn.outvars, eqn.source
    )


def _inner_loop(eqn: Eqn, refs: dict[Var, Var]) -> list[Eqn]:
    """An inner loop takes the Ref itself where it only reads; its result there is what the Ref holds."""
    reads = set(_read_states(eqn))
    before: list[Eqn] = []
    after: list[Eqn] = []
    operands: list[Atom] = []
    outs: list[Var] = []
    results = iter(eqn.outvars)
    states = is_state(eqn.params, [a.aval for a in eqn.invars])
    for _ in range(eqn.params.num_carry):
        outs.append(next(results))
    for k, (atom, state) in enumerate(zip(eqn.invars, states, strict=True)):
        result = next(results) if state else None
        if isinstance(atom, Var) and atom in refs and k in reads:
            assert result is not None, "unreachable: a state has a result"
            operands.append(refs[atom])
            after.append(_whole(refs[atom], result, eqn))
            continue
        eqns, operand = _read_whole(atom, refs)
        before += eqns
        operands.append(operand)
        outs += [result] if result is not None else []
    return [*before, new_eqn(for_p, operands, eqn.params, outs, eqn.source), *after]


def _with_whole_reads(eqn: Eqn, refs: dict[Var, Var]) -> list[Eqn]:
    reads: list[Eqn] = []
    operands: list[Atom] = []
    for atom in eqn.invars:
        eqns, operand = _read_whole(atom, refs)
        reads += eqns
        operands.append(operand)
    return [*reads, eqn.replace(invars=tuple(operands))]


def _read_whole(atom: Atom, refs: dict[Var, Var]) -> tuple[list[Eqn], Atom]:
    if not isinstance(atom, Var) or atom not in refs:
        return [], atom
    out = Var(atom.aval.strong())
    return [_whole(refs[atom], out, None)], out


def _whole(ref: Var, out: Var, eqn: Eqn | None) -> Eqn:
    source = eqn.source if eqn is not None else None
    return new_eqn(get_p, [ref], IndexParams(whole_indexer(ref.aval.shape)), [out], source)
