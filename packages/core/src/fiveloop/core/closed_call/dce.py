"""Dead code: a call of a smaller jaxpr, with the operands that it still takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fiveloop.core import ir, rules, transforms, util


def call_dce(used: Sequence[bool], eqn: ir.Eqn) -> tuple[list[bool], ir.Eqn | None]:
    """The operands still used, and the smaller call; None if nothing is left of it.

    For any primitive that calls `p.jaxpr`, as its cell `dce`. `used` has a mask of the results.

    >>> jaxpr = make_jaxpr(lambda x, y: (x * 2.0, y * 3.0))(1.0, 1.0)
    >>> eqn = new_eqn(closed_call_p, jaxpr.invars, ClosedCallParams(jaxpr))
    >>> used_ins, smaller = call_dce([False, True], eqn)
    >>> used_ins, len(smaller.invars), len(smaller.params.jaxpr.eqns)
    ([False, True], 1, 1)
    """
    jaxpr, used_ins = transforms.dce(eqn.params.jaxpr, used, keep_ins=False)
    if not jaxpr.eqns and not any(used):
        return [False] * len(eqn.invars), None
    outvars = util.select_by(used, eqn.outvars)
    smaller = rules.new_eqn(
        eqn.primitive,
        util.select_by(used_ins, eqn.invars),
        replace(eqn.params, jaxpr=jaxpr),
        outvars,
        eqn.source,
    )
    return list(used_ins), smaller
