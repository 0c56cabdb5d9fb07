"""The primitive: a call with a rule of its own for the derivative, the transpose, or both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from fiveloop.core.array import Value
from fiveloop.core.closed_call.primitive import (
    ClosedCallParams,
    call_abstract_eval,
    closed_call_p,
)
from fiveloop.core.closed_call.transpose import call_transpose
from fiveloop.core.ir.avals import Aval
from fiveloop.core.ir.axes import NamedAxis, NamedAxisEffect
from fiveloop.core.ir.effects import Effects
from fiveloop.core.ir.jaxpr import Eqn, Jaxpr, Primitive
from fiveloop.core.ir.pretty import Names, define_printer, format_params
from fiveloop.core.trace.axes import AxisScope, ScopeTrace
from fiveloop.core.trace.stage import stage, stage_closed
from fiveloop.core.trace.tracer import current_trace, use_trace
from fiveloop.core.transforms.eval import eval_jaxpr
from fiveloop.core.transforms.transpose import Operand
from fiveloop.core.transforms.zeros import Tangent


@dataclass(frozen=True)
class CustomRuleParams:
    """What is called, and the rule of its derivative.

    jaxpr : [*closed, *args] -> [*results]

    The first `num_closed` operands are what the user's functions close over. Without a jaxpr, the rule itself knows
    what is computed, from operands of the types `in_avals`: it is a linear function that is given by its transpose, or
    one that runs operation by operation.

    The user's functions know named axes by the names in `scope`; `axes` are what those axes are by now.
    """

    name: str = field(default="", kw_only=True)
    rule: Rule
    jaxpr: Jaxpr | None = None
    num_closed: int = field(default=0, kw_only=True)
    in_avals: tuple[Aval, ...] = field(default=(), kw_only=True)
    axes: tuple[NamedAxis, ...] = field(default=(), kw_only=True)
    scope: AxisScope = field(default=AxisScope(), kw_only=True)

    @property
    def called(self) -> Jaxpr:
        """What is computed, as a jaxpr, derived if need be."""
        return primal_jaxpr(self, self.in_avals)


custom_rule_p: Primitive[CustomRuleParams] = Primitive("custom_rule")


class Rule:
    """How an equation is differentiated, and transposed where it is linear; compared by identity.

    `kind` is what the printer shows. `transposes` says that the rule has a transpose of its own; without one, the
    jaxpr is transposed. `ignores_closed` says that results do not depend on what the user's functions close over, as a
    solution does not on how it is found. `keeps_traced` tells the leak checker that what those functions close over is
    held on purpose.
    """

    kind = "rule"
    transposes = False
    ignores_closed = False
    keeps_traced = True

    def __repr__(self) -> str:
        return self.kind

    def call(self, p: CustomRuleParams, values: Sequence[Value]) -> list[Value]:
        """What the equation computes, under the current trace."""
        assert p.jaxpr is not None, f"unreachable: {self.kind} has no jaxpr and no call"
        return eval_jaxpr(p.jaxpr, values)

    def types(self, p: CustomRuleParams, avals: Sequence[Aval]) -> list[Aval]:
        """The types of the results, where there is no jaxpr."""
        return stage(lambda *xs: self.call(p, xs), avals, p.name).jaxpr.out_avals

    def jvp(
        self, p: CustomRuleParams, primals: Sequence[Value], tangents: Sequence[Tangent]
    ) -> tuple[list[Value], list[Tangent]]:
        """Results and their tangents, under the current trace."""
        raise TypeError(f"{p.name}: {self.kind} has no jvp")

    def transpose(
        self, p: CustomRuleParams, cts: Sequence[Tangent], operands: Sequence[Operand]
    ) -> list[Tangent | None]:
        """Cotangents of the linear operands, under the current trace: by default through the jaxpr."""
        jaxpr = primal_jaxpr(p, [x.aval for x in operands])
        return call_transpose(closed_call_p, cts, operands, ClosedCallParams(jaxpr, p.name))


@contextmanager
def _named_axes(p: CustomRuleParams) -> Iterator[None]:
    """Within the block, names of axes mean what they meant where the function was called."""
    if not p.axes:
        yield
        return
    with use_trace(ScopeTrace(current_trace(), p.scope, p.axes)):
        yield


def rule_call(p: CustomRuleParams, values: Sequence[Value]) -> list[Value]:
    """What an equation computes, by its rule."""
    with _named_axes(p):
        return p.rule.call(p, values)


def rule_types(p: CustomRuleParams, avals: Sequence[Aval]) -> list[Aval]:
    """The types of an equation's results, by its rule."""
    with _named_axes(p):
        return p.rule.types(p, avals)


def rule_jvp(
    p: CustomRuleParams, primals: Sequence[Value], tangents: Sequence[Tangent]
) -> tuple[list[Value], list[Tangent]]:
    """Results and tangents, by the rule."""
    with _named_axes(p):
        return p.rule.jvp(p, primals, tangents)


def rule_transpose(
    p: CustomRuleParams, cts: Sequence[Tangent], operands: Sequence[Operand]
) -> list[Tangent | None]:
    """Cotangents of the linear operands, by the rule."""
    with _named_axes(p):
        return p.rule.transpose(p, cts, operands)


def primal_jaxpr(p: CustomRuleParams, avals: Sequence[Aval]) -> Jaxpr:
    """What the equation computes, as a jaxpr of all its operands."""
    if p.jaxpr is not None:
        return p.jaxpr
    return stage_closed(lambda *xs: rule_call(p, xs), avals, p.name)


def custom_rule_abstract_eval(
    avals: Sequence[Aval], p: CustomRuleParams
) -> tuple[list[Aval], Effects]:
    """The types and effects of the jaxpr; without one, the types that the rule tells, and no effect."""
    over: Effects = frozenset(NamedAxisEffect(axis) for axis in p.axes)
    if p.jaxpr is None:
        return rule_types(p, avals), over
    outs, effects = call_abstract_eval(avals, p)
    return outs, effects | over


def custom_rule_impl(values: Sequence[Value], p: CustomRuleParams) -> list[Value]:
    """Operation by operation, as the user's function runs without any transform."""
    return rule_call(p, values)


def _print(eqn: Eqn, names: Names) -> str:
    operands = [names.atom(a) for a in eqn.invars]
    params = format_params(eqn.params, skip=("in_avals", "axes", "scope"))
    call = " ".join([f"{custom_rule_p}{params}", *operands])
    outs = " ".join(names.binder(v) for v in eqn.outvars)
    return f"{outs} = {call}" if outs else call


define_printer(custom_rule_p, _print)
