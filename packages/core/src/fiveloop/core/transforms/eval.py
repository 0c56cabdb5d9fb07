"""Evaluates a jaxpr equation by equation, under the current trace or with a given step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fiveloop.core import ad, ir, rules, trace
from fiveloop.core.arrays import Value


def eval_jaxpr(jaxpr: ir.Jaxpr, args: ad.Values) -> list[Value]:
    """The results of a jaxpr on values; each operation is interpreted by the current trace.

    >>> jaxpr = make_jaxpr(lambda x, y: (x + y, x * y))(1.0, 1.0)
    >>> eval_jaxpr(jaxpr, [as_value(2.0), as_value(3.0)])
    [Array(5., dtype=float32, weak_type=True), Array(6., dtype=float32, weak_type=True)]
    """
    return interpret(jaxpr, args, trace.bind_eqn)


def interpret(jaxpr: ir.Jaxpr, args: Sequence[Any], step: ir.Step) -> list[Any]:
    """The results of a jaxpr whose equations give what `step` says, for the equation and its operands.

    Operations of a step come from the line of its equation.

    >>> def doubled(eqn, operands):
    ...     return [2.0 * out for out in bind_eqn(eqn, operands)]
    >>> interpret(make_jaxpr(lambda x: (x + 1.0) + 1.0)(1.0), [as_value(1.0)], doubled)[0].item()
    10.0
    """
    env = ir.Environment[Any](zip(jaxpr.invars, args, strict=True))
    with trace.keep_source() as set_source:
        env.run(jaxpr.eqns, step, set_source)
    return [env.read(a) for a in jaxpr.outvars]


def run_halves(
    rule: Callable[[ir.Eqn], rules.EqnSplit],
    prim: ir.Primitive[Any],
    args: ad.Values,
    params: Any,
    parent: trace.Trace,
    process: Callable[[ir.Primitive[Any], ad.Values, Any], list[Value]],
) -> list[Value]:
    """The results of an operation cut in two by `rule`: the known half under `parent`, the staged half by `process`."""
    invars = [ir.Var(x.aval) for x in args]
    eqn = rules.new_eqn(prim, invars, params, source=trace.current_source())
    cut = rule(eqn)
    env = ir.Environment[Value](zip(invars, args, strict=True))
    with trace.use_trace(parent):
        env.run(cut.known, trace.bind_eqn)
    env.run(cut.staged, lambda eqn, operands: process(eqn.primitive, operands, eqn.params))
    return [env[v] for v in eqn.outvars]


def happens_once(holder: ir.Eqn | ir.Jaxpr) -> bool:
    """Whether an equation or a jaxpr has an effect that must not happen twice, at any depth."""
    return bool(holder.effects) and any(
        not isinstance(e, ir.PositionalEffect) and not e.recomputable for e in holder.effects
    )


def replayed(eqn: ir.Eqn) -> list[ir.Eqn] | None:
    """What runs in place of an equation when it runs again, if anything; None if its values cannot be made again."""
    if not happens_once(eqn):
        return [eqn]
    inner = ir.jaxprs_in(eqn.params)
    if not inner:
        return None if eqn.outvars or _changes_refs(eqn) else []
    if any(_replayed_jaxpr(j) is None for j in inner):
        return None
    params = ir.with_jaxprs(eqn.params, lambda j: _replayed_jaxpr(j) or j)
    made = rules.new_eqn(eqn.primitive, eqn.invars, params, eqn.outvars, eqn.source)
    # What still has the effect has it in a rule of its own.
    return None if happens_once(made) else [made]


@ir.once_per_jaxpr
def _replayed_jaxpr(jaxpr: ir.Jaxpr) -> ir.Jaxpr | None:
    used = ir.used_vars(jaxpr.outvars)
    eqns: list[ir.Eqn] = []
    for eqn in reversed(jaxpr.eqns):
        found = replayed(eqn)
        if found is None and (_changes_refs(eqn) or not used.isdisjoint(eqn.outvars)):
            return None
        eqns += found or []
        used |= ir.used_vars([a for again in found or [] for a in again.invars])
    return jaxpr.replace(eqns=eqns[::-1])


def _changes_refs(eqn: ir.Eqn) -> bool:
    return any(isinstance(e, ir.PositionalEffect) for e in eqn.effects)
