"""Handling an effect: the body works on one more Ref."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fiveloop.core import Value, bind
from fiveloop.loops.for_loop.primitive import ForParams, for_p
from fiveloop.state import Handling


def for_handler(
    handling: Handling, ref: Value, operands: Sequence[Value], p: ForParams
) -> list[Value]:
    """Loop with the Ref in front of the others.

    threaded : [ref, i, *consts, *carry, *refs] -> [*carry]
    body     : [i, *consts, *carry, ref, *refs] -> [*carry]
    """
    threaded = handling.thread(p.body)
    first, invars = p.first_ref, threaded.invars
    body = threaded.replace(invars=[*invars[1 : first + 2], invars[0], *invars[first + 2 :]])
    return bind(for_p, *operands[:first], ref, *operands[first:], params=replace(p, body=body))
