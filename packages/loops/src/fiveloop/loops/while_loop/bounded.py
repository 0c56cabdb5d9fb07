"""A `while` with a bound: a `for` that ends when the condition is false, differentiable in both modes.

Where the condition is that a counter is less than a limit, the number of steps is known when the loop begins, and no
step tests the condition.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fiveloop.core import Jaxpr, Value, ad, prims, trace, transforms, util
from fiveloop.core.closed_call import ClosedCallParams, closed_call_p
from fiveloop.core.dataclass import dataclass
from fiveloop.loops import common, options
from fiveloop.loops.analysis.integers import literal
from fiveloop.loops.primitives.for_loop import INDEX
from fiveloop.loops.record import Called
from fiveloop.loops.tracing import Loop, TracedBody, loop_of
from fiveloop.state import AbstractRef, predicate
from fiveloop.state.checks.primitive import CheckParams, check_p
from fiveloop.state.checks.record import CheckSite


@dataclass(frozen=True, slots=True)
class Counter:
    """The counter of a loop: a carried value that goes up by one, up to a limit.

    The limit is a constant of the condition, given by its place, as the carried value is, or the literal that `stands`
    in the condition.
    """

    carried: int
    limit: int | None
    stands: int = 0

    def left(self, consts: Sequence[Value], carry: Sequence[Value]) -> Value:
        """How many steps there are from the values at first, without the bound; negative if there are none."""
        limit = self.stands if self.limit is None else prims.convert(consts[self.limit], np.int64)
        return limit - prims.convert(carry[self.carried], np.int64)


def counter_of(cond: Jaxpr, body: Jaxpr, num_consts: int) -> Counter | None:
    """The counter of a loop that goes on while it is less than a limit; None if it goes on for another reason.

    cond, body : [*consts, *carry, *refs] -> [pred], [*carry]
    """
    if len(cond.eqns) != 1 or cond.eqns[0].primitive is not prims.less.prim:
        return None
    count, limit = cond.eqns[0].invars
    consts, carry, _ = util.split_list(cond.invars, [num_consts, len(body.outvars)])
    stands = literal(limit)
    # The difference of two narrow integers is a wide one.
    is_narrow = count.aval.dtype.kind in "iu" and count.aval.dtype.itemsize <= 4
    if count not in carry or not is_narrow or (stands is None and limit not in consts):
        return None
    k = carry.index(count)
    made, before = body.outvars[k], body.invars[num_consts + k]
    steps = [eqn for eqn in body.eqns if made in eqn.outvars and eqn.primitive is prims.add_p]
    if not any(e.invars[0] is before and literal(e.invars[1]) == 1 for e in steps):
        return None
    return Counter(k, None, stands) if stands is not None else Counter(k, consts.index(limit))  # type: ignore[arg-type]  # it is a variable


def bounded_loop(
    closures: common.Closures,
    limits: options.Limits,
    fun: object,
    names: Sequence[str],
    counter: Counter | None,
) -> Loop:
    """The loop with a bound on its steps, over the carried values and, without a counter, whether it has ended.

    cond, body : [*consts, *carry, *refs]                       -> [pred], [*carry]
    step       : [i, *consts, *refs, *carry refs, *ended]       -> []
    """
    cond, body = closures.jaxprs
    assert limits.steps is not None, "unreachable: it has a bound"
    num_consts, num_refs = len(closures.consts), len(closures.refs)
    avals = body.in_avals
    changed = [k != n for n, k in enumerate(common.handed_through(body), num_consts)]

    def run(i: Value, *args: Value) -> list[Value]:
        consts, refs, carry, end = util.split_list(args, [num_consts, num_refs, len(body.outvars)])
        outs = transforms.eval_jaxpr(body, [*consts, *[ref[...] for ref in carry], *refs])
        for ref, x, is_new in zip(carry, outs, changed, strict=True):
            if is_new:
                ref[...] = x
        for ended in end:
            (holds,) = transforms.eval_jaxpr(cond, [*consts, *outs, *refs])
            ended[...] = prims.bitwise_not(holds)
        return []

    carried = avals[num_consts : len(avals) - num_refs]
    end = [predicate.PREDICATE] if counter is None else []
    states = map(AbstractRef, [*[a.strong() for a in carried], *end])
    binders = [INDEX, *avals[:num_consts], *avals[len(avals) - num_refs :], *states]
    step = trace.stage_closed(run, binders, body.name)
    traced = TracedBody(step, closures.consts, closures.refs, fun, Called("while_loop"))
    how = options.How(checkpoints=limits.slots)
    if counter is not None:
        return loop_of(limits.steps, traced, how, names, counted=True)
    return loop_of(limits.steps, traced, how, [*names, "ended"], flag=-1)


def run_bounded(
    loop: Loop | None,
    closures: common.Closures,
    carry: ad.Values,
    steps: int,
    counter: Counter | None,
) -> list[Value]:
    """The final carried values; what is told if the condition still holds then."""
    if loop is not None and counter is not None:
        left = counter.left(closures.consts, carry)
        count = prims.convert(prims.clamp(0, left, steps), INDEX.dtype)
        outs, ended = loop.run(carry, count), left <= steps
    else:
        operands = [*closures.consts, *carry, *closures.refs]
        (holds,) = trace.bind(closed_call_p, *operands, params=ClosedCallParams(closures.jaxprs[0]))
        outs = [*carry, prims.bitwise_not(holds)]
        *outs, ended = outs if loop is None else loop.run(outs)
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
