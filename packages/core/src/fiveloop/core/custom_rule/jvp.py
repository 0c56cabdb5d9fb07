"""Forward mode: runs the rule; refuses tangents of values that the user functions close over."""

from __future__ import annotations

from fiveloop.core import ad, ir, trace, transforms
from fiveloop.core.custom_rule.primitive import RuleParams, by_rule, custom_rule_p


def custom_rule_jvp(primals: ad.Values, tangents: ad.Tangents, p: RuleParams) -> ad.Duals:
    """Results and tangents by the rule."""
    closed = 0 if p.rule.ignores_closed else p.num_closed
    constant = not any(transforms.nonzero_mask(tangents[p.num_closed :]))
    for k, (x, t) in enumerate(zip(primals[:closed], tangents, strict=False)):
        if isinstance(t, ad.Zero):
            continue
        # Does the rule alone close over the operand, and not the function?
        for_rule = p.jaxpr is not None and p.jaxpr.invars[k] not in ir.all_atoms(p.jaxpr)
        if not (constant and for_rule):
            raise TypeError(
                f"the custom rule of {p.name}: expected derivatives with respect to its arguments, but it closes over "
                f"a value of type {x.aval} that is differentiated; pass that as an argument, so that the rule can tell "
                f"its part"
            )
    if constant and closed:
        outs = trace.bind(custom_rule_p, *primals, params=p)
        return outs, [transforms.zero_like(x) for x in outs]
    return by_rule(p, p.rule.jvp, primals, tangents)
