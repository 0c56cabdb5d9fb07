"""The derivative that a custom rule gives, as a jaxpr: for rules that change what it does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from fiveloop.core import CustomRuleParams, Jaxpr, Masked, Tangent, Value, rule_jvp, stage


@dataclass(frozen=True)
class StagedJvp:
    """`jaxpr : [*captured, *values, *nonzero dots] -> [*outs, *nonzero outs_dot]`, and `args` for it."""

    jaxpr: Jaxpr
    captured: Sequence[Value]
    args: Sequence[Value]
    flat: Masked

    def apart(self, results: Sequence[Value]) -> tuple[list[Value], list[Tangent]]:
        """Results and tangents, from what a form of the jaxpr has given."""
        outs, outs_dot = self.flat.apart(results)
        return outs, [t for t in outs_dot if t is not None]


def staged_jvp(
    p: CustomRuleParams, values: Sequence[Value], tangents: Sequence[Tangent]
) -> StagedJvp:
    """What the rule of an equation computes at these values and tangents."""
    flat = Masked(partial(rule_jvp, p), len(values), tangents)
    args = [*values, *flat.dots]
    staged = stage(flat, [x.aval for x in args], p.name)
    return StagedJvp(staged.jaxpr, staged.captured, [*staged.captured, *args], flat)
