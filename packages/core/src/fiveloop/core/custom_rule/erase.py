"""The pass that replaces custom rules by plain calls: a lowered program is never differentiated."""

from __future__ import annotations

from fiveloop.core import ir, passes, rules, trace
from fiveloop.core.closed_call import ClosedCallParams, closed_call_p
from fiveloop.core.custom_rule.primitive import custom_rule_p, primal_jaxpr

holds_rules = ir.holding(custom_rule_p)


@ir.once_per_jaxpr
def erase_rules(jaxpr: ir.Jaxpr) -> ir.Jaxpr:
    """The jaxpr with a `closed_call` for each `custom_rule`, at any depth."""
    if not holds_rules(jaxpr):
        return jaxpr
    with trace.keep_source() as set_source:
        eqns = []
        for eqn in jaxpr.eqns:
            set_source(eqn.source)
            if eqn.primitive is custom_rule_p:
                called = erase_rules(primal_jaxpr(eqn.params, [a.aval for a in eqn.invars]))
                call = ClosedCallParams(called, eqn.params.name)
                eqn = rules.new_eqn(closed_call_p, eqn.invars, call, eqn.outvars, eqn.source)
            elif (params := ir.with_jaxprs(eqn.params, erase_rules)) is not eqn.params:
                eqn = eqn.replace(params=params)
            eqns.append(eqn)
    return jaxpr.replace(eqns=eqns)


passes.register_pass(passes.Pass("rules", after=(), applies=holds_rules, run=erase_rules))
