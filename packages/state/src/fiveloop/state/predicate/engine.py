"""The predicate column: runs a jaxpr on a condition; if it is false, no Ref changes and no `while` starts.

`vmap` of a `cond` whose lanes choose for themselves runs every branch for all lanes; of a `while`, each step until the
last lane is done. A branch that a lane has not chosen, or a step after its end, must have no effect on it: a write
writes the old contents back, of its slice and not of the whole array; an inner `while` ends at once; any other effect
takes place only for the lanes that it is meant for, as the rule of its primitive says. The condition is a scalar here:
rules are written for one lane, and batching comes after.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from fiveloop.core import Jaxpr, Value, ad, ir, prims, rules, trace, transforms, util
from fiveloop.core.dataclass import dataclass
from fiveloop.state import handlers, primitives
from fiveloop.state.predicate.gate import follow, gate
from fiveloop.state.predicate.live import live

PREDICATE = ir.ShapedArray((), np.bool_)


@dataclass(frozen=True, slots=True)
class Guard:
    """Which operands are Refs from outside, which must not change if the condition is false.

    `own` are the operands of which each lane has its own: a derivative flows to them, and to values read from such
    Refs, only if the condition holds. A read of a Ref that lanes share is left alone, or it would be made once a lane.
    With `shares` derivatives flow to operands that lanes share: values `follow` the condition, and so do reads of any
    Ref. With `late` the condition says that a lane goes on with a loop, and only the backward pass uses it.

    >>> Guard(refs=(True, False), own=(True, False)).after(1)
    Guard(refs=(False, True, False), own=(False, True, False), shares=False, late=False)
    """

    refs: util.Mask
    own: util.Mask
    shares: bool = False
    late: bool = False

    def on(self, refs: util.Mask, own: util.Mask) -> Guard:
        """The same guard of other operands."""
        return Guard(refs, own, self.shares, self.late)

    def after(self, count: int) -> Guard:
        """The guard of operands before which there are a few that are no Refs."""
        none = (False,) * count
        return self.on(none + self.refs, none + self.own)

    def of(self, body: Jaxpr, operands: ad.Values) -> Guard:
        """The guard of what a body takes, whose last binders stand for an equation's last operands."""
        more = len(body.invars) - len(operands)
        return self.on(self.refs[-more:], self.own[-more:]) if more < 0 else self.after(more)

    def read(self, pred: Value, x: Value) -> Value:
        """A lane's own value, to which a derivative flows only if the condition is true."""
        if self.late:
            return live(pred, x, self.shares)
        return follow(pred, x) if self.shares else gate(pred, x)


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
    other effects takes place, and its results have no meaning. This accumulation then adds zero:

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


@ir.once_per_jaxpr
def predicated(jaxpr: Jaxpr, guard: Guard) -> Jaxpr:
    """The jaxpr that runs on a condition, its first input.

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
    return trace.stage_closed(run, avals, jaxpr.name, hints)


def eval_predicated(pred: Value, jaxpr: Jaxpr, args: ad.Values, guard: Guard) -> list[Value]:
    """The results of a jaxpr run on a condition; they have no meaning if the condition is false.

    >>> def store(r, x):
    ...     r[...] = x
    >>> jaxpr, r = make_jaxpr(store)(new_ref(0.0), 1.0), new_ref(0.0)
    >>> guard = Guard(refs=(True, False), own=(True, False))
    >>> for pred, x in [(True, 5.0), (False, 7.0)]:
    ...     outs = eval_predicated(as_value(pred), jaxpr, [r, as_value(x)], guard)
    >>> r[...].item()
    5.0
    """
    return transforms.interpret(jaxpr, args, _OnCondition(pred, jaxpr, guard).step)


_IN_PLACE = (prims.take_p, prims.put_p)
"""What reads an array or changes it at indices is no reason to touch all of it."""


class _OnCondition:
    """The equations of a jaxpr on a condition: of which values lanes have their own, and what takes their place."""

    def __init__(self, pred: Value, jaxpr: Jaxpr, guard: Guard) -> None:
        self.pred, self.guard = pred, guard
        self.refs = set(util.select_by(guard.refs, jaxpr.invars))
        self.own = set(util.select_by(guard.own, jaxpr.invars))
        self.used: dict[ir.Atom, Value] = {}

    def step(self, eqn: ir.Eqn, operands: ad.Values) -> list[Value]:
        """Run an equation."""
        array = eqn.invars[0] if eqn.primitive in _IN_PLACE else None
        pairs = zip(eqn.invars, operands, strict=True)
        given = [x if a is array else self._used(a, x) for a, x in pairs]
        is_ref = tuple(a in self.refs for a in eqn.invars)
        is_own = tuple(r and a in self.own for a, r in zip(eqn.invars, is_ref, strict=True))
        if not any(is_ref) and not _matters(eqn):
            if array in self.own:
                self.own.update(eqn.outvars)
            return trace.bind_eqn(eqn, given)
        if any(is_own) or self.guard.shares or not any(is_ref):
            self.own.update(eqn.outvars)
        return _run(self.pred, eqn, given, self.guard.on(is_ref, is_own))

    def _used(self, a: ir.Atom, x: Value) -> Value:
        """What an operand is computed with."""
        if a not in self.own or a in self.refs:
            return x
        if a not in self.used:
            self.used[a] = self.guard.read(self.pred, x)
        return self.used[a]


def _run(pred: Value, eqn: ir.Eqn, operands: ad.Values, guard: Guard) -> list[Value]:
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

    return handlers.bind_led(prim, pred, operands, p, led)


def _matters(eqn: ir.Eqn) -> bool:
    """Whether the condition matters to an equation that has no Ref from outside."""
    if eqn.primitive in always_rules or ir.acts(eqn):
        return True
    return any(map(_matters_within, ir.jaxprs_in(eqn.params)))


@ir.once_per_jaxpr
def _matters_within(jaxpr: Jaxpr) -> bool:
    return any(map(_matters, jaxpr.eqns))


def _put_back(pred: Value, eqn: ir.Eqn, operands: ad.Values, guard: Guard) -> list[Value]:
    """Run an equation that has no rule, and put back the contents of the Refs that it should not have changed."""
    changed = [operands[k] for k in sorted(ir.mutated_positions(eqn.effects)) if guard.refs[k]]
    old = [primitives.read(ref) for ref in changed]
    outs = trace.bind_eqn(eqn, operands)
    for ref, before in zip(changed, old, strict=True):
        primitives.write(ref, prims.select(pred, primitives.read(ref), before))
    return outs
