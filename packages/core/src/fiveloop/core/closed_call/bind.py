"""Calls as values flow through them: what is an operand, a constant or another result again stays outside."""

from __future__ import annotations

from typing import Any

from fiveloop.core import ad, ir, trace, util
from fiveloop.core.arrays import Value
from fiveloop.core.closed_call.primitive import ClosedCallParams, closed_call_p
from fiveloop.core.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class _Forwarding:
    """A jaxpr without the results that are at hand outside.

    whole : [*operands] -> [*outs]
    jaxpr : [*operands] -> [*computed]
    """

    whole: ir.Jaxpr
    jaxpr: ir.Jaxpr

    def results(self, operands: ad.Values, computed: ad.Values) -> list[Value]:
        """What the whole jaxpr gives."""
        at_hand = dict(zip(self.whole.invars, operands, strict=True))
        at_hand |= zip(self.jaxpr.outvars, computed, strict=True)  # type: ignore[arg-type]  # they are variables
        return [
            a.value if isinstance(a, ir.Literal) else at_hand[a]  # type: ignore[misc]  # every constant is a value
            for a in self.whole.outvars
        ]


def _forwarding(jaxpr: ir.Jaxpr) -> _Forwarding:
    def make() -> _Forwarding:
        inputs = set(jaxpr.invars)
        computed = [
            a for a in util.dedupe(jaxpr.outvars) if isinstance(a, ir.Var) and a not in inputs
        ]
        same = len(computed) == len(jaxpr.outvars)
        return _Forwarding(jaxpr, jaxpr if same else jaxpr.replace(outvars=computed))

    return jaxpr.remember("forwarding", make)


def bind_call(prim: ir.Primitive[Any], operands: ad.Values, p: Any) -> list[Value]:
    """Bind a primitive that calls its jaxprs; of one, results that are at hand outside do not pass through it.

    So a derivative keeps them once, and never as the result of a call. A call of which nothing is left is none.

    >>> inner = make_jaxpr(lambda x: (x, x * 2.0))(1.0)
    >>> print(make_jaxpr(lambda x: bind_call(closed_call_p, [x], ClosedCallParams(inner)))(1.0))
    { lambda a:f32*[] ; let
        b:f32*[] = closed_call a
          jaxpr { lambda c:f32*[] ; let
              d:f32*[] = mul c 2.0*
            in (d,) }
      in (a, b) }
    """
    jaxpr, *others = ir.jaxprs_in(p)
    found = _forwarding(jaxpr)
    if found.jaxpr is jaxpr or others or [x.aval for x in operands] != jaxpr.in_avals:
        return trace.bind(prim, *operands, params=p)
    for x in operands:
        trace.check_live(x)  # also one that is only handed on
    computed: list[Value] = []
    if found.jaxpr.outvars or found.jaxpr.effects:
        computed = trace.bind(prim, *operands, params=ir.with_jaxprs(p, lambda _: found.jaxpr))
    return found.results(operands, computed)


def call_jaxpr(
    jaxpr: ir.Jaxpr, operands: ad.Values, name: str = "", inline: bool = False
) -> list[Value]:
    """`closed_call` of a jaxpr: one equation, kept whole by every transform.

    >>> import numpy as np
    >>> from fiveloop.core import make_jaxpr
    >>> from fiveloop.core.extend import as_value
    >>> call_jaxpr(make_jaxpr(lambda x: (x, x * 2.0))(1.0), [as_value(3.0)])[1].item()
    6.0
    """
    return bind_call(closed_call_p, operands, ClosedCallParams(jaxpr, name or jaxpr.name, inline))
