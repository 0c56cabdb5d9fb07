"""Handling an effect: every branch takes the Ref, those without the effect as well."""

from __future__ import annotations

from fiveloop.core import Value, ad, trace
from fiveloop.loops.primitives.cond import CondParams, cond_p
from fiveloop.state.handlers import Handling


def cond_handler(handling: Handling, ref: Value, operands: ad.Values, p: CondParams) -> list[Value]:
    """Choose among branches with the Ref in front: branch : [ref, *ins] -> [*outs]."""
    index, *rest = operands
    branches = tuple(handling.thread(b) for b in p.branches)
    return trace.bind(cond_p, index, ref, *rest, params=CondParams(branches))
