"""Handling an effect: one Ref goes through a whole jaxpr, to every equation that has the effect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fiveloop.core import Jaxpr, Value
from fiveloop.core.engine import bind_eqn, interpret
from fiveloop.core.extend import Aval, Eqn, Primitive, RuleTable, stage_closed
from fiveloop.state.avals import AbstractRef
from fiveloop.state.handlers.effect import HandledEffect


@dataclass(frozen=True)
class Handling:
    """An effect that is being handled: its type, and the type of what its Ref holds."""

    effect: type[HandledEffect]
    aval: Aval

    def thread(self, jaxpr: Jaxpr) -> Jaxpr:
        """A nested jaxpr that takes the Ref as its first operand, whether or not it has the effect.

        jaxpr    : [*ins]      -> [*outs]
        threaded : [ref, *ins] -> [*outs]
        """
        return thread_effect(jaxpr, self.effect, self.aval)

    @property
    def counts_steps(self) -> bool:
        """Whether the effect does something of its own in each step of a loop."""
        return self.effect.in_step.__func__ is not HandledEffect.in_step.__func__  # type: ignore[attr-defined]  # class methods have functions

    def concerns(self, holder: Eqn | Jaxpr) -> bool:
        """Whether an equation or a jaxpr has the effect."""
        return any(isinstance(e, self.effect) for e in holder.effects)


class HandlerRule(Protocol):
    def __call__(
        self, handling: Handling, ref: Value, operands: Sequence[Value], p: Any, /
    ) -> Sequence[Value]: ...


handler_rules: RuleTable[HandlerRule] = RuleTable(
    "handler", default="it has no handled effect", by="define_handler(prim, rule)"
)


def define_handler(prim: Primitive[Any], rule: HandlerRule) -> None:
    """Say what a primitive with a handled effect does with the effect's Ref, once; it gives the results.

    A primitive that has the effect itself reads and writes the Ref, and has it no longer. One that holds jaxprs hands
    the Ref on to them: `call_handler` does so for any that calls `p.jaxpr`.

    >>> class Count(HandledEffect):
    ...     pass
    >>> count_p, no = Primitive("count"), Refusal("handle it first")
    >>> types = lambda avals, p: ([], frozenset([Count()]))
    >>> define(count_p, abstract_eval=types, lower=no, jvp=no, batch=no)
    >>> def handler(handling, ref, operands, p):
    ...     ref[...] += operands[0]
    ...     return []
    >>> define_handler(count_p, handler)
    >>> jaxpr = make_jaxpr(lambda x: bind(count_p, x))(1.0)
    >>> print(thread_effect(jaxpr, Count, ShapedArray((), np.float32)))
    { lambda a:Ref{f32[]} b:f32*[] ; Accum<a> ; let
        c:f32[] = convert[dtype=f32] b
        a[] += c
      in () }
    """
    handler_rules.define(prim, rule)


def thread_effect(jaxpr: Jaxpr, effect: type[HandledEffect], aval: Aval) -> Jaxpr:
    """The jaxpr without an effect, which it has on a Ref of arrays of type `aval` instead.

    jaxpr    : [*ins]      -> [*outs]
    threaded : [ref, *ins] -> [*outs]

    RuleError if a primitive with the effect has no handler (see `define_handler`).

    >>> jaxpr = make_jaxpr(lambda x: check(x > 0, "not positive"))(1.0)
    >>> record = CheckEffect.initial(jaxpr.effects)
    >>> threaded = thread_effect(jaxpr, CheckEffect, record.aval)
    >>> threaded.in_avals[0] is AbstractRef(record.aval), mutated_positions(threaded.effects)
    (True, frozenset({0}))
    """
    handling = Handling(effect, aval)
    return jaxpr.remember(("threaded", handling), lambda: _thread(jaxpr, handling))


def _thread(jaxpr: Jaxpr, handling: Handling) -> Jaxpr:
    def run(ref: Value, *args: Value) -> list[Value]:
        def step(eqn: Eqn, operands: Sequence[Value]) -> Sequence[Value]:
            if handling.concerns(eqn):
                return handler_rules[eqn.primitive](handling, ref, operands, eqn.params)
            return bind_eqn(eqn, operands)

        return interpret(jaxpr, args, step)

    avals = [AbstractRef(handling.aval), *jaxpr.in_avals]
    return stage_closed(run, avals, jaxpr.name, ["an effect's", *jaxpr.hints])
