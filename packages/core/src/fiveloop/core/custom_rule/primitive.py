"""The primitive: a call with a custom jvp, a custom transpose, or both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Concatenate

from fiveloop.core import ad, ir, transforms, util
from fiveloop.core.arrays import Value
from fiveloop.core.closed_call import (
    ClosedCallParams,
    call_abstract_eval,
    call_transpose,
    closed_call_p,
)
from fiveloop.core.dataclass import dataclass, field, replace
from fiveloop.core.trace import AxisScope, ScopeTrace, stage, stage_closed, tracer
from fiveloop.core.util import Q, R


@dataclass(frozen=True)
class RuleParams:
    """What is called, and the rule of its derivative.

    jaxpr : [*closed, *args] -> [*results]

    The first `num_closed` operands are the values that the user's functions close over. Without a jaxpr, the rule
    itself computes the results, from operands of the types `in_avals`: it is a linear function given by its transpose,
    or a function that runs operation by operation.

    The user's functions know named axes by the names in `scope`; `axes` are the axes that the names stand for now.
    `caller` is the trace that batches functions which run operation by operation.
    """

    name: str = field(default="", kw_only=True)
    rule: Rule
    jaxpr: ir.Jaxpr | None = None
    num_closed: int = field(default=0, kw_only=True)
    in_avals: tuple[ir.Aval, ...] = field(default=(), kw_only=True)
    axes: tuple[ir.NamedAxis, ...] = field(default=(), kw_only=True)
    scope: AxisScope = field(default=AxisScope(), kw_only=True)
    caller: transforms.BatchTrace | None = field(default=None, kw_only=True)

    @property
    def called(self) -> ir.Jaxpr:
        """What is computed, as a jaxpr, derived if need be."""
        return primal_jaxpr(self, self.in_avals)

    @property
    def may_hold_traced(self) -> bool:
        """Whether functions will run that may close over traced values which are not operands."""
        return self.jaxpr is None and self.rule.holds_traced

    def under(self, trace: tracer.Trace) -> RuleParams:
        """The equation as a trace hands it over, whose values its functions may hold.

        A batch is noted, and of a derivative the primals are meant, where closures have no derivative.
        """
        if self.rule.home is not None and isinstance(trace, transforms.BatchTrace):
            return replace(self, caller=trace)
        if not self.may_hold_traced or not self.rule.ignores_closed:
            return self
        return replace(self, rule=Undifferentiated(self, trace))


custom_rule_p: ir.Primitive[RuleParams] = ir.Primitive("custom_rule", holds_functions=True)


class Rule:
    """How an equation is differentiated, and transposed where it is linear; compared by identity.

    The printer shows `kind`. `transposes` says that the rule has a transpose of its own; otherwise the jaxpr is
    transposed. `has_bwd` says that its tangents are transposed by a function of the user's. `ignores_closed` says that
    results do not depend on values that the user's functions close over, as a solution does not depend on the solver.
    `keeps_traced` tells the leak checker that such values are held on purpose. `holds_traced` says that functions which
    run operation by operation may close over traced values, and `home` is the trace that they were called under, None
    for staged functions. `batches` says that the rule has a `batch` of its own.
    """

    kind = "rule"
    transposes = False
    has_bwd = False
    ignores_closed = False
    keeps_traced = True
    batches = False
    holds_traced = False
    home: tracer.Trace | None = None

    def __repr__(self) -> str:
        return self.kind

    __str__ = __repr__  # the printer does not look into it

    def call(self, p: RuleParams, values: ad.Values) -> list[Value]:
        """What the equation computes, under the current trace."""
        assert p.jaxpr is not None, f"unreachable: {self.kind} has no jaxpr and no call"
        return transforms.eval_jaxpr(p.jaxpr, values)

    def types(self, p: RuleParams, avals: ir.Avals) -> list[ir.Aval]:
        """The types of the results, where there is no jaxpr."""
        return stage(lambda *xs: self.call(p, xs), avals, p.name).jaxpr.out_avals

    def jvp(self, p: RuleParams, primals: ad.Values, tangents: ad.Tangents) -> ad.Duals:
        """Results and their tangents, under the current trace."""
        raise TypeError(f"{p.name}: {self.kind} has no jvp")

    def batch(self, size: int, values: ad.Values, dims: ad.BatchAxes, p: RuleParams) -> ad.Batched:
        """Results of a batch, and where they have it, under the current trace."""
        raise TypeError(f"{p.name}: {self.kind} has no batch")

    def transpose(self, p: RuleParams, cts: ad.Tangents, operands: ad.Operands) -> ad.Cotangents:
        """Cotangents of the linear operands, under the current trace: by default through the jaxpr."""
        jaxpr = primal_jaxpr(p, [x.aval for x in operands])
        jaxpr = transforms.parted(jaxpr, tuple(map(transforms.is_linear, operands)))
        return call_transpose(closed_call_p, cts, operands, ClosedCallParams(jaxpr, p.name))


class RuleAround(Rule):
    """A rule that runs that of another equation, `inner`, and is of its kind."""

    def __init__(self, inner: RuleParams) -> None:
        self.inner = inner
        self.kind = inner.rule.kind
        self.transposes = inner.rule.transposes
        self.has_bwd = inner.rule.has_bwd
        self.ignores_closed = inner.rule.ignores_closed
        self.holds_traced = inner.rule.holds_traced
        self.home = inner.rule.home


class Undifferentiated(RuleAround):
    """The rule of an equation that a derivative, `trace`, has handed over: closures hold the primals of its values."""

    def __init__(self, inner: RuleParams, trace: tracer.Trace) -> None:
        super().__init__(inner)
        self.trace = trace

    def call(self, p: RuleParams, values: ad.Values) -> list[Value]:
        with self._primals() as trace:
            found = self.inner.rule.call(replace(p, rule=self.inner.rule), values)
        return [*map(trace.primal, found)]

    def types(self, p: RuleParams, avals: ir.Avals) -> list[ir.Aval]:
        with self._primals():
            return self.inner.rule.types(replace(p, rule=self.inner.rule), avals)

    def jvp(self, p: RuleParams, primals: ad.Values, tangents: ad.Tangents) -> ad.Duals:
        with self._primals() as trace:
            outs, dots = self.inner.rule.jvp(replace(p, rule=self.inner.rule), primals, tangents)
        return [*map(trace.primal, outs)], [*map(trace.primal, dots)]

    def transpose(self, p: RuleParams, cts: ad.Tangents, operands: ad.Operands) -> ad.Cotangents:
        with self._primals() as trace:
            inner = replace(p, rule=self.inner.rule)
            found = self.inner.rule.transpose(inner, cts, operands)
        return [*map(trace.primal, found)]

    @contextmanager
    def _primals(self) -> Iterator[PrimalTrace]:
        trace = PrimalTrace(tracer.current_trace(), self.trace)
        with tracer.use_trace(trace):
            yield trace


class PrimalTrace(tracer.Trace):
    """Hands every operation on, with the primals of the values of `of`, a derivative that has handed over to a rule."""

    parent: tracer.Trace

    def __init__(self, parent: tracer.Trace, of: tracer.Trace) -> None:
        super().__init__(parent)
        self.of = of

    def process(self, prim: ir.Primitive[Any], args: ad.Values, params: Any) -> list[Value]:
        if prim.holds_functions:
            params = params.under(self.of)
        return self.hand_on(prim, [*map(self.primal, args)], params)

    def knows(self, owner: tracer.Trace) -> bool:
        """The values of the trace that has handed over."""
        return owner is self.of

    def primal(self, x: Any) -> Any:
        """A value without its tangent; a zero as it is."""
        return x.primal if isinstance(x, transforms.JvpTracer) and x.owner is self.of else x


def has_bwd(eqn: ir.Eqn) -> bool:
    """Whether an equation, or one inside of it, is differentiated by a function of the user's that need not be linear.

    Then several of its calls must not become one before they are differentiated.
    """
    is_rule = eqn.primitive is custom_rule_p
    return (is_rule and eqn.params.rule.has_bwd) or any(map(_holds_bwd, ir.jaxprs_in(eqn.params)))


@ir.once_per_jaxpr
def _holds_bwd(jaxpr: ir.Jaxpr) -> bool:
    return any(map(has_bwd, jaxpr.eqns))


def by_rule(
    p: RuleParams,
    method: Callable[Concatenate[RuleParams, Q], R],
    *args: Q.args,
    **kwargs: Q.kwargs,
) -> R:
    """What a method of the rule gives; in it, names of axes mean what they meant where the function was called."""
    if not p.axes:
        return method(p, *args, **kwargs)
    with tracer.use_trace(ScopeTrace(tracer.current_trace(), p.scope, p.axes)):
        return method(p, *args, **kwargs)


def primal_jaxpr(p: RuleParams, avals: ir.Avals) -> ir.Jaxpr:
    """What the equation computes, as a jaxpr of all its operands."""
    if p.jaxpr is not None:
        return p.jaxpr
    return stage_closed(lambda *xs: by_rule(p, p.rule.call, xs), avals, p.name)


def custom_rule_abstract_eval(avals: ir.Avals, p: RuleParams) -> ir.Typing:
    """The types and effects of the jaxpr; without a jaxpr, the types that the rule gives, and no effect."""
    over: ir.Effects = frozenset(ir.NamedAxisEffect(axis) for axis in p.axes)
    if p.jaxpr is None:
        return by_rule(p, p.rule.types, avals), over
    outs, effects = call_abstract_eval(avals, p)
    return outs, effects | over


def _print(eqn: ir.Eqn, names: ir.Names) -> str:
    operands = [names.atom(a) for a in eqn.invars]
    params = ir.format_params(eqn.params, skip=("in_avals", "axes", "scope", "caller"))
    call = " ".join([f"{custom_rule_p}{params}", *operands])
    outs = " ".join(names.binder(v) for v in eqn.outvars)
    return f"{outs} = {call}" if outs else call


ir.define_printer(custom_rule_p, _print)

OfTangents = Callable[[ad.Values, ad.Tangents], tuple[ad.Values, Sequence[ad.Tangent | None]]]
"""From values and tangents to results and tangents."""

_GIVEN = object()
"""Stands for a tangent that is there."""


class Masked:
    """`fun` of values and tangents as a flat function of the values and the nonzero tangents.

    It gives the results and then the nonzero tangents of `fun`, and knows afterwards which these are.
    """

    def __init__(self, fun: OfTangents, num_values: int, tangents: ad.Tangents) -> None:
        self.fun = fun
        self.num_values = num_values
        self.tangents = tangents
        self.num_outs = 0
        self.marks: list[ad.Zero | object | None] = []

    @property
    def dots(self) -> list[Value]:
        """The tangents that are not zero."""
        return transforms.nonzero_tangents(self.tangents)

    def __call__(self, *args: Value) -> list[Value]:
        values, given = args[: self.num_values], iter(args[self.num_values :])
        tangents = [t if isinstance(t, ad.Zero) else next(given) for t in self.tangents]
        outs, out_tangents = self.fun(values, tangents)
        there = [t for t in out_tangents if t is not None and not isinstance(t, ad.Zero)]
        self.num_outs = len(outs)
        # Not the tangents themselves, which belong to the trace that this runs under.
        self.marks = [t if t is None or isinstance(t, ad.Zero) else _GIVEN for t in out_tangents]
        return [*outs, *there]

    def apart(self, results: ad.Values) -> tuple[list[Value], list[ad.Tangent | None]]:
        """What `fun` gave, from what this function gave under another trace."""
        outs, rest = util.split_list(results, [self.num_outs])
        dots = iter(rest)
        return outs, [t if t is None or isinstance(t, ad.Zero) else next(dots) for t in self.marks]
