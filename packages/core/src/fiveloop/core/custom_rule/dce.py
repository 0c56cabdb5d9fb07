"""Dead code: drops unused results. All operands stay, since the rule may use them where the jaxpr does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fiveloop.core.array import Value
from fiveloop.core.custom_rule.primitive import (
    CustomRuleParams,
    RuleAround,
    rule_jvp,
    rule_transpose,
)
from fiveloop.core.ir.graph import must_stay
from fiveloop.core.ir.jaxpr import Eqn
from fiveloop.core.rules import Operand, Tangent, Zero, new_eqn
from fiveloop.core.trace.axes import AxisScope
from fiveloop.core.transforms.dce import dce
from fiveloop.core.util import Mask, select_by


def custom_rule_dce(used: Sequence[bool], eqn: Eqn) -> tuple[list[bool], Eqn | None]:
    """Nothing, if nothing is used; the used results alone, if there is a jaxpr to cut."""
    p: CustomRuleParams = eqn.params
    if not any(used) and not must_stay(eqn):
        return [False] * len(eqn.invars), None
    if p.jaxpr is None or all(used) or p.rule.batches:
        return [True] * len(eqn.invars), eqn
    smaller = replace(
        p,
        jaxpr=dce(p.jaxpr, used)[0],
        rule=SelectedRule(p, tuple(used), [v.aval for v in eqn.outvars]),
        scope=AxisScope(p.axes, p.axes),
    )
    outvars = select_by(used, eqn.outvars)
    return [True] * len(eqn.invars), new_eqn(
        eqn.primitive, eqn.invars, smaller, outvars, eqn.source
    )


class SelectedRule(RuleAround):
    """The rule of an equation of which some results are not used."""

    def __init__(self, inner: CustomRuleParams, used: Mask, out_avals: Sequence[object]) -> None:
        super().__init__(inner.rule)
        self.inner = inner
        self.used = used
        self.out_avals = out_avals

    def jvp(
        self, p: CustomRuleParams, primals: Sequence[Value], tangents: Sequence[Tangent]
    ) -> tuple[list[Value], list[Tangent]]:
        """What the whole rule gives for the results used."""
        outs, dots = rule_jvp(self.inner, primals, tangents)
        return select_by(self.used, outs), select_by(self.used, dots)

    def transpose(
        self, p: CustomRuleParams, cts: Sequence[Tangent], operands: Sequence[Operand]
    ) -> list[Tangent | None]:
        """The whole transpose, on cotangents that are zero for the results not used."""
        if not self.transposes:
            return super().transpose(p, cts, operands)
        given = iter(cts)
        full = [
            next(given) if u else Zero(aval.strong())  # type: ignore[attr-defined]
            for u, aval in zip(self.used, self.out_avals, strict=True)
        ]
        return rule_transpose(self.inner, full, operands)
