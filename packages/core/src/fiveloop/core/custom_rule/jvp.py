"""Forward mode: what the rule says; of what the user's functions close over, it says nothing."""

from __future__ import annotations

from collections.abc import Sequence

from fiveloop.core.array import Value
from fiveloop.core.custom_rule.primitive import CustomRuleParams, rule_jvp
from fiveloop.core.errors import at_source
from fiveloop.core.rule_types import Zero
from fiveloop.core.trace.tracer import current_source
from fiveloop.core.transforms.zeros import Tangent


def custom_rule_jvp(
    primals: Sequence[Value], tangents: Sequence[Tangent], p: CustomRuleParams
) -> tuple[list[Value], list[Tangent]]:
    """Results and tangents by the rule."""
    closed = 0 if p.rule.ignores_closed else p.num_closed
    for x, t in zip(primals[:closed], tangents, strict=False):
        if not isinstance(t, Zero):
            raise TypeError(
                f"the custom rule of {p.name}: expected derivatives with respect to its arguments, but it closes over "
                f"a value of type {x.aval} that is differentiated; pass that as an argument, so that the rule can tell "
                f"its part{at_source(current_source())}"
            )
    return rule_jvp(p, primals, tangents)
