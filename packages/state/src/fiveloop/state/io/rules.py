"""Everything fiveloop knows about `callback`: a call of Python has no derivative, and is made once.

Under `vmap` the calls of one equation are one per lane, in the order of the lanes, or one for all, stacked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fiveloop.core import Value, ad, arrays, prims, rules, trace, transforms, util
from fiveloop.core.backend import hlo
from fiveloop.state import handlers, predicate, primitives
from fiveloop.state.io import primitive
from fiveloop.state.io.host import HostArray


def make_calls(p: primitive.CallbackParams, operands: Sequence[HostArray]) -> list[HostArray]:
    """The results of an equation on NumPy arrays; a token comes out as it went in."""
    token, rest = util.split_list(operands, [int(p.has_token)])
    if not p.batches and not p.conditional:
        return [*token, *_called(p, rest)]
    calls = _one_stacked if p.stacked and p.batches else _one_a_lane
    return [*token, *calls(p, rest)]


def _called(
    p: primitive.CallbackParams, arrays: Sequence[HostArray], lead: tuple[int, ...] = ()
) -> list[HostArray]:
    """One call; it is made once also where a mode runs the program again."""
    if p.kind == "pure":
        return p.call(arrays, lead)
    results = p.call.results
    return trace.made_once((results.what, results.source), arrays, lambda: p.call(arrays, lead))


def _one_a_lane(p: primitive.CallbackParams, operands: Sequence[HostArray]) -> list[HostArray]:
    outs = _zeros(p)
    for lane in np.ndindex(*p.lead):
        mine = [x[_place(p, k, lane)] for k, x in enumerate(operands)]
        if p.conditional and not mine.pop(0):
            continue
        for out, result in zip(outs, _called(p, mine), strict=True):
            out[lane] = result
    return outs


def _place(p: primitive.CallbackParams, k: int, lane: Sequence[int]) -> tuple[int, ...]:
    """Where an operand has what belongs to a lane."""
    return tuple(i for i, b in zip(lane, reversed(p.batches), strict=True) if b.batched[k])


def _one_stacked(p: primitive.CallbackParams, operands: Sequence[HostArray]) -> list[HostArray]:
    """One call on the lanes whose condition holds, if there are any; with a condition they are in one axis."""
    full = [_in_all_lanes(p, k, x) for k, x in enumerate(operands)]
    if not p.conditional:
        return _called(p, full, p.lead)
    taken, outs = full.pop(0), _zeros(p)
    count = int(taken.sum())
    if count:
        results = _called(p, [x[taken] for x in full], (count,))
        for out, result in zip(outs, results, strict=True):
            out[taken] = result
    return outs


def _in_all_lanes(p: primitive.CallbackParams, k: int, x: HostArray) -> HostArray:
    """An operand with the axes of all batches, those that it does not have repeated."""
    has = [b.batched[k] for b in reversed(p.batches)]
    index = tuple(slice(None) if h else None for h in has)
    return np.broadcast_to(x[index], (*p.lead, *x.shape[sum(has) :]))


def _zeros(p: primitive.CallbackParams) -> list[HostArray]:
    return [np.zeros((*p.lead, *a.shape), a.dtype) for a in p.avals]


def callback_impl(values: ad.Values, p: primitive.CallbackParams) -> list[Value]:
    """Call it now."""
    operands = [x.numpy() for x in values if isinstance(x, arrays.Concrete)]
    return [arrays.as_value(out) for out in make_calls(p, operands)]


def callback_lower(
    ctx: Any, operands: hlo.IRValues, p: primitive.CallbackParams
) -> list[hlo.IRValue]:
    """Call it from the program."""
    if p.kind == "ordered":
        raise TypeError("an ordered call has no lowering: thread its token first (`thread_effect`)")
    run = lambda *arrays: make_calls(p, arrays)
    return list(ctx.host_call(run, operands, has_side_effect=p.kind != "pure"))


def callback_jvp(
    primals: ad.Values, tangents: ad.Tangents, p: primitive.CallbackParams
) -> ad.Duals:
    """Call it on the primals, once; it must not give anything that would have to have a tangent."""
    given = any(not isinstance(t, ad.Zero) for t in tangents)
    if given and any(a.differentiable for a in p.avals):
        prims.bad_type(
            f"{p.call.results.what}: its results have no derivative, since `{p.call}` is called as it is, but it was "
            f"given values under differentiation; give it `stop_gradient` of them, or define the derivative with "
            "`custom_jvp` or `custom_vjp` around the call"
        )
    outs = trace.bind(primitive.callback_p, *primals, params=p)
    return outs, [transforms.zero_like(x) for x in outs]


def callback_batch(
    size: int, operands: ad.Values, dims: ad.BatchAxes, p: primitive.CallbackParams
) -> ad.Batched:
    """An equation that makes the calls of all lanes."""
    moved = transforms.in_front(size, operands, dims)
    batch = primitive.Batch(size, tuple(d is not None for d in dims))
    outs = trace.bind(primitive.callback_p, *moved, params=replace(p, batches=(*p.batches, batch)))
    return outs, [0] * len(outs)


def callback_predicate(
    pred: Value, operands: ad.Values, guard: predicate.Guard, p: primitive.CallbackParams
) -> list[Value]:
    """A call that is made only if the condition holds, together with a condition that it has already."""
    if p.conditional:
        before, *operands = operands
        pred = prims.bitwise_and(pred, before)
    return trace.bind(primitive.callback_p, pred, *operands, params=replace(p, conditional=True))


def callback_handler(
    handling: handlers.Handling, ref: Value, operands: ad.Values, p: primitive.CallbackParams
) -> list[Value]:
    """Take the token from the Ref, and put back the one that the call gives: so the next call comes after it."""
    token = primitives.read(ref)
    params = replace(p, kind="io", has_token=True)
    token, *outs = trace.bind(primitive.callback_p, token, *operands, params=params)
    primitives.write(ref, token)
    return outs


rules.define(
    primitive.callback_p,
    abstract_eval=primitive.callback_abstract_eval,
    lower=callback_lower,
    impl=callback_impl,
    jvp=callback_jvp,
    batch=callback_batch,
    transpose=rules.Refusal(
        "it calls Python, and was given a tangent, by a rule for a derivative; call it where values are computed"
    ),
)
predicate.define_predicate(primitive.callback_p, callback_predicate)
handlers.define_handler(primitive.callback_p, callback_handler)
