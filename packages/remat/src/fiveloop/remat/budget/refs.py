"""Refs that a program makes for itself, as values: a program can be cut where values are alive, not where a Ref is."""

from __future__ import annotations

from fiveloop.core import Jaxpr, Value, ir, trace
from fiveloop.state import discharge


@ir.once_per_jaxpr
def without_local_refs(jaxpr: Jaxpr) -> Jaxpr:
    """The jaxpr whose Refs are values, but for those from outside, those given back, and those of loops and branches.

    Outside of loops a write makes a new value in any case. A loop that changes a Ref stays one over that Ref.
    """
    local = _local_refs(jaxpr)
    if not local:
        return jaxpr

    def run(*args: Value) -> list[Value]:
        at_once = discharge.DischargeContext(None, lambda cell: [], lambda old, new: None)
        env = ir.Environment[Value | discharge.Cell](zip(jaxpr.invars, args, strict=True))

        def step(eqn: ir.Eqn, operands: discharge.Operands) -> discharge.Operands:
            values = [x for x in operands if isinstance(x, Value)]
            if len(values) == len(operands) and local.isdisjoint(eqn.outvars):
                return trace.bind_eqn(eqn, values)
            return discharge.discharge_eqn(at_once, eqn, operands)

        with trace.keep_source() as set_source:
            env.run(jaxpr.eqns, step, set_source)
        return [x for x in map(env.read, jaxpr.outvars) if isinstance(x, Value)]

    return trace.stage_closed(run, jaxpr.in_avals, jaxpr.name, jaxpr.hints)


def _local_refs(jaxpr: Jaxpr) -> set[ir.Var]:
    """The Refs that are made here, and used by nothing that holds equations."""
    made = {v for eqn in jaxpr.eqns for v in eqn.outvars if v.aval.accumulates}
    held = [a for eqn in jaxpr.eqns if [*ir.jaxprs_in(eqn.params)] for a in eqn.invars]
    return made - ir.used_vars([*held, *jaxpr.outvars])
