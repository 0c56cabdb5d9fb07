"""Transposition: what the rule says, or through the jaxpr."""

from __future__ import annotations

from collections.abc import Sequence

from fiveloop.core.custom_rule.primitive import CustomRuleParams, rule_transpose
from fiveloop.core.transforms.transpose import Operand
from fiveloop.core.transforms.zeros import Tangent


def custom_rule_transpose(
    cts: Sequence[Tangent], operands: Sequence[Operand], p: CustomRuleParams
) -> list[Tangent | None]:
    """The cotangents of the linear operands."""
    return rule_transpose(p, cts, operands)
