"""Dead code: drops unused results. All operands stay, since the rule may use operands that the jaxpr does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fiveloop.core import ad, ir, rules, trace, transforms, util
from fiveloop.core.custom_rule import primitive
from fiveloop.core.custom_rule.primitive import RuleParams


def custom_rule_dce(used: Sequence[bool], eqn: ir.Eqn) -> tuple[list[bool], ir.Eqn | None]:
    """The used results alone, if there is a jaxpr to cut."""
    p: RuleParams = eqn.params
    if p.jaxpr is None or all(used) or p.rule.batches:
        return [True] * len(eqn.invars), eqn
    smaller = replace(
        p,
        jaxpr=transforms.dce(p.jaxpr, used)[0],
        rule=SelectedRule(p, tuple(used), [v.aval for v in eqn.outvars]),
        scope=trace.AxisScope(p.axes, p.axes),
    )
    outvars = util.select_by(used, eqn.outvars)
    return [True] * len(eqn.invars), rules.new_eqn(
        eqn.primitive, eqn.invars, smaller, outvars, eqn.source
    )


class SelectedRule(primitive.RuleAround):
    """The rule of an equation of which some results are not used."""

    def __init__(self, inner: RuleParams, used: util.Mask, out_avals: Sequence[object]) -> None:
        super().__init__(inner)
        self.used = used
        self.out_avals = out_avals

    def jvp(self, p: RuleParams, primals: ad.Values, tangents: ad.Tangents) -> ad.Duals:
        """What the whole rule gives for the results used."""
        outs, dots = primitive.by_rule(self.inner, self.inner.rule.jvp, primals, tangents)
        return util.select_by(self.used, outs), util.select_by(self.used, dots)

    def transpose(self, p: RuleParams, cts: ad.Tangents, operands: ad.Operands) -> ad.Cotangents:
        """The whole transpose, on cotangents that are zero for the results not used."""
        if not self.transposes:
            return super().transpose(p, cts, operands)
        given = iter(cts)
        full = [
            next(given) if u else ad.Zero(aval.strong())  # type: ignore[attr-defined]
            for u, aval in zip(self.used, self.out_avals, strict=True)
        ]
        return primitive.by_rule(self.inner, self.inner.rule.transpose, full, operands)
