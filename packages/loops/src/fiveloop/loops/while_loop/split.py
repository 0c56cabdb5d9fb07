"""Partial evaluation: a loop of what is known, and the whole loop again for what is not.

How many steps there will be is not known, so nothing is kept from step to step: the staged half computes the
known values anew, on copies of the Refs as they were.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fiveloop.core import Jaxpr, errors, ir, rules, transforms, util
from fiveloop.loops.analysis.accesses import read_whole
from fiveloop.loops.primitives.while_loop import WhileParams, parts
from fiveloop.loops.record import KNOWN, LINEAR
from fiveloop.loops.while_loop.dce import while_dce
from fiveloop.state import primitives


def while_split(
    plan: transforms.SavingPlan, unknown: Sequence[bool], inst: Sequence[bool], eqn: ir.Eqn
) -> rules.EqnSplit:
    """Cut the loop in two; nothing is known if the condition is unknown, or if both halves do what must happen once."""
    p: WhileParams = eqn.params
    # Nothing is kept of a step, so that there is nothing to choose.
    found = _split_body(plan.plainly(), tuple(unknown), p)
    if found is None:
        return rules.EqnSplit([], [eqn], (True,) * len(eqn.outvars))
    cut, cond = found
    known = [not u for u in cut.unknown_in]
    consts, carry, _ = parts(p, known)
    # cut.known : [*known consts, *known carry, *known refs] -> [*known carry, *residuals]
    num_outs = sum(carry)
    used = [k < num_outs for k in range(len(cut.known.outvars))]
    body, _ = transforms.dce(cut.known, used)
    record = p.record.moved(KNOWN)
    params = replace(p, cond=cond, body=body, num_consts=sum(consts), record=record)
    outs = util.select_by(carry, eqn.outvars)
    known_eqn = rules.new_eqn(
        eqn.primitive, util.select_by(known, eqn.invars), params, outs, eqn.source
    )
    acts = transforms.happens_once(known_eqn)
    if acts and transforms.happens_once(cut.staged):
        return rules.EqnSplit([], [eqn], (True,) * len(eqn.outvars))
    copies = _copies(eqn, p, known, inst)
    operands = [copies[a][1].outvars[0] if a in copies else a for a in eqn.invars]
    outvars = [ir.Var(v.aval) if k else v for v, k in zip(eqn.outvars, carry, strict=True)]
    again = replace(p, record=p.record.moved(LINEAR))
    staged = rules.new_eqn(eqn.primitive, operands, again, outvars, eqn.source)
    if acts:
        staged = _again(staged, known=carry)
    reads, refs = [c[0] for c in copies.values()], [c[1] for c in copies.values()]
    return rules.EqnSplit([*reads, known_eqn], [*refs, staged], tuple(not k for k in carry))


def _again(eqn: ir.Eqn, known: Sequence[bool]) -> ir.Eqn:
    """The loop as the staged half makes it, for what is not known: without effects that must not happen twice."""
    _, smaller = while_dce([not k for k in known], eqn)
    assert smaller is not None, "unreachable: a loop with such an effect stays"
    found = transforms.replayed(smaller)
    if found is None:
        raise errors.RuleError(
            "`while` cannot run a second time for its derivative: what a call in it gives, which must be made once, "
            "would be needed again, and how many steps there are to keep it for is not known; use `for_loop`, `scan` "
            f"or `fori_loop`{errors.at_source(eqn.source)}"
        )
    return found[0]


def _split_body(
    plan: transforms.SavingPlan, unknown: util.Mask, p: WhileParams
) -> tuple[transforms.Split, Jaxpr] | None:
    """The body cut with what is unknown in some step, and the condition if it is known."""
    while True:
        consts, carry, refs = parts(p, unknown)
        nothing = (False,) * len(unknown)
        cut = transforms.split(p.body, unknown, nothing, plan, ensure_out_unknown=tuple(carry))
        test = transforms.split(p.cond, unknown, nothing, plan)
        late = [a or b for a, b in zip(cut.ref_unknown, test.ref_unknown, strict=True)]
        grown = (
            *consts,
            *cut.out_unknown,
            *[r or n for r, n in zip(refs, parts(p, late)[2], strict=True)],
        )
        if test.out_unknown[0]:
            return None
        if grown == unknown:
            # test.known : [*known ins] -> [pred, *residuals]
            only_pred = [k == 0 for k in range(len(test.known.outvars))]
            return cut, transforms.dce(test.known, only_pred)[0]
        unknown = grown


def _copies(
    eqn: ir.Eqn, p: WhileParams, known: Sequence[bool], inst: Sequence[bool]
) -> dict[ir.Atom, tuple[ir.Eqn, ir.Eqn]]:
    """For known Refs: a read of all that one holds, and a new Ref of that.

    None is needed for one that is at hand in the staged half and that the loop only reads.
    """
    found: dict[ir.Atom, tuple[ir.Eqn, ir.Eqn]] = {}
    changed = ir.mutated_positions(p.body.effects)
    for k in range(p.first_ref, len(eqn.invars)):
        if known[k] and (k in changed or not inst[k]):
            ref = eqn.invars[k]
            read = read_whole(ref, source=eqn.source)
            copy = rules.new_eqn(
                primitives.new_ref_p, read.outvars, primitives.NewRefParams(), source=eqn.source
            )
            found[ref] = (read, copy)
    return found
