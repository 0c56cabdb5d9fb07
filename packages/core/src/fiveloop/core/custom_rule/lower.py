"""Lowering: a function of the module, written once per jaxpr; the rule has had its say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fiveloop.core.backend.hlo import IRValue
from fiveloop.core.custom_rule.primitive import CustomRuleParams


def custom_rule_lower(ctx: Any, operands: Sequence[IRValue], p: CustomRuleParams) -> list[IRValue]:
    """Call the function of the jaxpr."""
    assert p.jaxpr is not None, "unreachable: the pass `rules` has put a call in its place"
    return list(ctx.call(p.jaxpr, p.name or p.jaxpr.name, operands))
