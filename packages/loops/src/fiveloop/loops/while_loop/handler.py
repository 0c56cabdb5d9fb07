"""Handling an effect: the condition and the body take one more Ref."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from fiveloop.core import Jaxpr, Value, ad, arrays, ir, trace, transforms
from fiveloop.loops.primitives.while_loop import WhileParams, parts, while_p
from fiveloop.state import handlers, predicate


def while_handler(
    handling: handlers.Handling, ref: Value, operands: ad.Values, p: WhileParams
) -> list[Value]:
    """Loop with the Ref in front of the others; a condition with the effect is asked at the end of each step."""
    if handling.concerns(p.cond):
        holds = transforms.eval_jaxpr(handling.thread(p.cond), [ref, *operands])
        operands = [*operands[: p.num_consts], *holds, *operands[p.num_consts :]]
        return while_handler(handling, ref, operands, asking_last(p))[1:]
    if handling.counts_steps:
        operands = [*operands[: p.num_consts], _NONE_MADE, *operands[p.num_consts :]]
        return _looped(handling, ref, operands, counting(p, _NONE_MADE.dtype), counts=True)[1:]
    return _looped(handling, ref, operands, p, counts=False)


_NONE_MADE = arrays.as_value(np.int32(0))


def _looped(
    handling: handlers.Handling, ref: Value, operands: ad.Values, p: WhileParams, counts: bool
) -> list[Value]:
    first = p.first_ref
    body = handlers.lead_at(handling.thread(p.body), first)
    if counts:
        body = _in_steps(body, handling, p)
    params = replace(p, cond=handlers.lead_at(handling.thread(p.cond), first), body=body)
    return trace.bind(while_p, *operands[:first], ref, *operands[first:], params=params)


@ir.once_per_jaxpr
def _in_steps(body: Jaxpr, handling: handlers.Handling, p: WhileParams) -> Jaxpr:
    """The body, to which the effect may do something of its own in each step; its first carried value counts them."""

    def run(*args: Value) -> list[Value]:
        step = lambda: transforms.eval_jaxpr(body, args)
        return handling.effect.in_step(args[p.first_ref], args[p.num_consts], step)

    return trace.stage_closed(run, body.in_avals, body.name)


Run = Callable[[Value, list[Value]], list[Value]]
"""What becomes of one more carried value and all operands of a loop."""


def _carrying(p: WhileParams, aval: ir.Aval, name: str, holds: Run, step: Run) -> WhileParams:
    """The loop that carries one more value, its first.

    cond, body : [*consts, x, *carry, *refs] -> [holds], [x, *carry]
    """
    num = p.num_consts
    avals, hints = list(p.body.in_avals), list(p.body.hints)
    avals.insert(num, aval)
    hints.insert(num, name)

    def staged(run: Run, name: str) -> Jaxpr:
        flat = lambda *args: run(args[num], [*args[:num], *args[num + 1 :]])
        return trace.stage_closed(flat, avals, name, hints)

    cond, body = staged(holds, p.cond.name), staged(step, p.body.name)
    return replace(p, cond=cond, body=body, kept=(False, *p.kept) if p.kept else ())


@ir.once_per(lambda p, dtype: (p.body, p, dtype))
def counting(p: WhileParams, dtype: np.dtype[Any]) -> WhileParams:
    """The loop that carries how many steps it has made."""
    holds = lambda made, args: transforms.eval_jaxpr(p.cond, args)
    step = lambda made, args: [made + 1, *transforms.eval_jaxpr(p.body, args)]
    return _carrying(p, ir.ShapedArray((), dtype), "steps", holds, step)


@ir.once_per(lambda p: (p.body, p))
def asking_last(p: WhileParams) -> WhileParams:
    """The loop that carries whether its condition holds, which is asked at the end of each step."""

    def step(_: Value, args: list[Value]) -> list[Value]:
        consts, _carry, refs = parts(p, args)
        carry = transforms.eval_jaxpr(p.body, args)
        return [*transforms.eval_jaxpr(p.cond, [*consts, *carry, *refs]), *carry]

    return _carrying(p, predicate.PREDICATE, "going on", lambda holds, args: [holds], step)
