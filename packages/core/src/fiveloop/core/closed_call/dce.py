"""Dead code: a call of a smaller jaxpr, with the operands that it still takes."""

from __future__ import annotations

from collections.abc import Sequence

from fiveloop.core import ir, rules, transforms, util
from fiveloop.core.closed_call.bodies import changed_alike, num_choosing


def call_dce(used: Sequence[bool], eqn: ir.Eqn) -> tuple[list[bool], ir.Eqn | None]:
    """The operands still used, and the smaller call; None if nothing is left of it.

    For any primitive that calls its jaxprs, as its cell `dce`. `used` has a mask of the results.

    >>> jaxpr = make_jaxpr(lambda x, y: (x * 2.0, y * 3.0))(1.0, 1.0)
    >>> eqn = new_eqn(closed_call_p, jaxpr.invars, ClosedCallParams(jaxpr))
    >>> used_ins, smaller = call_dce([False, True], eqn)
    >>> used_ins, len(smaller.invars), len(smaller.params.jaxpr.eqns)
    ([False, True], 1, 1)
    """
    params, used_ins = changed_alike(eqn.params, lambda j, keep: transforms.dce(j, used, keep))
    if not any(used) and not any(j.eqns for j in ir.jaxprs_in(params)):
        return [False] * len(eqn.invars), None
    used_ins = (True,) * num_choosing(eqn.params, eqn.invars) + used_ins
    invars, outvars = util.select_by(used_ins, eqn.invars), util.select_by(used, eqn.outvars)
    return list(used_ins), rules.new_eqn(eqn.primitive, invars, params, outvars, eqn.source)
