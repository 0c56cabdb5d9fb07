"""Everything fiveloop knows about `callback`: a call of Python has no derivative, and is made once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fiveloop.core import Value
from fiveloop.core.engine import at_source, current_source, whole_indexer
from fiveloop.core.extend import (
    Concrete,
    IRValue,
    Refusal,
    Tangent,
    Zero,
    as_value,
    bind,
    bind1,
    bitwise_and,
    define,
    move_batch,
    zero_like,
)
from fiveloop.state.handlers import Handling, define_handler
from fiveloop.state.io.lanes import make_calls
from fiveloop.state.io.primitive import (
    Batch,
    CallbackParams,
    callback_abstract_eval,
    callback_p,
)
from fiveloop.state.predicate.engine import Guard, define_predicate
from fiveloop.state.primitives.common import IndexParams, SwapParams, get_p, swap_p


def callback_impl(values: Sequence[Value], p: CallbackParams) -> list[Value]:
    """Call it now."""
    operands = [x.numpy() for x in values if isinstance(x, Concrete)]
    return [as_value(out) for out in make_calls(p, operands)]


def callback_lower(ctx: Any, operands: Sequence[IRValue], p: CallbackParams) -> list[IRValue]:
    """Call it from the program."""
    if p.kind == "ordered":
        raise TypeError("an ordered call has no lowering: thread its token first (`thread_effect`)")
    return list(
        ctx.host_call(
            lambda *arrays: make_calls(p, arrays), operands, has_side_effect=p.kind != "pure"
        )
    )


def callback_jvp(
    primals: Sequence[Value], tangents: Sequence[Tangent], p: CallbackParams
) -> tuple[list[Value], list[Tangent]]:
    """Call it on the primals, once; it must not give anything that would have to have a tangent."""
    given = any(not isinstance(t, Zero) for t in tangents)
    if given and any(a.differentiable for a in p.avals):
        raise TypeError(
            f"{p.call.results.what}: its results have no derivative, since `{p.call}` is called as it is, but it was "
            f"given values under differentiation; give it `stop_gradient` of them, or define the derivative with "
            f"`custom_jvp` or `custom_vjp` around the call{at_source(current_source())}"
        )
    outs = bind(callback_p, *primals, params=p)
    return outs, [zero_like(x) for x in outs]


def callback_batch(
    size: int, operands: Sequence[Value], dims: Sequence[int | None], p: CallbackParams
) -> tuple[list[Value], list[int | None]]:
    """One equation that makes the calls of all lanes."""
    moved = [
        move_batch(x, size, d) if d is not None else x for x, d in zip(operands, dims, strict=True)
    ]
    batch = Batch(size, tuple(d is not None for d in dims))
    outs = bind(callback_p, *moved, params=replace(p, batches=(*p.batches, batch)))
    return outs, [0] * len(outs)


def callback_predicate(
    pred: Value, operands: Sequence[Value], guard: Guard, p: CallbackParams
) -> list[Value]:
    """A call that is made only if the condition holds, and one that it has already."""
    if p.conditional:
        before, *operands = operands
        pred = bitwise_and(pred, before)
    return bind(callback_p, pred, *operands, params=replace(p, conditional=True))


def callback_handler(
    handling: Handling, ref: Value, operands: Sequence[Value], p: CallbackParams
) -> list[Value]:
    """Take the token from the Ref, and put back the one that the call gives: so the next call comes after it."""
    whole = whole_indexer(())
    token = bind1(get_p, ref, params=IndexParams(whole))
    params = replace(p, kind="io", has_token=True)
    token, *outs = bind(callback_p, token, *operands, params=params)
    bind(swap_p, ref, token, params=SwapParams(whole, returns_old=False))
    return outs


define(
    callback_p,
    abstract_eval=callback_abstract_eval,
    lower=callback_lower,
    impl=callback_impl,
    jvp=callback_jvp,
    batch=callback_batch,
    transpose=Refusal(
        "it calls Python, and was given a tangent, by a rule for a derivative; call it where values are computed"
    ),
)
define_predicate(callback_p, callback_predicate)
define_handler(callback_p, callback_handler)
