"""Handling an effect: the condition and the body work on one more Ref."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fiveloop.core import Jaxpr, Value, bind, eval_jaxpr, stage_closed
from fiveloop.loops.while_loop.layout import parts
from fiveloop.loops.while_loop.primitive import WhileParams, while_p
from fiveloop.state import PREDICATE, Handling


def while_handler(
    handling: Handling, ref: Value, operands: Sequence[Value], p: WhileParams
) -> list[Value]:
    """Loop with the Ref in front of the others; a condition with the effect is asked at the end of each step."""
    if handling.concerns(p.cond):
        holds = eval_jaxpr(handling.thread(p.cond), [ref, *operands])
        operands = [*operands[: p.num_consts], *holds, *operands[p.num_consts :]]
        return while_handler(handling, ref, operands, _asking_last(p))[1:]
    first = p.first_ref
    params = replace(
        p,
        cond=_in_place(handling.thread(p.cond), first),
        body=_in_place(handling.thread(p.body), first),
    )
    return bind(while_p, *operands[:first], ref, *operands[first:], params=params)


def _in_place(threaded: Jaxpr, first: int) -> Jaxpr:
    """The Ref where the loop has its Refs: [ref, *consts, *carry, *refs] to [*consts, *carry, ref, *refs]."""
    ref, *rest = threaded.invars
    return threaded.replace(invars=[*rest[:first], ref, *rest[first:]])


def _asking_last(p: WhileParams) -> WhileParams:
    """The loop that carries whether its condition holds.

    cond : [*consts, holds, *carry, *refs] -> [holds]
    body : [*consts, holds, *carry, *refs] -> [holds, *carry]
    """
    return p.body.remember(("asking last", p), lambda: _make_asking_last(p))


def _make_asking_last(p: WhileParams) -> WhileParams:
    num = p.num_consts
    avals = p.body.in_avals

    def step(*args: Value) -> list[Value]:
        consts, _, refs = parts(p, [*args[:num], *args[num + 1 :]])
        carry = eval_jaxpr(p.body, [*args[:num], *args[num + 1 :]])
        return [*eval_jaxpr(p.cond, [*consts, *carry, *refs]), *carry]

    binders = [*avals[:num], PREDICATE, *avals[num:]]
    cond = stage_closed(lambda *args: [args[num]], binders, p.cond.name)
    return replace(p, cond=cond, body=stage_closed(step, binders, p.body.name))
