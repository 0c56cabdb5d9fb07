"""The predicate column: runs a jaxpr on a condition; if it is false, no Ref changes and no `while` starts.

`vmap` of a `cond` whose lanes choose for themselves runs every branch for all lanes; of a `while`, each step
until the last lane is done. What a lane does not take must leave no trace: a write is made to write what was
there, of the slice that it writes and not of the array; an inner `while` ends at once; an effect of another kind
takes place for the lanes alone that it is meant for, as its primitive's rule says. The condition is a scalar here:
rules are written for one lane, and batching comes after.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from fiveloop.core import Jaxpr, Value, ad, ir, prims, rules, trace, transforms, util
from fiveloop.core.dataclass import dataclass
from fiveloop.state import lead, primitives
from fiveloop.state.predicate.gate import follow, gate

PREDICATE = ir.ShapedArray((), np.bool_)


@dataclass(frozen=True, slots=True)
class Guard:
    """Which operands are Refs from outside, which must not change if the condition is false.

    `own` are those that each lane has its own of: no derivative flows through what is read from them if the
    condition does not hold. A read of a Ref that lanes share is left alone, or it would be made once a lane.
    With `shares`, what is read from any of them `follow`s the condition: derivatives flow to what lanes share.

    >>> Guard(refs=(True, False), own=(True, False)).after(1)
    Guard(refs=(False, True, False), own=(False, True, False), shares=False)
    """

    refs: util.Mask
    own: util.Mask
    shares: bool = False

    def without(self, count: int) -> Guard:
        """The guard of operands that come after the first few."""
        return Guard(self.refs[count:], self.own[count:], self.shares)

    def after(self, count: int) -> Guard:
        """The guard of operands before which there are a few that are no Refs."""
        none = (False,) * count
        return Guard(none + self.refs, none + self.own, self.shares)

    def of(self, body: Jaxpr, operands: ad.Values) -> Guard:
        """The guard of what a body takes, whose last binders stand for an equation's last operands."""
        more = len(body.invars) - len(operands)
        return self.without(-more) if more < 0 else self.after(more)

    def read(self, pred: Value, x: Value) -> Value:
        """A read of the first operand, if the condition is true."""
        if self.shares and self.refs[0]:
            return follow(pred, x)
        return gate(pred, x) if self.own[0] else x


PredicateRule: TypeAlias = Callable[[Value, ad.Values, Guard, Any], list[Value]]


predicate_rules: rules.RuleTable[PredicateRule] = rules.RuleTable(
    "predicate",
    default="run its bodies on condition, if it only runs them; else run, and put back what it changed",
    by="define_predicate(prim, rule)",
)
always_rules: rules.RuleTable[bool] = rules.RuleTable(
    "on_condition",
    default="run, where it has no Ref and no effect",
    by="define_predicate(prim, rule, always=True)",
)


def define_predicate(prim: ir.Primitive[Any], rule: PredicateRule, *, always: bool = False) -> None:
    """Register how a primitive runs on a condition; `always` if that matters even without Refs and effects.

    If the condition is false, the primitive changes no Ref that `guard.refs` marks among its operands, none of its
    other effects takes place, and its results do not matter. This accumulation then adds zero:

    >>> grow_p, no = Primitive("grow"), Refusal("discharge it first")
    >>> types = lambda avals, p: ([], frozenset([AccumEffect(0)]))
    >>> define(grow_p, abstract_eval=types, lower=no, jvp=no, batch=no)
    >>> def predicate(pred, operands, guard, p):
    ...     ref, x = operands
    ...     return bind(grow_p, ref, select(pred, x, zeros_of(x.aval)))
    >>> define_predicate(grow_p, predicate)
    >>> jaxpr = make_jaxpr(lambda r, x: bind(grow_p, r, x))(new_ref(0.0), 1.0)
    >>> print(predicated(jaxpr, Guard((True, False), (False, False))))
    { lambda a:bool[] b:Ref{f32[]} c:f32*[] ; Accum<b> ; let
        d:f32[] = select a c 0.0
        grow b d ! Accum<b>
      in () }
    """
    predicate_rules.define(prim, rule)
    if always:
        always_rules.define(prim, True)


def predicated(jaxpr: Jaxpr, guard: Guard) -> Jaxpr:
    """The jaxpr on condition.

    jaxpr      : [*ins]       -> [*outs]
    predicated : [pred, *ins] -> [*outs]

    >>> def store(r, x):
    ...     r[...] = x
    >>> jaxpr = make_jaxpr(store)(new_ref(0.0), 1.0)
    >>> print(predicated(jaxpr, Guard(refs=(True, False), own=(True, False))))
    { lambda a:bool[] b:Ref{f32[]} c:f32*[] ; Read<b> Write<b> ; let
        d:f32[] = convert[dtype=f32] c
        e:f32[] <- b[]
        f:f32[] = select a d e
        b[] <- f
      in () }
    """

    def run(pred: Value, *args: Value) -> list[Value]:
        return eval_predicated(pred, jaxpr, args, guard)

    avals, hints = [PREDICATE, *jaxpr.in_avals], ["branch taken", *jaxpr.hints]
    key = ("predicated", guard)
    return jaxpr.remember(key, lambda: trace.stage_closed(run, avals, jaxpr.name, hints))


def eval_predicated(pred: Value, jaxpr: Jaxpr, args: ad.Values, guard: Guard) -> list[Value]:
    """The results of a jaxpr run on condition; they mean nothing if it does not hold.

    >>> def store(r, x):
    ...     r[...] = x
    >>> jaxpr, r = make_jaxpr(store)(new_ref(0.0), 1.0), new_ref(0.0)
    >>> guard = Guard(refs=(True, False), own=(True, False))
    >>> for pred, x in [(True, 5.0), (False, 7.0)]:
    ...     outs = eval_predicated(as_value(pred), jaxpr, [r, as_value(x)], guard)
    >>> r[...].item()
    5.0
    """
    refs, own = (set(util.select_by(mask, jaxpr.invars)) for mask in (guard.refs, guard.own))

    def step(eqn: ir.Eqn, operands: ad.Values) -> list[Value]:
        is_ref, is_own = (tuple(a in some for a in eqn.invars) for some in (refs, own))
        return _run(pred, eqn, operands, Guard(is_ref, is_own, guard.shares))

    return transforms.interpret(jaxpr, args, step)


def _run(pred: Value, eqn: ir.Eqn, operands: ad.Values, guard: Guard) -> list[Value]:
    if not any(guard.refs) and not _matters(eqn):
        return transforms.bind_eqn(eqn, operands)
    if eqn.primitive not in predicate_rules and rules.plain_bodies(eqn.primitive, eqn.params):
        return call_predicate(eqn.primitive, pred, operands, guard, eqn.params)
    if eqn.primitive in predicate_rules or ir.acts(eqn):
        return predicate_rules[eqn.primitive](pred, operands, guard, eqn.params)
    return _put_back(pred, eqn, operands, guard)


def call_predicate(
    prim: ir.Primitive[Any], pred: Value, operands: ad.Values, guard: Guard, p: Any
) -> list[Value]:
    """Run the bodies on condition; for any primitive that only runs its bodies.

    The condition is one more operand. As a cell: `define_predicate(prim, partial(call_predicate, prim))`.

    >>> def store(r, x):
    ...     r[...] = x
    >>> p, r = ClosedCallParams(make_jaxpr(store)(new_ref(0.0), 1.0)), new_ref(0.0)
    >>> guard = Guard(refs=(True, False), own=(True, False))
    >>> for pred, x in [(True, 5.0), (False, 7.0)]:
    ...     outs = call_predicate(closed_call_p, as_value(pred), [r, as_value(x)], guard, p)
    >>> r[...].item()
    5.0
    """

    def led(body: Jaxpr) -> Jaxpr:
        return predicated(body, guard.of(body, operands))

    return lead.bind_led(prim, pred, operands, p, led)


def _matters(eqn: ir.Eqn) -> bool:
    """Whether the condition matters to an equation that has no Ref from outside."""
    return (
        eqn.primitive in always_rules
        or ir.acts(eqn)
        or any(_holds_any(j) for j in ir.jaxprs_in(eqn.params))
    )


def _holds_any(jaxpr: Jaxpr) -> bool:
    return jaxpr.remember("predicate matters", lambda: any(map(_matters, jaxpr.eqns)))


def _put_back(pred: Value, eqn: ir.Eqn, operands: ad.Values, guard: Guard) -> list[Value]:
    """Run an equation that has no rule, and put back the contents of the Refs that it should not have changed."""
    changed = [operands[k] for k in sorted(ir.mutated_positions(eqn.effects)) if guard.refs[k]]
    old = [primitives.read(ref) for ref in changed]
    outs = transforms.bind_eqn(eqn, operands)
    for ref, before in zip(changed, old, strict=True):
        primitives.write(ref, prims.select(pred, primitives.read(ref), before))
    return outs
