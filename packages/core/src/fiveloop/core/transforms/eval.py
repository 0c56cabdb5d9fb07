"""Run a jaxpr equation by equation under the current trace."""

from __future__ import annotations

from collections.abc import Sequence

from fiveloop.core.array import Value
from fiveloop.core.ir.jaxpr import Atom, Jaxpr, Var
from fiveloop.core.trace.tracer import bind, keep_source


def eval_jaxpr(jaxpr: Jaxpr, args: Sequence[Value]) -> list[Value]:
    """The results of a jaxpr on values; each operation is interpreted by the current trace.

    >>> jaxpr = make_jaxpr(lambda x, y: (x + y, x * y))(1.0, 1.0)
    >>> eval_jaxpr(jaxpr, [as_value(2.0), as_value(3.0)])
    [Array(5., dtype=float32, weak_type=True), Array(6., dtype=float32, weak_type=True)]
    """
    env: dict[Var, Value] = dict(zip(jaxpr.invars, args, strict=True))

    def read(atom: Atom) -> Value:
        return env[atom] if isinstance(atom, Var) else atom.value  # type: ignore[return-value]  # constants are values

    with keep_source() as set_source:
        for eqn in jaxpr.eqns:
            set_source(eqn.source)
            outs = bind(eqn.primitive, *map(read, eqn.invars), params=eqn.params)
            env.update(zip(eqn.outvars, outs, strict=True))
    return [read(a) for a in jaxpr.outvars]
