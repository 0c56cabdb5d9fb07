"""Linearisation: a function's value, and its derivative there as a linear jaxpr with residuals.

While something is being staged, the function is staged too, differentiated and split. On concrete values
it runs online, operation by operation, so that Python control flow on values works.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

from fiveloop.core import ad, arrays, ir, rules, trace, util
from fiveloop.core.arrays import Value
from fiveloop.core.dataclass import dataclass
from fiveloop.core.transforms import jvp, partial_eval, policies
from fiveloop.core.transforms.dce import dce
from fiveloop.core.transforms.eval import eval_jaxpr, run_halves
from fiveloop.core.transforms.transpose import backward_pass


@dataclass(frozen=True, slots=True)
class Linear:
    """A derivative at a point: `jaxpr : [*residuals, *in_dots] -> [*nonzero out_dots]`."""

    jaxpr: ir.Jaxpr
    residuals: list[Value]
    out_nonzero: util.Mask

    def __call__(self, in_dots: ad.Values, outs: ir.Avals) -> list[ad.Tangent]:
        """The output tangents for given input tangents; `outs` are the types of all outputs."""
        dots = eval_jaxpr(self.jaxpr, [*self.residuals, *in_dots])
        return jvp.with_zeros(self.out_nonzero, dots, outs)

    def pull_back(
        self, avals: ir.Avals, cts: ad.Tangents, targets: Sequence[Value | None] = ()
    ) -> list[ad.Tangent]:
        """The cotangents of the inputs, from those of all outputs; zero where they are added to a target."""
        inputs = zip(avals, targets or [None] * len(avals), strict=True)
        unknowns = [ad.UndefinedPrimal(a.tangent(), into) for a, into in inputs if a.differentiable]
        given = [ct for ct, nz in zip(cts, self.out_nonzero, strict=True) if nz]
        found = iter(backward_pass(self.jaxpr, [*self.residuals, *unknowns], given))
        return [next(found) if a.differentiable else ad.Zero(a.tangent()) for a in avals]


def linearize_flat(
    fun: ad.Function, primals: ad.Values, nonzero: util.Mask, user_fun: object = None
) -> tuple[list[Value], Linear]:
    """The outputs of a flat function, and its derivative in the inputs that `nonzero` marks."""
    run = _linearize_staged if trace.is_staging(trace.current_trace()) else _linearize_online
    return run(fun, primals, nonzero, user_fun or fun)


def linearize_jaxpr(
    jaxpr: ir.Jaxpr, nonzero: util.Mask, plan: policies.SavingPlan = policies.DEFAULT_PLAN
) -> tuple[ir.Jaxpr, ir.Jaxpr, util.Mask, int]:
    r"""The known half, the linear half, which output tangents are nonzero, and the number of residuals.

    jaxpr  : [*ins]                           -> [*outs]
    known  : [*ins]                           -> [*outs, *residuals]
    linear : [*residuals, *nonzero in_dots]   -> [*nonzero out_dots]

    A Ref that the linear half takes, to use it when it is transposed, is given as a residual too.

    >>> jaxpr = make_jaxpr(lambda x, y: x * y)(1.0, 1.0)
    >>> known, linear, out_nonzero, num_res = linearize_jaxpr(jaxpr, (True, False))
    >>> print(known, linear, out_nonzero, num_res, sep="\n")
    { lambda a:f32*[] b:f32*[] ; let
        c:f32*[] = mul a b
      in (c, b) }
    { lambda a:f32*[] b:f32[] ; let
        c:f32[] = mul b a
      in (c,) }
    (True,)
    1
    """
    # jaxpr_jvp : [*ins, *nonzero in_dots] -> [*outs, *nonzero out_dots]
    jaxpr_jvp, out_nonzero = jvp.jvp_jaxpr(jaxpr, nonzero)
    # Nothing is kept for a result of a call or a loop that nobody uses.
    jaxpr_jvp, _ = dce(jaxpr_jvp, (True,) * len(jaxpr_jvp.outvars))
    unknown_in = (False,) * len(nonzero) + (True,) * sum(nonzero)
    late = (False,) * len(jaxpr.outvars) + (True,) * sum(out_nonzero)
    cut = partial_eval.split(
        jaxpr_jvp, unknown_in, (False,) * len(unknown_in), plan, ensure_out_unknown=late
    )
    again = util.select_by(cut.staged_in[: len(nonzero)], jaxpr_jvp.invars[: len(nonzero)])
    known = cut.known.replace(outvars=[*cut.known.outvars, *again]) if again else cut.known
    return known, cut.staged, out_nonzero, len(cut.residuals) + len(again)


def _linearize_staged(
    fun: ad.Function, primals: ad.Values, nonzero: util.Mask, user_fun: object
) -> tuple[list[Value], Linear]:
    staged = trace.stage(fun, [x.aval for x in primals], user_fun=user_fun)
    # staged.jaxpr : [*captured, *primals] -> [*outs]
    mask = (False,) * len(staged.captured) + nonzero
    known, linear, out_nonzero, num_res = linearize_jaxpr(staged.jaxpr, mask)
    results = eval_jaxpr(known, [*staged.captured, *primals])
    num_outs = len(results) - num_res
    return results[:num_outs], Linear(linear, results[num_outs:], out_nonzero)


class PartialTrace(trace.StageTrace):
    """Runs what is known under the parent trace, and writes down what depends on an unknown tangent."""

    parent: trace.Trace
    decides: ClassVar[bool] = True

    def __init__(self, parent: trace.Trace, fun: object = None) -> None:
        super().__init__(parent, fun)
        self.plan = policies.DEFAULT_PLAN

    def process(self, prim: ir.Primitive[Any], args: ad.Values, params: Any) -> list[Value]:
        for x in args:
            if isinstance(x, trace.StageTracer) and x._trace is self:
                break
        else:
            if not getattr(params, "holds_tangent", False):
                return self.hand_on(prim, args, params)
        rule = rules.split_rules.get(prim)
        if rule is None:
            return super().process(prim, args, params)
        unknown = [isinstance(x, trace.StageTracer) and x._trace is self for x in args]
        if all(unknown):
            return super().process(prim, args, params)
        cut = partial(rule, self.plan, unknown, [False] * len(args))
        return run_halves(cut, prim, args, params, self.parent, super().process)


@trace.leak_checked
def _linearize_online(
    fun: ad.Function, primals: ad.Values, nonzero: util.Mask, user_fun: object
) -> tuple[list[Value], Linear]:
    tape = PartialTrace(trace.current_trace(), user_fun)
    unknowns = [tape.new_arg(x.aval.tangent()) for x in util.select_by(nonzero, primals)]
    tangents = jvp.with_zeros(nonzero, unknowns, [x.aval for x in primals])
    with trace.running(tape):
        outs, outs_dot = jvp.jvp_flat(fun, primals, tangents, user_fun)
        out_nonzero = jvp.nonzero_mask(outs_dot)
        atoms = [tape.atom(arrays.as_value(t)) for t in outs_dot if not isinstance(t, ad.Zero)]
    captured, binders = tape.captured
    # linear : [*captured, *in_dots] -> [*nonzero out_dots]
    linear = ir.Jaxpr([*binders, *[u.binder for u in unknowns]], tape.eqns, atoms)
    return outs, Linear(linear, captured, out_nonzero)
