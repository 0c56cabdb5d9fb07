"""Everything fiveloop knows about `custom_rule`. Read the row here, then the cell you need.

It has no split rule: an equation of which some operands are unknown stays whole, and so keeps its rule.
"""

from __future__ import annotations

from fiveloop.core.custom_rule.batch import custom_rule_batch
from fiveloop.core.custom_rule.dce import custom_rule_dce
from fiveloop.core.custom_rule.jvp import custom_rule_jvp
from fiveloop.core.custom_rule.lower import custom_rule_lower
from fiveloop.core.custom_rule.primitive import (
    CustomRuleParams,
    custom_rule_abstract_eval,
    custom_rule_impl,
    custom_rule_p,
)
from fiveloop.core.custom_rule.transpose import custom_rule_transpose
from fiveloop.core.rule_types import Body
from fiveloop.core.rules import define


def custom_rule_bodies(p: CustomRuleParams) -> list[Body]:
    """The jaxpr, which runs once, if there is one."""
    return [] if p.jaxpr is None else [Body(p.jaxpr, "called", plain=not p.rule.batches)]


define(
    custom_rule_p,
    abstract_eval=custom_rule_abstract_eval,
    impl=custom_rule_impl,
    lower=custom_rule_lower,
    jvp=custom_rule_jvp,
    batch=custom_rule_batch,
    transpose=custom_rule_transpose,
    dce=custom_rule_dce,
    bodies=custom_rule_bodies,
)
