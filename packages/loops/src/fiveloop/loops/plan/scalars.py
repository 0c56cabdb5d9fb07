"""Scalar replacement of aggregates: where steps only add to a few elements of a Ref, each element becomes a sum.

The cotangent of parameters `p` of which a step takes `p[0]` and `p[1]` is such a Ref. As numbers the sums stay in
registers, and no addition to one has to be ordered before another. After the loop the sums are added to the contents
that the Ref had before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fiveloop.core import Jaxpr, Value, ir, prims, rules, trace, transforms
from fiveloop.core.dataclass import replace
from fiveloop.core.index import access
from fiveloop.core.ir.indexer import Indexer, whole_indexer
from fiveloop.loops import names, record
from fiveloop.loops.analysis.accesses import Made, element_added_to, is_entered, refs_in
from fiveloop.loops.primitives.for_loop import by_operand, for_p
from fiveloop.state import AbstractRef, primitives

STEP = "scalars"
SUMMED = "steps only add to these elements, and each has a sum of its own"
NOT_SUMMED = "its elements get no sums of their own"
MOST = 4
"""Elements of a Ref that have sums of their own, at most.

Measured on two versions of jaxlib with loops that add to 2 to 16 elements. Gradients with 8 take 1.08 times as long;
so do loops with elements that are read as well, and with slices of 4 elements.
"""

Sums = Mapping[Indexer, ir.Var]
"""The Ref that has what is added to each element of another."""


def scalars(eqn: ir.Eqn) -> record.Planned:
    """A loop with a sum for each element of the Refs to whose elements its steps add, and do nothing else with them."""
    p = eqn.params
    if p.num_carry or p.nsteps < 2:
        return record.Planned(eqn)
    told, sums = list[record.Decision](), dict[ir.Var, Sums]()
    for k in sorted(ir.mutated_positions(p.body.effects)):
        ref, name = p.body.invars[k], p.names[k - 1]
        uses = list(_uses(p.body, ref))
        elements = dict.fromkeys(e for eqn in uses if (e := element_added_to(eqn)) is not None)
        if not elements or eqn.invars.count(eqn.invars[k - 1]) > 1:
            continue
        why = _why_not(uses, len(elements))
        if not why:
            sums[ref] = _sums(ref, elements)
        if p.record.tells and name not in names.OWN:
            reason = f"{NOT_SUMMED}: {why}" if why else SUMMED
            told.append(record.Decision(STEP, name, not why, reason, uses[0].source))
    return replace(_summing(eqn, sums), told=told) if sums else record.Planned(eqn, told=told)


def _uses(body: Jaxpr, ref: ir.Var) -> Iterator[ir.Eqn]:
    """What is done with a Ref, by branches and calls as well."""
    for eqn in body.eqns:
        if ref in eqn.invars and is_entered(eqn):
            for inner in ir.jaxprs_in(eqn.params):
                for v in [v for a, v in refs_in(eqn, inner) if a is ref]:
                    yield from _uses(inner, v)
        elif ref in eqn.invars:
            yield eqn


def _why_not(uses: ir.Eqns, count: int) -> str:
    """Why the elements of a Ref, so many, have no sums of their own; nothing if they have."""
    if not all(map(element_added_to, uses)):
        return "it is used elsewhere, too, or in another way"
    return f"there are {count} of them, more than {MOST}" if count > MOST else ""


def _sums(ref: ir.Var, elements: Mapping[Indexer, Any]) -> Sums:
    """A Ref for each of some elements of another."""
    sums = {e: ir.Var(AbstractRef(ir.ShapedArray((), ref.aval.dtype))) for e in elements}
    for element, v in sums.items():
        v.hint = ref.hint and f"{ref.hint}[{element.pretty()}]"
    return sums


def _summing(eqn: ir.Eqn, sums: Mapping[ir.Var, Sums]) -> record.Planned:
    """The loop with sums that begin at zero in the place of some Refs, and what adds them up with these.

    p.body : [i, *consts, *refs]                               -> []
    body   : [i, *consts, *refs, with sums in the place of some] -> []
    """
    p, after = eqn.params, list[ir.Eqn]()
    operands, outs = list[ir.Atom](), list[ir.Var]()
    finals = by_operand(p, eqn.invars, eqn.outvars)
    for v, x, final in zip(p.body.invars[1:], eqn.invars, finals, strict=True):
        out = [] if final is None else [final]
        if v not in sums:
            operands.append(x)
            outs += out
            continue
        zero = ir.ShapedArray((), v.aval.dtype)
        operands += [_zero(zero) for _ in sums[v]]
        outs += (totals := [ir.Var(zero) for _ in sums[v]])
        after += ir.inlined(_added(x.aval, list(sums[v])), [x, *totals])[0]
        if out:
            after[-1] = after[-1].replace(outvars=tuple(out))
    params = replace(p, body=_with_sums(p.body, sums))
    loop = rules.new_eqn(for_p, operands, params, outs, eqn.source)
    return record.Planned(loop, after=after)


def _zero(aval: ir.ShapedArray) -> ir.Atom:
    """Zero, a constant of a program."""
    (zero,) = trace.stage_closed(lambda: [transforms.zeros_of(aval)], []).outvars
    return zero


def _added(aval: ir.Aval, elements: Sequence[Indexer]) -> Jaxpr:
    """An array with totals added to its elements, `[x, *totals] -> [x]`; or a Ref: `[ref, *totals] -> []`."""

    def run(x: Value, *totals: Value) -> list[Value]:
        for element, total in zip(elements, totals, strict=True):
            if aval.accumulates:
                primitives.combine(x, total, element)
            else:
                x = access.put(x, element, (), total, "add")
        return [] if aval.accumulates else [x]

    return trace.stage_closed(run, [aval, *[ir.ShapedArray((), aval.dtype)] * len(elements)])


def _with_sums(body: Jaxpr, sums: Mapping[ir.Var, Sums]) -> Jaxpr:
    """A body with sums in the place of Refs, among its inputs and wherever it adds to these."""
    made = ir.makers(body)
    eqns = [new for eqn in body.eqns for new in _eqn_with_sums(eqn, sums, made)]
    invars = _spread(body.invars, sums)
    return Jaxpr(invars, ir.prune(eqns, body.outvars), body.outvars, body.name)


def _spread(atoms: ir.Atoms, sums: Mapping[ir.Var, Sums]) -> list[Any]:
    """Operands or inputs, with its sums in the place of each Ref that has some."""
    given: Mapping[Any, Sums] = sums
    return [x for a in atoms for x in (given[a].values() if a in given else [a])]


def _eqn_with_sums(eqn: ir.Eqn, sums: Mapping[ir.Var, Sums], made: Made) -> list[ir.Eqn]:
    """An equation that adds to sums, as does what it chooses or calls."""
    if sums.keys().isdisjoint(ir.used_vars(eqn.invars)):
        return [eqn]
    if is_entered(eqn):

        def entered(inner: Jaxpr) -> Jaxpr:
            refs = refs_in(eqn, inner)
            return _with_sums(inner, {v: _sums(v, sums[a]) for a, v in refs if a in sums})

        params = ir.with_jaxprs(eqn.params, entered)
        operands = _spread(eqn.invars, sums)
        return [rules.new_eqn(eqn.primitive, operands, params, eqn.outvars, eqn.source)]
    ref, x = eqn.invars
    element = element_added_to(eqn)
    assert isinstance(ref, ir.Var) and element is not None, "unreachable: it adds to an element"
    before = list[ir.Eqn]()
    if x.aval.shape:
        shaped = ir.maker(x, made, prims.reshape_p)
        if shaped is not None:
            x = shaped.invars[0]
        if x.aval.shape:
            before = [rules.new_eqn(prims.reshape_p, [x], prims.ReshapeParams(()))]
            x = before[0].outvars[0]
    params = primitives.IndexParams(whole_indexer(()))
    return [*before, rules.new_eqn(eqn.primitive, [sums[ref][element], x], params, (), eqn.source)]
