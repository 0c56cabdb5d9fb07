"""Running what is not differentiated beneath a derivative: values with tangents are what they are without."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fiveloop.core.array import Value
from fiveloop.core.ir.jaxpr import Primitive
from fiveloop.core.trace.tracer import Trace, bind, use_trace
from fiveloop.core.transforms.jvp import JvpTracer


class PrimalTrace(Trace):
    """Hands every operation on, with the primals of the values of `of`, a trace that has handed over to a rule."""

    parent: Trace

    def __init__(self, parent: Trace, of: Trace) -> None:
        super().__init__(parent)
        self.of = of

    def process(self, prim: Primitive[Any], args: Sequence[Value], params: Any) -> list[Value]:
        if prim.holds_functions:
            params = params.under(self.of)
        with use_trace(self.parent):
            return bind(prim, *map(self.primal, args), params=params)

    def knows(self, owner: Trace) -> bool:
        """The values of the trace that has handed over."""
        return owner is self.of

    def primal(self, x: Value) -> Value:
        """A value without its tangent."""
        return x.primal if isinstance(x, JvpTracer) and x.owner is self.of else x
