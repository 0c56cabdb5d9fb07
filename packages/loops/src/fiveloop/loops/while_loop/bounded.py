"""A `while` with a bound: a `for` that ends when the condition does, which is differentiable in both modes."""

from __future__ import annotations

from collections.abc import Sequence

from fiveloop.core import Jaxpr, Value, ad, prims, trace, transforms, util
from fiveloop.core.closed_call import ClosedCallParams, closed_call_p
from fiveloop.loops import common, options
from fiveloop.loops.analysis.early_end import until_set
from fiveloop.loops.primitives.for_loop import INDEX
from fiveloop.loops.record import Called
from fiveloop.loops.tracing import Loop, TracedBody, loop_of
from fiveloop.state import AbstractRef, predicate
from fiveloop.state.checks.primitive import CheckParams, check_p
from fiveloop.state.checks.site import CheckSite


def bounded_loop(
    cond: Jaxpr,
    body: Jaxpr,
    closures: common.Closures,
    steps: int,
    slots: int | None,
    fun: object,
    names: Sequence[str],
) -> Loop:
    """The loop of at most so many steps, over the carried values and whether it has ended.

    cond, body : [*consts, *carry, *refs]                       -> [pred], [*carry]
    step       : [i, *consts, *refs, *carry refs, ended]        -> []
    """
    num_consts, num_refs = len(closures.consts), len(closures.refs)
    avals = body.in_avals
    changed = [k != n for n, k in enumerate(common.handed_through(body), num_consts)]

    def run(i: Value, *args: Value) -> list[Value]:
        consts, refs, carry, (ended,) = util.split_list(
            args, [num_consts, num_refs, len(body.outvars)]
        )
        outs = transforms.eval_jaxpr(body, [*consts, *[ref[...] for ref in carry], *refs])
        for ref, x, is_new in zip(carry, outs, changed, strict=True):
            if is_new:
                ref[...] = x
        (holds,) = transforms.eval_jaxpr(cond, [*consts, *outs, *refs])
        ended[...] = prims.bitwise_not(holds)
        return []

    carried = avals[num_consts : len(avals) - num_refs]
    states = map(AbstractRef, [*[a.strong() for a in carried], predicate.PREDICATE])
    binders = [INDEX, *avals[:num_consts], *avals[len(avals) - num_refs :], *states]
    step = trace.stage_closed(run, binders, body.name)
    traced = TracedBody(step, [*closures.consts], [*closures.refs], fun, Called("while_loop"))
    return loop_of(steps, traced, False, options.AUTO, [*names, "ended"], _until_ended, slots)


def _until_ended(body: Jaxpr) -> Jaxpr:
    """The body as a branch that is taken as long as its last Ref is not set."""
    return until_set(body, len(body.invars) - 1)


def run_bounded(
    loop: Loop | None, cond: Jaxpr, closures: common.Closures, carry: ad.Values, steps: int
) -> list[Value]:
    """The final carried values; what is told if the condition still holds then."""
    operands = [*closures.consts, *carry, *closures.refs]
    (holds,) = trace.bind(closed_call_p, *operands, params=ClosedCallParams(cond))
    outs = [*carry, prims.bitwise_not(holds)]
    if loop is not None:
        outs = loop.run(outs)
    *outs, ended = outs
    tell_of_bound(ended, steps)
    return [
        prims.convert(x, a.aval.dtype, a.aval.weak_type) for x, a in zip(outs, carry, strict=True)
    ]


def tell_of_bound(ended: Value, steps: int) -> None:
    """Warn if a loop has not ended after as many steps as it may take; where programs are checked, that is an error."""
    source = trace.current_source()
    message = (
        f"while_loop: after max_steps={steps} steps the condition still holds, and the loop was stopped; "
        "give a larger max_steps"
    )
    site = CheckSite(message, source=None if source is None else str(source))
    trace.bind(check_p, ended, params=CheckParams(site, warns=True))
