"""Effects without a position, each handled by giving it a Ref: the column, the engine and the pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Self, TypeAlias

from fiveloop.core import Jaxpr, Value, ad, ir, passes, rules, trace, transforms
from fiveloop.core.closed_call import num_choosing
from fiveloop.core.dataclass import dataclass
from fiveloop.state import primitives
from fiveloop.state.refs import AbstractRef


class HandledEffect(ir.Effect):
    """An effect that a hidden Ref of the program implements; the subclass decides the contents of the Ref.

    A subclass is a frozen dataclass. Its method `initial` gives the contents of the Ref at the start of a program. If
    it `returns`, its method `at_return` takes the final contents. `define_handler` registers the rule of an equation
    with the effect.
    """

    @classmethod
    def initial(cls, effects: Sequence[Self]) -> Value:
        """The contents of the Ref at the start of a program with these effects."""
        raise TypeError(f"{cls.__name__} must say what its Ref holds at first: define `initial`")

    @classmethod
    def in_step(cls, ref: Value, i: Value, step: Callable[[], list[Value]]) -> list[Value]:
        """What step `i` of a loop gives, which `step` runs; an effect may look at the Ref before and after it.

        Steps are counted from 0, in the order in which they are made.
        """
        return step()

    @classmethod
    def in_lane(
        cls, ref: Value, lane: Value, around: int, step: Callable[[], list[Value]]
    ) -> list[Value]:
        """The results of a lane, which `step` runs, where lanes run one after the other inside `around` batches."""
        return step()


@dataclass(frozen=True)
class Handling:
    """An effect that is being handled: its type, and the type of the contents of its Ref."""

    effect: type[HandledEffect]
    aval: ir.Aval

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

    def concerns(self, holder: ir.Eqn | Jaxpr) -> bool:
        """Whether an equation or a jaxpr has the effect."""
        return ir.has_effect(holder, self.effect)


HandlerRule: TypeAlias = Callable[[Handling, Value, ad.Values, Any], ad.Values]


handler_rules: rules.RuleTable[HandlerRule] = rules.RuleTable(
    "handler",
    default="thread the Ref through its bodies, if it only runs them",
    by="define_handler(prim, rule)",
)


def define_handler(prim: ir.Primitive[Any], rule: HandlerRule) -> None:
    """Register the rule of a primitive with a handled effect; the rule takes the effect's Ref and returns the results.

    A primitive that has the effect itself reads and writes the Ref, and then has the effect no longer. A primitive that
    holds jaxprs hands the Ref on to them, as `call_handler` does, also without a rule if its bodies are all `plain`.

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


def thread_effect(jaxpr: Jaxpr, effect: type[HandledEffect], aval: ir.Aval) -> Jaxpr:
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
    return _thread(jaxpr, Handling(effect, aval))


@ir.once_per_jaxpr
def _thread(jaxpr: Jaxpr, handling: Handling) -> Jaxpr:
    def run(ref: Value, *args: Value) -> list[Value]:
        def step(eqn: ir.Eqn, operands: ad.Values) -> ad.Values:
            if not handling.concerns(eqn):
                return trace.bind_eqn(eqn, operands)
            if eqn.primitive not in handler_rules and rules.plain_bodies(eqn.primitive, eqn.params):
                return call_handler(eqn.primitive, handling, ref, operands, eqn.params)
            return handler_rules[eqn.primitive](handling, ref, operands, eqn.params)

        return transforms.interpret(jaxpr, args, step)

    avals = [AbstractRef(handling.aval), *jaxpr.in_avals]
    return trace.stage_closed(run, avals, jaxpr.name, ["an effect's", *jaxpr.hints])


def handle_all(jaxpr: Jaxpr) -> Jaxpr:
    """The program without effects that are handled."""
    found: set[Any] = {type(e) for e in jaxpr.effects if isinstance(e, HandledEffect)}
    for kind in sorted(found, key=lambda kind: (kind.__name__, kind.__module__)):
        jaxpr = _handle(jaxpr, kind)
    return jaxpr


def _handle(jaxpr: Jaxpr, kind: type[HandledEffect]) -> Jaxpr:
    """The program with a Ref of its own for the effects of one type.

    jaxpr    : [*ins]      -> [*outs]
    threaded : [ref, *ins] -> [*outs]
    handled  : [*ins]      -> [*outs, what the Ref holds in the end, if the effect takes it]
    """
    effects = [e for e in jaxpr.effects if type(e) is kind]
    # What is computed is computed in the program: an array would be one more argument of each call.
    initial = trace.stage_closed(lambda: [kind.initial(effects)], [])
    threaded = thread_effect(jaxpr, kind, initial.out_avals[0])
    ref, *invars = threaded.invars
    made = rules.new_eqn(primitives.new_ref_p, initial.outvars, primitives.NewRefParams(), [ref])
    eqns, outs = [*initial.eqns, made, *threaded.eqns], list(threaded.outvars)
    if kind.returns:
        eqns.append(rules.new_eqn(primitives.freeze_p, [ref], ir.NO_PARAMS))
        outs += eqns[-1].outvars
    return Jaxpr(invars, eqns, outs, jaxpr.name)


_is_handled = partial(ir.has_effect, kind=HandledEffect)
passes.register_pass(
    passes.Pass("handle", after=("dce", "plan"), applies=_is_handled, run=handle_all)
)


def call_handler(
    prim: ir.Primitive[Any], handling: Handling, ref: Value, operands: ad.Values, p: Any
) -> list[Value]:
    """Run the bodies with the Ref as one more operand; for any primitive that only runs its bodies.

    As a cell: `define_handler(prim, partial(call_handler, prim))`.

    >>> p = ClosedCallParams(make_jaxpr(lambda x: check(x > 0, "not positive"))(1.0))
    >>> ref = new_ref(CheckEffect.initial(p.jaxpr.effects))
    >>> handling = Handling(CheckEffect, ref.aval.inner)
    >>> outs = call_handler(closed_call_p, handling, ref, [as_value(-1.0)], p)
    >>> CheckEffect.at_return(ref[...])
    Traceback (most recent call last):
    fiveloop.state.checks.record.CheckError: not positive
      at ...
    """
    return bind_led(prim, ref, operands, p, handling.thread)


Led = Callable[[Jaxpr], Jaxpr]
"""From a body, `[*ins] -> [*outs]`, to one that takes the operand in front: `[lead, *ins] -> [*outs]`."""


def bind_led(
    prim: ir.Primitive[Any], lead: Value, operands: ad.Values, p: Any, led: Led
) -> list[Value]:
    """Bind a primitive that only runs its bodies with one more operand, which all of them take.

    It comes before the operands that the bodies take, or where the params say with `place_of`.
    """
    at, params = max(0, num_choosing(p, operands)), p
    if hasattr(p, "place_of"):
        at, params = p.place_of(lead.aval)

    def body(jaxpr: Jaxpr) -> Jaxpr:
        return lead_at(led(jaxpr), at + len(jaxpr.invars) - len(operands))

    params = ir.with_jaxprs(params, body)
    return trace.bind(prim, *operands[:at], lead, *operands[at:], params=params)


def lead_at(jaxpr: Jaxpr, at: int) -> Jaxpr:
    """The jaxpr with its first binder further back.

    jaxpr   : [lead, *ins]                -> [*outs]
    lead_at : [*ins[:at], lead, *ins[at:]] -> [*outs]
    """
    lead, *ins = jaxpr.invars
    return jaxpr.replace(invars=[*ins[:at], lead, *ins[at:]]) if at else jaxpr
