"""Ref arguments of a transformed function: the Refs that replace them during the call, and which may be returned."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fiveloop.core import ad, ir, rules, transforms
from fiveloop.core.arrays import Value
from fiveloop.core.trace.stage import StageTrace, StageTracer
from fiveloop.core.trace.tracer import ARGUMENT, Trace, Tracer, current_trace


@dataclass(frozen=True, slots=True)
class StandIn:
    """A mutable value made of some contents; `before` is the buffer of these, if it exists now."""

    value: Value
    before: Any

    @property
    def is_changed(self) -> bool:
        """Whether something may have been written to it."""
        x = innermost(self.value)
        if isinstance(x, StageTracer) and isinstance(x.owner, StageTrace):
            eqns = x.owner.eqns
            written = [eqn.invars[k] for eqn in eqns for k in ir.mutated_positions(eqn.effects)]
            return any(atom is x.binder for atom in written)
        return _buffer(x) is not self.before


def stand_in(contents: Value, aval: ir.Aval) -> StandIn:
    """A new mutable value of the kind of a type, with these contents."""
    value = holding(contents, aval)
    return StandIn(value, _buffer(innermost(value)))


def holding(contents: Value, aval: ir.Aval) -> Value:
    """A new mutable value of the kind of a type, with these contents."""
    make = rules.type_rules(aval).holding
    assert make is not None, "unreachable: the value can change"
    return make(contents)


def innermost(x: Value) -> Value:
    """What a value is to the trace that writes down, or to nobody: without tangents and batch axes."""
    while isinstance(x, transforms.JvpTracer | transforms.BatchTracer):
        x = x.primal if isinstance(x, transforms.JvpTracer) else x.value
    return x


class _Given(threading.local):
    values: tuple[Value, ...] = ()


_given = _Given()


@contextmanager
def giving(values: ad.Values) -> Iterator[None]:
    """While a function runs, the mutable values that it is given are not its own."""
    before = _given.values
    _given.values = (*before, *values)
    try:
        yield
    finally:
        _given.values = before


def is_given(x: Value) -> bool:
    """Whether a function is given a mutable value, or it comes from outside of what is being staged."""
    if any(x is y for y in _given.values):
        return True
    trace: Trace | None = current_trace()
    while trace is not None and type(trace) is not StageTrace:
        trace = trace.parent
    if trace is None:
        return False
    x = innermost(x)
    return not isinstance(x, StageTracer) or x.owner is not trace or x.source is ARGUMENT


def _buffer(x: Value) -> Any:
    return None if isinstance(x, Tracer) else rules.type_rules(x.aval).buffer(x)
