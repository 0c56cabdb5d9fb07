"""Everything fiveloop knows about `callback`: a call of Python has no derivative, and is made once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fiveloop.core import Value, ad, errors, prims, rules, trace, transforms
from fiveloop.core.arrays.array import Concrete, as_value
from fiveloop.core.backend import hlo
from fiveloop.core.ir import indexer
from fiveloop.state import handlers, predicate, primitives
from fiveloop.state.io import lanes, primitive


def callback_impl(values: ad.Values, p: primitive.CallbackParams) -> list[Value]:
    """Call it now."""
    operands = [x.numpy() for x in values if isinstance(x, Concrete)]
    return [as_value(out) for out in lanes.make_calls(p, operands)]


def callback_lower(
    ctx: Any, operands: hlo.IRValues, p: primitive.CallbackParams
) -> list[hlo.IRValue]:
    """Call it from the program."""
    if p.kind == "ordered":
        raise TypeError("an ordered call has no lowering: thread its token first (`thread_effect`)")
    return list(
        ctx.host_call(
            lambda *arrays: lanes.make_calls(p, arrays), operands, has_side_effect=p.kind != "pure"
        )
    )


def callback_jvp(
    primals: ad.Values, tangents: ad.Tangents, p: primitive.CallbackParams
) -> ad.Duals:
    """Call it on the primals, once; it must not give anything that would have to have a tangent."""
    given = any(not isinstance(t, ad.Zero) for t in tangents)
    if given and any(a.differentiable for a in p.avals):
        raise TypeError(
            f"{p.call.results.what}: its results have no derivative, since `{p.call}` is called as it is, but it was "
            f"given values under differentiation; give it `stop_gradient` of them, or define the derivative with "
            f"`custom_jvp` or `custom_vjp` around the call{errors.at_source(trace.current_source())}"
        )
    outs = trace.bind(primitive.callback_p, *primals, params=p)
    return outs, [transforms.zero_like(x) for x in outs]


def callback_batch(
    size: int, operands: ad.Values, dims: ad.BatchAxes, p: primitive.CallbackParams
) -> ad.Batched:
    """One equation that makes the calls of all lanes."""
    moved = [
        transforms.move_batch(x, size, d) if d is not None else x
        for x, d in zip(operands, dims, strict=True)
    ]
    batch = primitive.Batch(size, tuple(d is not None for d in dims))
    outs = trace.bind(primitive.callback_p, *moved, params=replace(p, batches=(*p.batches, batch)))
    return outs, [0] * len(outs)


def callback_predicate(
    pred: Value, operands: ad.Values, guard: predicate.Guard, p: primitive.CallbackParams
) -> list[Value]:
    """A call that is made only if the condition holds, and one that it has already."""
    if p.conditional:
        before, *operands = operands
        pred = prims.bitwise_and(pred, before)
    return trace.bind(primitive.callback_p, pred, *operands, params=replace(p, conditional=True))


def callback_handler(
    handling: handlers.Handling, ref: Value, operands: ad.Values, p: primitive.CallbackParams
) -> list[Value]:
    """Take the token from the Ref, and put back the one that the call gives: so the next call comes after it."""
    whole = indexer.whole_indexer(())
    token = trace.bind1(primitives.get_p, ref, params=primitives.IndexParams(whole))
    params = replace(p, kind="io", has_token=True)
    token, *outs = trace.bind(primitive.callback_p, token, *operands, params=params)
    trace.bind(
        primitives.swap_p, ref, token, params=primitives.SwapParams(whole, returns_old=False)
    )
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
