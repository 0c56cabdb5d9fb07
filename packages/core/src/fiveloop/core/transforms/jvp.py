"""Forward mode, jaxpr to jaxpr: computes tangents beside values; known zeros stay symbolic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fiveloop.core import ad, arrays, ir, rules, util
from fiveloop.core.arrays import Value
from fiveloop.core.trace import stage_closed, tracer
from fiveloop.core.transforms.eval import eval_jaxpr


def zeros_of(aval: ir.Aval) -> Value:
    """A value of the given type that is zero everywhere.

    >>> print(zeros_of(ShapedArray((3,), np.float32)))
    [0. 0. 0.]
    """
    return rules.type_rules(aval).zeros(aval.strong())


def instantiate(tangent: ad.Tangent) -> Value:
    """A symbolic zero as an array; anything else as it is.

    >>> print(instantiate(Zero(ShapedArray((3,), np.float32))), instantiate(as_value(2.0)))
    [0. 0. 0.] 2.0
    """
    return zeros_of(tangent.aval) if isinstance(tangent, ad.Zero) else tangent


def nonzero_mask(tangents: ad.Tangents) -> util.Mask:
    """Which tangents are not symbolic zeros.

    >>> x = as_value(2.0)
    >>> nonzero_mask([x, zero_like(x)])
    (True, False)
    """
    return tuple([not isinstance(t, ad.Zero) for t in tangents])


def nonzero_tangents(tangents: ad.Tangents) -> list[Value]:
    """The tangents that are not symbolic zeros."""
    return [t for t in tangents if not isinstance(t, ad.Zero)]


def zero_like(x: Value) -> ad.Zero:
    """The symbolic zero tangent of a value.

    >>> zero_like(as_value(np.ones(3)))
    Zero(aval=f64[3])
    """
    return ad.Zero(x.aval.tangent())


def with_zeros(nonzero: Sequence[bool], given: ad.Values, avals: ir.Avals) -> list[ad.Tangent]:
    """The tangents of values of the types `avals`, from those that may not be zero."""
    there = iter(given)
    return [
        next(there) if nz else ad.Zero(a.tangent()) for nz, a in zip(nonzero, avals, strict=True)
    ]


def add_tangents(x: ad.Tangent, y: ad.Tangent) -> ad.Tangent:
    """The sum of two tangents or cotangents."""
    if isinstance(x, ad.Zero):
        return y
    if isinstance(y, ad.Zero):
        return x
    return rules.type_rules(x.aval).add(x, y)


class JvpTracer(tracer.Tracer):
    """A value with its tangent."""

    __slots__ = ("primal", "tangent")
    primal: Value
    tangent: ad.Tangent

    def __init__(
        self, trace: tracer.Trace, primal: Value, tangent: ad.Tangent, source: tracer.Origin = None
    ) -> None:
        super().__init__(trace, source)
        _set_primal(self, primal)
        _set_tangent(self, tangent)

    @property
    def aval(self) -> ir.Aval:
        return self.primal.aval

    # What Python asks of a value, it asks of the primal: if that is known now, so is the answer, and control
    # flow on it works. A NumPy array or a Python float is refused, since arithmetic on it would lose the derivative.

    def __bool__(self) -> bool:
        return bool(self._known())

    def __int__(self) -> int:
        return int(self._known())

    def __float__(self) -> float:
        return float(self._constant("a float"))

    def __complex__(self) -> complex:
        return complex(self._constant("a complex number"))

    def __format__(self, spec: str) -> str:
        return format(self._known(), spec) if spec else str(self)

    def item(self, *index: int) -> Any:
        return self._constant("a Python number").item(*index)

    def tolist(self) -> Any:
        return self._constant("a list").tolist()

    def _constant(self, what: str) -> Any:
        """The primal, of a value that has no slope; of another the number would have none, without a word."""
        known = self._known()
        has_slope = self.aval.differentiable and not isinstance(self.tangent, ad.Zero)
        if has_slope and tracer.is_concrete(known):
            self._refuse(
                what,
                "it would lose its derivative: if that is meant, write `stop_gradient(x)` first; else keep it an "
                "array (conditions such as `x > 0` work as they are)",
            )
        return known

    def _known(self) -> Any:
        tracer.check_live(self)
        return self.primal


_set_primal, _set_tangent = arrays.setter(JvpTracer, "primal"), arrays.setter(JvpTracer, "tangent")


class JvpTrace(tracer.Trace):
    """Computes tangents along with values, by the jvp rules, under the parent trace."""

    parent: tracer.Trace

    def process(self, prim: ir.Primitive[Any], args: ad.Values, params: Any) -> list[Value]:
        primals: list[Value] = []
        tangents: list[ad.Tangent] = []
        constant = True
        for x in args:
            primal, tangent = self.pair(x)
            primals.append(primal)
            tangents.append(tangent)
            constant = constant and isinstance(tangent, ad.Zero)
        if prim.holds_functions:
            params = params.under(self)
        if constant and not prim.creates_state:
            return self.hand_on(prim, primals, params)
        source = tracer.current_source()
        with tracer.use_trace(self.parent, source):
            outs, outs_dot = rules.jvp_rules[prim](primals, tangents, params)
        return [self.wrap(p, t, source) for p, t in zip(outs, outs_dot, strict=True)]

    def pair(self, x: Value) -> tuple[Value, ad.Tangent]:
        """The primal and tangent of a value; a value of another trace is constant."""
        if isinstance(x, JvpTracer) and x._trace is self:
            return x.primal, x.tangent
        return x, zero_like(x)

    def wrap(
        self, primal: Value, tangent: ad.Tangent, source: tracer.Origin = tracer.ARGUMENT
    ) -> Value:
        """A value of this trace; a constant stays what it is."""
        return primal if isinstance(tangent, ad.Zero) else JvpTracer(self, primal, tangent, source)


@tracer.leak_checked
def jvp_flat(
    fun: ad.Function, primals: ad.Values, tangents: ad.Tangents, user_fun: object = None
) -> ad.Duals:
    """The outputs of a flat function, and their tangents."""
    trace = JvpTrace(tracer.current_trace(), user_fun or fun)
    args = [trace.wrap(p, t) for p, t in zip(primals, tangents, strict=True)]
    with tracer.running(trace):
        outs = [arrays.as_value(out, "a result") for out in fun(*args)]
        pairs = [trace.pair(out) for out in outs]
    return [p for p, _ in pairs], [t for _, t in pairs]


@ir.once_per(lambda j, nonzero, inst=False: (j, nonzero, util.full(inst, len(j.outvars))))
def jvp_jaxpr(
    jaxpr: ir.Jaxpr, nonzero: util.Mask, inst: bool | Sequence[bool] = False
) -> tuple[ir.Jaxpr, util.Mask]:
    """The jaxpr of values and tangents, and which output tangents may be nonzero.

    jaxpr     : [*ins]                   -> [*outs]
    jaxpr_jvp : [*ins, *nonzero in_dots] -> [*outs, *nonzero out_dots]

    `inst` names output tangents that are made real even if they are zero.

    >>> jaxpr = make_jaxpr(lambda x, y: (x * y, y))(1.0, 1.0)
    >>> print(*jvp_jaxpr(jaxpr, (True, False)))
    { lambda a:f32*[] b:f32*[] c:f32[] ; let
        d:f32*[] = mul a b
        e:f32[] = mul c b
      in (d, b, e) } (True, False)
    """
    wanted = util.full(inst, len(jaxpr.outvars))
    out_nonzero: list[bool] = []

    def run(*args: Value) -> list[Value]:
        primals, dots = args[: len(nonzero)], args[len(nonzero) :]
        tangents = with_zeros(nonzero, dots, [x.aval for x in primals])
        outs, outs_dot = jvp_flat(lambda *xs: eval_jaxpr(jaxpr, xs), primals, tangents)
        pairs = zip(outs_dot, wanted, strict=True)
        out_nonzero[:] = [
            (want and t.aval.differentiable) or not isinstance(t, ad.Zero) for t, want in pairs
        ]
        return [*outs, *map(instantiate, util.select_by(out_nonzero, outs_dot))]

    dot_avals = [a.tangent() for a in util.select_by(nonzero, jaxpr.in_avals)]
    dot_hints = [hint and f"tangent of {hint}" for hint in util.select_by(nonzero, jaxpr.hints)]
    avals, hints = [*jaxpr.in_avals, *dot_avals], [*jaxpr.hints, *dot_hints]
    return stage_closed(run, avals, jaxpr.name, hints), tuple(out_nonzero)
