"""A batch of tangents: the primal computation and its effects run once for all directions.

An equation that has such an effect, and of which only some operands depend on the direction, is cut in two by its own
split rule: what does not depend on it runs once, with the effects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fiveloop.core import ad, ir, rules
from fiveloop.core.arrays import Value
from fiveloop.core.trace.leaks import leak_checked
from fiveloop.core.trace.tracer import current_trace
from fiveloop.core.transforms import batch, saving
from fiveloop.core.transforms.eval import run_halves


class DirectionTrace(batch.BatchTrace):
    """Computes derivatives in many directions at once; what the directions share is theirs together."""

    def process(self, prim: ir.Primitive[Any], args: ad.Values, params: Any) -> list[Value]:
        unknown = [self.pair(x)[1] is not None for x in args]
        if any(unknown) and prim in rules.split_rules and _acts(prim, args, params, unknown):
            return self._in_two(prim, args, params, unknown)
        return super().process(prim, args, params)

    def _once_a_lane(self, prim: ir.Primitive[Any], values: ad.Values, params: Any) -> bool:
        return prim.creates_state

    def _in_two(
        self, prim: ir.Primitive[Any], args: ad.Values, params: Any, unknown: Sequence[bool]
    ) -> list[Value]:
        eqn = rules.new_eqn(prim, [ir.Var(x.aval) for x in args], params)
        inst = [not x.aval.accumulates for x in args]
        cut = rules.split_rules[prim](saving.SAVE_EVERYTHING, unknown, inst, eqn)
        return run_halves(eqn, cut, args, self.parent, self._in_all)

    def _in_all(self, eqn: ir.Eqn, operands: ad.Values) -> list[Value]:
        return super().process(eqn.primitive, operands, eqn.params)


def _acts(prim: ir.Primitive[Any], args: ad.Values, params: Any, unknown: Sequence[bool]) -> bool:
    """Whether an operation does something to what the directions share."""
    if not ir.jaxprs_in(params):
        return False
    effects = rules.abstract_eval_rules[prim]([x.aval for x in args], params)[1]
    return any(
        not unknown[e.position] if isinstance(e, ir.PositionalEffect) else True
        for e in effects
        if not e.droppable
    )


@leak_checked
def batch_directions(
    fun: Callable[..., Sequence[Any]], size: int, values: ad.Values, user_fun: object
) -> tuple[list[Value], list[batch.BatchDim]]:
    """The outputs of a derivative in many directions, which lie in axis 0 of each value, and their batch axes."""
    trace = DirectionTrace(current_trace(), size, user_fun, binds_batch=True)
    return batch.run_batch(trace, fun, values, [0] * len(values))
