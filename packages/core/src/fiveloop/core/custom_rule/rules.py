"""Everything fiveloop knows about `custom_rule`. Read the row here, then the cell you need.

It has no split rule: an equation of which some operands are unknown stays whole, and so keeps its rule.
"""

from __future__ import annotations

from typing import Any

from fiveloop.core.backend import hlo
from fiveloop.core.custom_rule import batch, dce, jvp, primitive
from fiveloop.core.custom_rule.primitive import RuleParams
from fiveloop.core.rules import Body, define


def custom_rule_lower(ctx: Any, operands: hlo.IRValues, p: RuleParams) -> list[hlo.IRValue]:
    """Call the function of the jaxpr, which is written once: the rule has had its say."""
    assert p.jaxpr is not None, "unreachable: the pass `rules` has put a call in its place"
    return list(ctx.call(p.jaxpr, p.name or p.jaxpr.name, operands))


define(
    primitive.custom_rule_p,
    abstract_eval=primitive.custom_rule_abstract_eval,
    # Operation by operation, as the user's function runs without any transform.
    impl=lambda values, p: primitive.by_rule(p, p.rule.call, values),
    lower=custom_rule_lower,
    jvp=jvp.custom_rule_jvp,
    batch=batch.custom_rule_batch,
    transpose=lambda cts, operands, p: primitive.by_rule(p, p.rule.transpose, cts, operands),
    dce=dce.custom_rule_dce,
    # The jaxpr, which runs once, if there is one.
    bodies=lambda p: [] if p.jaxpr is None else [Body(p.jaxpr, "called", plain=not p.rule.batches)],
)
