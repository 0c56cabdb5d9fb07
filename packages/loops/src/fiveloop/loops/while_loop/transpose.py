"""Transposition: known values and the number of steps are computed first; the rest is a `replay`."""

from __future__ import annotations

from fiveloop.core import ad, errors, ir, rules, trace, transforms, util
from fiveloop.loops.primitives.while_loop import WhileParams, while_p
from fiveloop.loops.while_loop.split import while_split


def while_transpose(cts: ad.Tangents, operands: ad.Operands, p: WhileParams) -> ad.Cotangents:
    """Run the known half of the loop, and transpose the other."""
    linear = [transforms.is_linear(x) for x in operands]
    eqn = rules.new_eqn(while_p, [ir.Var(x.aval) for x in operands], p)
    cut = while_split(transforms.SAVE_EVERYTHING, linear, [True] * len(linear), eqn)
    if not cut.known:
        raise errors.RuleError(
            "`while` has no transpose here: its condition depends on what the function is linear in, so that it "
            "is not linear; compare a value that does not, or differentiate the function first (`jvp`, `linearize`)"
        )
    env = ir.Environment[ad.Operand](zip(eqn.invars, operands, strict=True))  # type: ignore[arg-type]  # it is on variables
    env.run(cut.known, trace.bind_eqn)
    made = {v for staged in cut.staged for v in staged.outvars}
    free = ir.vars_in_order([a for staged in cut.staged for a in staged.invars])
    ins = [v for v in free if v not in made]
    # staged : [*ins] -> [*results that are not known]
    staged = ir.Jaxpr(ins, cut.staged, util.select_by(cut.out_unknown, eqn.outvars))
    given = [env[v] for v in ins]
    found = transforms.backward_pass(staged, given, util.select_by(cut.out_unknown, cts))
    pairs = zip(util.select_by(list(map(transforms.is_linear, given)), ins), found, strict=True)
    of = dict(pairs)
    return [
        of.get(v, ad.Zero(v.aval)) if isinstance(x, ad.UndefinedPrimal) else None  # type: ignore[arg-type]  # they are variables
        for v, x in zip(eqn.invars, operands, strict=True)
    ]
