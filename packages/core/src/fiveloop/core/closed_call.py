"""`closed_call`: core's call, and the model for all higher-order primitives; cells that any call of jaxprs may use."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from functools import partial
from typing import Any, TypeVar

from fiveloop.core import ad, ir, rules, trace, transforms, util
from fiveloop.core.arrays import Value
from fiveloop.core.backend import hlo
from fiveloop.core.dataclass import dataclass, field, replace


@dataclass(frozen=True)
class ClosedCallParams:
    """The jaxpr that is called: `[*operands] -> [*results]`; a jit is a call with `inline` False.

    `one_kernel` asks the compiler for a single kernel, run by a single thread: for loops whose steps take nanoseconds.
    """

    jaxpr: ir.Jaxpr
    name: str = field(default="", compare=False)
    inline: bool = False
    one_kernel: bool = False


closed_call_p: ir.Primitive[ClosedCallParams] = ir.Primitive("closed_call")


def call_abstract_eval(avals: ir.Avals, p: Any) -> ir.Typing:
    """The types and effects of the jaxpr; TypeError if the operands do not fit its inputs.

    For any primitive that calls `p.jaxpr`, as its cell `abstract_eval`.

    >>> p = ClosedCallParams(make_jaxpr(lambda x: x.sum())(np.ones(3)))
    >>> call_abstract_eval([ShapedArray((3,), np.float64)], p)
    ([f64[]], frozenset())
    >>> call_abstract_eval([ShapedArray((4,), np.float64)], p)
    Traceback (most recent call last):
    TypeError: ClosedCall: operand 0 must be f64[3], got f64[4]
    """
    check_operands(type(p).__name__.removesuffix("Params"), avals, p.jaxpr)
    return p.jaxpr.out_avals, p.jaxpr.effects


def check_operands(what: str, avals: ir.Avals, jaxpr: ir.Jaxpr) -> None:
    """Raise TypeError if operands do not have the types of a jaxpr's inputs, weakness aside."""
    wanted = jaxpr.in_avals
    if len(avals) != len(wanted):
        raise TypeError(f"{what}: expected {len(wanted)} operands, got {len(avals)}")
    for i, (given, want) in enumerate(zip(avals, wanted, strict=True)):
        if given.strong() is not want.strong():
            raise TypeError(f"{what}: operand {i} must be {want}, got {given}")


P = TypeVar("P")
Change = Callable[[ir.Jaxpr, bool | util.Mask], tuple[ir.Jaxpr, util.Mask]]
"""From a jaxpr, and a mask that has to hold, to another jaxpr and the mask that does hold."""


def num_choosing(p: object, operands: Sequence[object]) -> int:
    """How many operands come before the operands of the jaxprs."""
    return len(operands) - len(ir.jaxprs_in(p)[0].invars)


def changed_alike(p: P, change: Change) -> tuple[P, util.Mask]:
    """Params with each jaxpr changed, and one mask for all: it holds where it holds for some jaxpr."""
    masks = [change(jaxpr, False)[1] for jaxpr in ir.jaxprs_in(p)]
    joined = tuple(any(marks) for marks in zip(*masks, strict=True))
    return ir.with_jaxprs(p, lambda j: change(j, joined if len(masks) > 1 else False)[0]), joined


@ir.once_per_jaxpr
def _computing(jaxpr: ir.Jaxpr) -> ir.Jaxpr:
    """A jaxpr without the results that are at hand outside: [*operands] -> [*computed]."""
    inputs = set(jaxpr.invars)
    computed = [v for v in ir.vars_in_order(jaxpr.outvars) if v not in inputs]
    return jaxpr if len(computed) == len(jaxpr.outvars) else jaxpr.replace(outvars=computed)


def bind_call(prim: ir.Primitive[Any], operands: ad.Values, p: Any) -> list[Value]:
    """Bind a primitive that calls its jaxprs; results known outside do not pass through the call of one jaxpr.

    Such results are operands, constants and repeated results: a derivative saves them once, and never as results of
    the call. A call without other results and without effects is left out.

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
    inner = _computing(jaxpr)
    if inner is jaxpr or others or [x.aval for x in operands] != jaxpr.in_avals:
        return trace.bind(prim, *operands, params=p)
    for x in operands:
        trace.check_live(trace.stand_in(x, trace.current_trace()))  # also one handed on alone
    at_hand = ir.Environment[Value](zip(jaxpr.invars, operands, strict=True))
    if inner.outvars or inner.effects:
        computed = trace.bind(prim, *operands, params=ir.with_jaxprs(p, lambda _: inner))
        at_hand.update(zip(ir.vars_in_order(inner.outvars), computed, strict=True))
    return [at_hand.read(a) for a in jaxpr.outvars]


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


def call_batch(
    prim: ir.Primitive[Any], size: int, operands: ad.Values, dims: ad.BatchAxes, p: Any
) -> ad.Batched:
    """Call once for the whole batch; for any primitive that calls its jaxprs.

    `dims` are the operands' batch axes, or None; the returned axes are of the results. As a cell:
    `partial(call_batch, prim)`.

    >>> p = ClosedCallParams(make_jaxpr(lambda x, y: (x * y, y))(1.0, 1.0))
    >>> operands = [iota(np.float32, 3), as_value(2.0)]
    >>> outs, dims = call_batch(closed_call_p, 3, operands, [0, None], p)
    >>> print(*outs, dims)
    [0. 2. 4.] 2.0 [0, None]
    """
    first = num_choosing(p, operands)
    jaxpr, *others = ir.jaxprs_in(p)
    if not (first or others):
        batched, out_dims = transforms.batch_jaxpr_at(jaxpr, size, dims)
        return bind_call(prim, operands, ir.with_jaxprs(p, lambda _: batched)), [*out_dims]
    choosing, moved = util.split_list(transforms.in_front(size, operands, dims), [first])
    dims = dims[first:]
    mask = tuple(d is not None for d in dims)
    axes = transforms.axes_in_front(operands[first:], dims)
    params, out_batched = changed_alike(
        p, lambda j, inst: transforms.batch_jaxpr(j, size, mask, inst, axes=axes)
    )
    outs = bind_call(prim, [*choosing, *moved], params)
    return outs, [0 if b else None for b in out_batched]


def call_dce(used: Sequence[bool], eqn: ir.Eqn) -> tuple[list[bool], ir.Eqn | None]:
    """The operands still used, and the smaller call; None if nothing is left of it.

    For any primitive that calls its jaxprs, as its cell `dce`. `used` has a mask of the results.

    >>> jaxpr = make_jaxpr(lambda x, y: (x * 2.0, y * 3.0))(1.0, 1.0)
    >>> eqn = new_eqn(closed_call_p, jaxpr.invars, ClosedCallParams(jaxpr))
    >>> used_ins, smaller = call_dce([False, True], eqn)
    >>> used_ins, len(smaller.invars), len(smaller.params.jaxpr.eqns)
    ([False, True], 1, 1)
    """
    params, used_ins = changed_alike(eqn.params, lambda j, keep: transforms.dce(j, used, keep))
    if not any(used) and not any(j.eqns for j in ir.jaxprs_in(params)):
        return [False] * len(eqn.invars), None
    used_ins = (True,) * num_choosing(eqn.params, eqn.invars) + used_ins
    invars, outvars = util.select_by(used_ins, eqn.invars), util.select_by(used, eqn.outvars)
    return list(used_ins), rules.new_eqn(eqn.primitive, invars, params, outvars, eqn.source)


def call_jvp(
    prim: ir.Primitive[Any], primals: ad.Values, tangents: ad.Tangents, p: Any
) -> ad.Duals:
    """Call once, for values and tangents that may be nonzero; for any primitive that calls its jaxprs.

    Tangents, given and returned, are values or `Zero`. As a cell: `partial(call_jvp, prim)`.

    >>> p = ClosedCallParams(make_jaxpr(lambda x, y: (x * x, y))(1.0, 1.0))
    >>> x, y = as_value(3.0), as_value(4.0)
    >>> outs, tangents = call_jvp(closed_call_p, [x, y], [as_value(1.0), zero_like(y)], p)
    >>> [out.item() for out in outs], tangents[0].item(), tangents[1]
    ([9.0, 4.0], 6.0, Zero(aval=f32[]))
    """
    nonzero = transforms.nonzero_mask(tangents[num_choosing(p, primals) :])
    # jaxpr     : [*ins]                    -> [*outs]
    # jaxpr_jvp : [*ins, *nonzero in_dots]  -> [*outs, *nonzero out_dots]
    params, out_nonzero = changed_alike(p, lambda j, inst: transforms.jvp_jaxpr(j, nonzero, inst))
    return _called(
        out_nonzero, bind_call(prim, [*primals, *transforms.nonzero_tangents(tangents)], params)
    )


def jvp_of(jaxpr: ir.Jaxpr, primals: ad.Values, tangents: ad.Tangents) -> ad.Duals:
    """Results and tangents of a jaxpr, run operation by operation."""
    jaxpr_jvp, out_nonzero = transforms.jvp_jaxpr(jaxpr, transforms.nonzero_mask(tangents))
    args = [*primals, *transforms.nonzero_tangents(tangents)]
    return _called(out_nonzero, transforms.eval_jaxpr(jaxpr_jvp, args))


def _called(out_nonzero: util.Mask, results: ad.Values) -> ad.Duals:
    outs, dots = util.split_list(results, [len(out_nonzero)])
    return outs, transforms.with_zeros(out_nonzero, dots, [x.aval for x in outs])


def call_split(
    plan: transforms.SavingPlan, unknown: Sequence[bool], inst: Sequence[bool], eqn: ir.Eqn
) -> rules.EqnSplit:
    r"""Call both halves; a residual that is an operand or a result of the call is not passed twice.

    For any primitive that calls `p.jaxpr`, as its cell `split`.

    >>> jaxpr = make_jaxpr(lambda x, t: (x * x) * t)(1.0, 1.0)
    >>> eqn = new_eqn(closed_call_p, jaxpr.invars, ClosedCallParams(jaxpr))
    >>> cut = call_split(DEFAULT_PLAN, [False, True], [False, False], eqn)
    >>> print(cut.out_unknown, *cut.known, *cut.staged, sep="\n")
    (True,)
    b:f32*[] = closed_call a
      jaxpr { lambda a:f32*[] ; let
          c:f32*[] = mul a a
        in (c,) }
    c:f32*[] = closed_call a b
      jaxpr { lambda d:f32*[] b:f32*[] ; let
          e:f32*[] = mul d b
        in (e,) }
    """
    p: ClosedCallParams = eqn.params
    again = gives_again(plan, eqn)
    kept = plan.kept_out or False
    cut = transforms.split(p.jaxpr, unknown, inst, plan, ensure_out_inst=again, kept_out=kept)
    return call_halves(cut, eqn, p, p, kept_outs([cut]) if again else None)


def call_halves(
    cut: transforms.Split, eqn: ir.Eqn, of_known: Any, of_staged: Any, kept: Set[int] | None
) -> rules.EqnSplit:
    """The halves of the call of a jaxpr that is cut, each with params of its own; `kept` is as in `set_apart`."""
    known_ins, _ = util.partition(cut.unknown_in, eqn.invars)
    known_outs, _ = util.partition(cut.out_unknown, eqn.outvars)
    known_jaxpr, saved, residuals = forward_residuals(cut, eqn, known_outs)
    staged_ins = [*residuals, *util.select_by(cut.staged_in, eqn.invars)]
    staged_outs = util.select_by(cut.out_staged, eqn.outvars)

    def half(params: Any, jaxpr: ir.Jaxpr, ins: ir.Atoms, outs: ir.Vars) -> ir.Eqn:
        return rules.new_eqn(eqn.primitive, ins, replace(params, jaxpr=jaxpr), outs, eqn.source)

    known = half(of_known, known_jaxpr, known_ins, [*known_outs, *saved])
    staged = half(of_staged, cut.staged, staged_ins, staged_outs)
    return set_apart([known], staged, cut.out_unknown, kept)


def gives_again(plan: transforms.SavingPlan, eqn: ir.Eqn) -> bool:
    """Whether the staged half of a call should give its known results, too: the plan does not save all of them."""
    refs = any(a.aval.accumulates for a in eqn.invars)
    return not refs and not plan.outside().saves_results(eqn)


def kept_outs(cuts: Sequence[transforms.Split]) -> set[int]:
    """Which results of an equation are residuals of each of its jaxprs."""
    found = [{k for kind, k in cut.sources if kind == "output"} for cut in cuts]
    return set.intersection(*found)


def set_apart(
    known: list[ir.Eqn], staged: ir.Eqn, out_unknown: util.Mask, kept: Set[int] | None
) -> rules.EqnSplit:
    """The halves of an equation; known results that the staged half gives, but for those kept, are made apart.

    `kept` is None if the staged half gives none. Each of its two parts takes what it needs of the residuals.
    """
    if kept is None:
        return rules.EqnSplit(known, [staged], out_unknown)
    dce = rules.dce_rules[staged.primitive]
    unknown = dce(list(out_unknown), staged)[1]
    again = dce([not u and k not in kept for k, u in enumerate(out_unknown)], staged)[1]
    # What the staged half does besides, it does once.
    if again is not None and ir.must_stay(again):
        again = None
    return rules.EqnSplit(
        known, [unknown] if unknown else [], out_unknown, [again] if again else []
    )


def forward_residuals(
    cut: transforms.Split, eqn: ir.Eqn, known_outs: ir.Vars
) -> tuple[ir.Jaxpr, list[ir.Var], list[ir.Atom]]:
    """The known half without the residuals that are at hand outside; the others' variables; all residuals.

    cut.known : [*known ins] -> [*known outs, *residuals]
    known     : [*known ins] -> [*known outs, *saved]
    """
    saved: list[ir.Var] = []
    residuals: list[ir.Atom] = []
    kept = list(cut.known.outvars[: len(known_outs)])
    for v, (kind, k) in zip(cut.residuals, cut.sources, strict=True):
        if kind == "input":
            residuals.append(eqn.invars[k])
        elif kind == "output" and not cut.out_unknown[k]:
            residuals.append(eqn.outvars[k])
        else:
            saved.append(ir.Var(v.aval))
            kept.append(v)
            residuals.append(saved[-1])
    return cut.known.replace(outvars=kept), saved, residuals


def call_transpose(
    prim: ir.Primitive[Any], cts: ad.Tangents, operands: ad.Operands, p: Any
) -> ad.Cotangents:
    """Call the transpose on the values, the accumulators and the nonzero cotangents; for any that calls its jaxprs.

    Gives a cotangent for each linear operand (an `UndefinedPrimal` or an `Accumulator`), and None for each other.
    As a cell: `partial(call_transpose, prim)`.

    >>> p = ClosedCallParams(make_jaxpr(lambda x, y: x * y)(1.0, 1.0))
    >>> x = UndefinedPrimal(ShapedArray((), np.float32))
    >>> call_transpose(closed_call_p, [as_value(2.0)], [x, as_value(3.0)], p)
    [Array(6., dtype=float32), None]
    """
    first = num_choosing(p, operands)
    linear = tuple(transforms.is_linear(x) for x in operands)
    nonzero = transforms.nonzero_mask(cts)
    params, in_nonzero = changed_alike(
        p, lambda j, wanted: _transposed(j, linear[first:], nonzero, wanted, operands[first:])
    )
    args = [x for x in map(transforms.passed, operands) if x is not None]
    args += transforms.nonzero_tangents(cts)
    results = iter(bind_call(prim, args, params))
    in_cts: ad.Cotangents = []
    for x, lin, nz in zip(operands[first:], linear[first:], in_nonzero, strict=True):
        ct = (next(results) if nz else ad.Zero(x.aval)) if lin else None
        held = isinstance(x, ad.UndefinedPrimal) and x.held is not None
        in_cts.append(ad.Total(ct) if held and isinstance(ct, Value) else ct)
    return [*[None] * first, *in_cts]


def _transposed(
    jaxpr: ir.Jaxpr,
    linear: util.Mask,
    nonzero: util.Mask,
    wanted: bool | util.Mask,
    operands: ad.Operands,
) -> tuple[ir.Jaxpr, util.Mask]:
    """The transpose of a jaxpr, with zeros for the cotangents of `wanted` that only other jaxprs give.

    jaxpr   : [*ins]                                    -> [*outs]
    jaxpr_t : [*values and accumulators, *nonzero cts]  -> [*nonzero in cts]
    """
    jaxpr_t, given = transforms.transpose_jaxpr(jaxpr, linear, nonzero, operands)
    if isinstance(wanted, bool) or wanted == given:
        return jaxpr_t, given

    def run(*args: Value) -> list[Value]:
        outs = iter(transforms.eval_jaxpr(jaxpr_t, args))
        masks = zip(given, wanted, jaxpr.in_avals, strict=True)
        return [next(outs) if g else transforms.zeros_of(a) for g, w, a in masks if w]

    stage = lambda: trace.stage_closed(run, jaxpr_t.in_avals, jaxpr.name)
    return jaxpr_t.remember(("with zeros", wanted), stage), wanted


def closed_call_lower(ctx: Any, operands: hlo.IRValues, p: ClosedCallParams) -> list[hlo.IRValue]:
    """Call the function of the jaxpr, or write its operations here."""
    if p.inline:
        return list(ctx.inline(p.jaxpr, operands))
    return list(ctx.call(p.jaxpr, p.name or p.jaxpr.name, operands, p.one_kernel))


rules.define(
    closed_call_p,
    abstract_eval=call_abstract_eval,
    lower=closed_call_lower,
    jvp=partial(call_jvp, closed_call_p),
    batch=partial(call_batch, closed_call_p),
    transpose=partial(call_transpose, closed_call_p),
    split=call_split,
    dce=call_dce,
    bodies=lambda p: [rules.Body(p.jaxpr, "called", plain=True)],
)
